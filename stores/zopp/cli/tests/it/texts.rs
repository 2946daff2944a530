//! The texts that scripts read, verb by verb.

use crate::world::{World, normalise};

#[track_caller]
fn check(text: &str, expected: &str) {
    assert_eq!(normalise(text), expected);
}

#[test]
fn join() {
    let world = World::with_alice();
    let home = world.server.home();
    let text = home.ok(&format!("join {} bob@example.com --principal phone", world.server.invite()));
    let file = home.config_file();
    check(
        &text,
        &format!(
            "Joined.\n\nUser ID:      <uuid>\nPrincipal ID: <uuid>\nPrincipal:    phone\n\nConfiguration saved to {}\n",
            file.display()
        ),
    );
}

#[test]
fn workspaces() {
    let World { alice, server: _server } = World::with_alice();
    check(&alice.ok("workspace list"), "No workspaces found\n");
    check(&alice.ok("workspace create acme"), "Workspace created\nName: acme\nID:   <uuid>\n");
    check(&alice.ok("workspace list"), "Workspaces:\n  acme\n");
    let object = alice.json("workspace list");
    assert_eq!(object["workspaces"][0]["name"], "acme");
    let stderr = alice.fails("workspace create acme", 1);
    assert!(
        stderr.starts_with("Error: cannot create workspace 'acme': ") && stderr.contains("(AlreadyExists)"),
        "{stderr}"
    );
}

#[test]
fn projects_and_environments() {
    let World { alice, server: _server } = World::with_alice();
    alice.ok("workspace create acme");
    check(&alice.ok("project list -w acme"), "No projects found\n");
    check(&alice.ok("project create backend -w acme"), "Project 'backend' created (ID: <uuid>)\n");
    check(&alice.ok("project list -w acme"), "Projects:\n  backend\n");
    check(
        &alice.ok("project get backend -w acme"),
        "Name:         backend\nID:           <uuid>\nWorkspace ID: <uuid>\nCreated:      <time>\nUpdated:      <time>\n",
    );
    let scope = "-w acme -p backend";
    check(&alice.ok(&format!("environment list {scope}")), "No environments found\n");
    check(&alice.ok(&format!("environment create dev {scope}")), "Environment 'dev' created (ID: <uuid>)\n");
    check(&alice.ok(&format!("environment list {scope}")), "Environments:\n  dev\n");
    check(
        &alice.ok(&format!("environment get dev {scope}")),
        "Name:        dev\nID:          <uuid>\nProject ID:  <uuid>\nDEK wrapped: <hex>\nDEK nonce:   <hex>\nCreated:     \
         <time>\nUpdated:     <time>\n",
    );
    assert_eq!(alice.json("project list -w acme")["projects"][0]["name"], "backend");
    assert_eq!(alice.json(&format!("environment list {scope}"))["environments"][0]["name"], "dev");
    assert_eq!(alice.json(&format!("environment get dev {scope}"))["dek_nonce"].as_str().unwrap().len(), 48);
    check(&alice.ok(&format!("environment delete dev {scope}")), "Environment 'dev' deleted\n");
    check(&alice.ok("project delete backend -w acme"), "Project 'backend' deleted\n");
    let stderr = alice.fails("project get backend -w acme", 1);
    assert!(
        stderr.starts_with("Error: cannot show project 'acme/backend': ") && stderr.contains("(NotFound)"),
        "{stderr}"
    );
}

#[test]
fn secrets() {
    let World { alice, server: _server } = World::new();
    check(&alice.ok("secret list"), "No secrets found\n");
    check(&alice.ok("secret set B two"), "Secret 'B' set\n");
    check(&alice.ok("secret set A one"), "Secret 'A' set\n");
    check(&alice.ok("secret list"), "Secrets:\n  A\n  B\n");
    check(&alice.ok("secret get A"), "one\n");
    check(&alice.ok("secret export"), "A=one\nB=two\n");
    check(&alice.ok("secret delete A"), "Secret 'A' deleted\n");
    assert_eq!(alice.json("secret list"), serde_json::json!({"version": 3, "secrets": ["B"]}));
    assert_eq!(alice.json("secret get B"), serde_json::json!({"key": "B", "value": "two"}));
    assert_eq!(
        alice.json("secret set C three"),
        serde_json::json!({"key": "C", "environment": {"workspace": "acme", "project": "backend", "environment": "dev"}})
    );
    let stderr = alice.fails("secret get A", 1);
    assert!(
        stderr.starts_with("Error: cannot get secret 'A' of acme/backend/dev: ") && stderr.contains("(NotFound)"),
        "{stderr}"
    );
    assert!(stderr.ends_with("\n  See what there is: zopp secret list.\n"), "{stderr}");
    let stderr = alice.fails("secret export -o nowhere/file", 1);
    assert!(stderr.starts_with("Error: cannot write nowhere/file: nowhere is no folder\n  "), "{stderr}");
}

#[test]
fn whoever_names_the_wrong_principal_is_told_where_the_right_one_is() {
    let world = World::new();
    let (_, robot) = world.robot("robot");
    let stderr = world.alice.fails("permission set --principal robot --role read", 1);
    assert!(stderr.contains("must be a UUID\n  It is the ID that counts, not the name"), "{stderr}");
    let stderr = robot.fails("project create frontend -w acme", 1);
    assert!(
        stderr.ends_with("\n  Switch to a principal of yours: zopp principal list, zopp principal use <name>.\n"),
        "{stderr}"
    );
}

#[test]
fn invites() {
    let World { alice, server } = World::new();
    check(&alice.ok("invite list"), "No invites found\n");
    check(&alice.ok("invite create"), "Invite to workspace acme\n\n  <code>\n\nToken:   <hex>\nExpires: <time>\n");
    let code = alice.ok("invite create --plain --expires-hours 1");
    check(&code, "<code>\n");
    let bob = server.home();
    check(
        &bob.ok(&format!("join {} bob@example.com --principal phone", code.trim())),
        &format!(
            "Joined.\n\nUser ID:      <uuid>\nPrincipal ID: <uuid>\nPrincipal:    phone\nWorkspaces:\n  - acme \
             (<uuid>)\n\nConfiguration saved to {}\n",
            bob.config_file().display()
        ),
    );
    let invites = alice.json("invite list")["invites"].as_array().unwrap().clone();
    assert_eq!(invites.len(), 2);
    let text = normalise(&alice.ok("invite list"));
    assert_eq!(text.lines().next(), Some("ID:      <uuid>"));
    assert_eq!(text.matches("Token:   <hex>\nExpires: <time>\n").count(), 2);

    check(&alice.ok(&format!("invite revoke {}", code.trim())), "Invite revoked\n");
    let stderr = server.home().fails(&format!("join {} eve@example.com --principal x", code.trim()), 1);
    assert!(stderr.contains("(NotFound)"), "{stderr}");
    for invite in alice.json("invite list")["invites"].as_array().unwrap() {
        alice.ok(&format!("invite revoke {}", invite["token"].as_str().unwrap()));
    }
    check(&alice.ok("invite list"), "No invites found\n");
}

#[test]
fn permissions() {
    let world = World::new();
    let (id, _robot) = world.robot("robot");
    let alice = &world.alice;
    for (prefix, place) in
        [("", "workspace acme"), ("project-", "project acme/backend"), ("env-", "environment acme/backend/dev")]
    {
        let run = |verb: &str| alice.ok(&format!("permission {prefix}{verb}"));
        assert_eq!(run("list"), format!("No permissions found on {place}\n"));
        assert_eq!(
            run(&format!("set --principal {id} --role WRITE")),
            format!("Principal {id} now has write permission on {place}\n")
        );
        assert_eq!(run(&format!("get --principal {id}")), format!("Principal {id} has write permission on {place}\n"));
        assert_eq!(run("list"), format!("Permissions on {place}:\n  {id} - write\n"));
        let object = alice.json(&format!("permission {prefix}list"));
        assert_eq!(
            object["permissions"],
            serde_json::json!([{"principal_id": id, "principal_name": "robot", "role": "write"}])
        );
        assert_eq!(
            run(&format!("remove --principal {id}")),
            format!("Principal {id} no longer has a permission on {place}\n")
        );
        let stderr = alice.fails(&format!("permission {prefix}get --principal {id}"), 1);
        assert!(stderr.contains("(NotFound)"), "{stderr}");
    }
}
