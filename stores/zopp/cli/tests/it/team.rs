//! A team at work: groups, roles of users, what is on record, and a principal that moves to another device.

use std::fs;

use serde_json::Value;

use crate::{
    home::Home,
    world::{World, normalise},
};

/// Bob, who joined `acme` by an invite and has no role.
fn bob(world: &World) -> Home {
    let code = world.alice.ok("invite create --plain");
    let bob = world.other_home();
    bob.ok(&format!("join {} bob@example.com --principal phone", code.trim()));
    bob
}

#[test]
fn a_user_gets_a_role_and_loses_it() {
    let world = World::new();
    let (alice, bob) = (&world.alice, bob(&world));
    alice.ok("secret set K v");
    assert!(bob.fails("secret get K", 1).contains("(PermissionDenied)"));
    assert_eq!(
        alice.ok("permission user-set --email Bob@Example.com --role READ"),
        "User Bob@Example.com now has read permission on workspace acme\n"
    );
    assert_eq!(bob.ok("secret get K"), "v\n");
    assert_eq!(
        alice.ok("permission user-get --email bob@example.com"),
        "User bob@example.com has read permission on workspace acme\n"
    );
    assert_eq!(alice.ok("permission user-list"), "User permissions on workspace acme:\n  bob@example.com - read\n");
    alice.ok("permission user-project-set --email bob@example.com --role write");
    assert_eq!(
        alice.ok("permission user-project-get --email bob@example.com"),
        "User bob@example.com has write permission on project acme/backend\n"
    );
    alice.ok("permission user-env-set --email bob@example.com --role admin");
    let listed = alice.json("permission user-env-list");
    assert_eq!(
        (&listed["environment"], &listed["permissions"][0]["user_email"]),
        (&"dev".into(), &"bob@example.com".into())
    );
    assert_eq!(listed["permissions"][0]["role"], "admin");
    bob.ok("secret set K w");
    for verb in ["user-remove", "user-project-remove", "user-env-remove"] {
        let text = alice.ok(&format!("permission {verb} --email bob@example.com"));
        assert!(text.starts_with("User bob@example.com no longer has a permission on "), "{text}");
    }
    assert!(bob.fails("secret get K", 1).contains("(PermissionDenied)"));
    assert_eq!(alice.ok("permission user-list"), "No user permissions found on workspace acme\n");
    let stderr = alice.fails("permission user-get --email bob@example.com", 1);
    assert!(stderr.contains("(NotFound)"), "{stderr}");
}

#[test]
fn a_user_outside_the_workspace_is_named_on_purpose_only() {
    let world = World::new();
    let carol = world.server.home();
    carol.ok(&format!("join {} carol@example.com --principal phone", world.server.invite()));
    let stderr = world.alice.fails("permission user-set --email carol@example.com --role read", 1);
    assert!(stderr.ends_with("Invite the user with zopp invite create, or add --allow-non-member.\n"), "{stderr}");
    world.alice.ok("permission user-set --email carol@example.com --role read --allow-non-member");
}

#[test]
fn a_group_and_its_roles() {
    let world = World::new();
    let (alice, bob) = (&world.alice, bob(&world));
    assert_eq!(alice.ok("group list"), "No groups found\n");
    let created = alice.command("group create ops").args(["-d", "on call"]).output().unwrap();
    assert_eq!(
        normalise(&String::from_utf8(created.stdout).unwrap()),
        "Group 'ops' created (ID: <uuid>)\nDescription: on call\n"
    );
    alice.ok("group create dev");
    assert_eq!(alice.ok("group list"), "Groups:\n  dev\n  ops - on call\n");
    assert_eq!(alice.ok("group list-members -g ops"), "Group 'ops' has no members\n");
    assert_eq!(alice.ok("group add-member bob@example.com -g ops"), "Added bob@example.com to group 'ops'\n");
    assert_eq!(alice.ok("group list-members -g ops"), "Members of group 'ops':\n  bob@example.com\n");
    assert_eq!(alice.json("group list-members -g ops")["members"][0]["user_email"], "bob@example.com");

    for (level, place) in
        [("", "workspace acme"), ("-project", "project acme/backend"), ("-env", "environment acme/backend/dev")]
    {
        assert_eq!(
            alice.ok(&format!("group set{level}-permission -g ops --role write")),
            format!("Group ops now has write permission on {place}\n")
        );
        assert_eq!(
            alice.ok(&format!("group get{level}-permission -g ops")),
            format!("Group ops has write permission on {place}\n")
        );
        assert_eq!(
            alice.ok(&format!("group list{level}-permissions")),
            format!("Group permissions on {place}:\n  ops - write\n")
        );
        bob.ok("secret set K v");
        assert_eq!(
            alice.ok(&format!("group remove{level}-permission -g ops")),
            format!("Group ops no longer has a permission on {place}\n")
        );
        assert!(bob.fails("secret set K v", 1).contains("(PermissionDenied)"));
    }

    // A new name leaves the description, a new description the name.
    let renamed = alice.json("group update ops --new-name sre");
    assert_eq!((&renamed["name"], &renamed["description"]), (&"sre".into(), &"on call".into()));
    let described = alice.json("group update sre -d nights");
    assert_eq!((&described["name"], &described["description"]), (&"sre".into(), &"nights".into()));
    alice.fails("group update sre", 2);
    assert_eq!(alice.ok("group remove-member bob@example.com -g sre"), "Removed bob@example.com from group 'sre'\n");
    assert_eq!(alice.ok("group delete sre"), "Group 'sre' deleted\n");
    let stderr = alice.fails("group delete sre", 1);
    assert!(stderr.contains("(NotFound)") && stderr.ends_with("See what there is: zopp group list.\n"), "{stderr}");
    let stderr = bob.fails("group create mine", 1);
    assert!(stderr.contains("(PermissionDenied)"), "{stderr}");
}

#[test]
fn effective_roles_are_shown_place_by_place() {
    let world = World::new();
    let alice = &world.alice;
    let (id, _) = world.robot("robot");
    let head = "Effective permissions of service principal robot (ID: <uuid>):\n";
    let show = || normalise(&alice.ok(&format!("permission effective --principal {id}")));
    assert_eq!(show(), format!("{head}  Workspace: none\n"));
    alice.ok(&format!("permission env-set --principal {id} --role write"));
    assert_eq!(
        show(),
        format!("{head}  Workspace: none\n  Project 'backend': none\n    Environment 'backend/dev': write\n")
    );
    alice.ok(&format!("permission set --principal {id} --role read"));
    assert_eq!(
        show(),
        format!("{head}  Workspace: read\n  Project 'backend': read\n    Environment 'backend/dev': write\n")
    );
    let object = alice.json(&format!("permission effective --principal {id}"));
    assert_eq!((&object["role"], &object["service"]), (&"read".into(), &Value::Bool(true)));
    assert_eq!(object["projects"][0]["environments"][0]["role"], "write");
}

#[test]
fn the_audit_log_is_read_and_exported() {
    let world = World::new();
    let alice = &world.alice;
    alice.ok("secret set K v");
    alice.ok("secret get K");
    let text = alice.ok("audit list --action secret.create");
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "Audit log of workspace acme (1 of 1 entries):");
    assert!(lines[2].starts_with("ID: ") && lines[3].starts_with("Timestamp: "), "{text}");
    assert_eq!(lines[5..], ["Action: secret.create", "Resource: secret K", "Result: success"], "{text}");
    assert_eq!(
        alice.ok("audit list --action workspace.transfer_ownership"),
        "No audit log entries found in workspace acme\n"
    );
    let listed = alice.json("audit list --limit 2");
    assert_eq!(listed["entries"].as_array().unwrap().len(), 2);
    let id = alice.json("audit list --action secret.create")["entries"][0]["id"].as_str().unwrap().to_owned();
    let entry = alice.ok(&format!("audit get {id}"));
    assert!(entry.starts_with(&format!("ID:             {id}\nTimestamp:      ")), "{entry}");
    assert!(entry.contains("\nAction:         secret.create\n"), "{entry}");
    assert_eq!(alice.ok("audit count --action secret.create --result success"), "Total audit log entries: 1\n");
    let stderr = alice.fails("audit list --action nonsense", 1);
    assert!(stderr.contains("(InvalidArgument)"), "{stderr}");

    // Oldest first, each line after the one before it.
    let text = alice.ok("audit export -o log.jsonl --hash-chain");
    assert!(text.starts_with("Exported ") && text.contains("\nHash of the last line: "), "{text}");
    let exported = fs::read_to_string(alice.path("log.jsonl")).unwrap();
    let entries: Vec<Value> = exported.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(entries[0]["action"], "workspace.create");
    let times: Vec<_> = entries.iter().map(|entry| entry["timestamp"].as_str().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
    let verified = alice.ok("audit verify log.jsonl");
    assert!(verified.starts_with(&format!("{} lines follow each other\n", entries.len())), "{verified}");
    assert_eq!(verified.lines().last(), text.lines().last(), "the same hash");
    alice.fails("audit export -o log.jsonl", 1);

    // A line that was changed, one that is missing.
    let mut lines: Vec<_> = exported.lines().map(str::to_owned).collect();
    let changed = exported.replacen("workspace.create", "workspace.delete", 1);
    alice.write("changed.jsonl", changed);
    assert!(alice.fails("audit verify changed.jsonl", 1).contains("line 2 does not follow"));
    lines.remove(1);
    alice.write("missing.jsonl", lines.join("\n"));
    assert!(alice.fails("audit verify missing.jsonl", 1).contains("line 2 does not follow"));

    // To standard output, without a chain: nothing but lines.
    let printed = alice.ok("--output json audit export --action secret.create");
    assert_eq!(printed.lines().count(), 1);
    let line: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((&line["resource_id"], line.get("previous_hash")), (&"K".into(), None));

    let bob = bob(&world);
    let stderr = bob.fails("audit list", 1);
    assert!(stderr.ends_with("Ask the owner or an admin of workspace 'acme' for the admin role.\n"), "{stderr}");
}

#[test]
fn a_principal_moves_to_another_device() {
    let world = World::new();
    let alice = &world.alice;
    alice.ok("secret set K v");
    let text = alice.ok("principal export laptop --expires-hours 1");
    let lines: Vec<_> = text.lines().collect();
    let (code, words) = (lines[3].trim(), lines[6]);
    assert!(lines[3].starts_with("  exp_") && code.len() == "exp_ab12cd34-k7m2-q9xw-0h3d-7pte".len(), "{text}");
    assert_eq!(words.split(' ').count(), 6, "{text}");

    let mut tablet = world.other_home();
    assert_eq!(tablet.run("principal import").code, 2, "neither given nor to be asked for");
    tablet.set("ZOPP_EXPORT_CODE", code);
    tablet.set("ZOPP_EXPORT_PASSPHRASE", "not the right words at all");
    let stderr = tablet.fails("principal import", 1);
    assert!(stderr.contains("2 attempts are left") && stderr.contains("Check the code and the passphrase"), "{stderr}");
    tablet.set("ZOPP_EXPORT_PASSPHRASE", words);
    assert_eq!(
        normalise(&tablet.ok("principal import")),
        "Imported principal 'laptop' (ID: <uuid>, User: alice@example.com)\n"
    );
    assert_eq!(tablet.ok("secret get K"), "v\n");
    assert_eq!(tablet.ok("principal current"), "laptop\n");
    let stderr = tablet.fails("principal import", 1);
    assert!(stderr.contains("(NotFound)"), "an export is imported once: {stderr}");
}

#[test]
fn an_imported_name_that_is_taken_gets_a_suffix_and_the_same_principal_is_refused() {
    let world = World::new();
    let mut tablet = world.server.home();
    for email in ["one@example.com", "two@example.com"] {
        let mut other = world.server.home();
        other.ok(&format!("join {} {email} --principal laptop", world.server.invite()));
        other.set("ZOPP_EXPORT_PASSPHRASE", "six words that nobody else knows");
        let exported = other.json("principal export laptop");
        assert_eq!(exported["passphrase"], "six words that nobody else knows");
        tablet.set("ZOPP_EXPORT_PASSPHRASE", "six words that nobody else knows");
        tablet.set("ZOPP_EXPORT_CODE", exported["code"].as_str().unwrap());
        tablet.ok("principal import");
        let again = other.json("principal export laptop");
        tablet.set("ZOPP_EXPORT_CODE", again["code"].as_str().unwrap());
        let stderr = tablet.fails("principal import", 1);
        assert!(stderr.starts_with("Error: this device has the principal already"), "{stderr}");
    }
    assert_eq!(
        normalise(&tablet.ok("principal list")),
        "Principals:\n* laptop (ID: <uuid>, User: one@example.com)\n  laptop-imported (ID: <uuid>, User: two@example.com)\n"
    );
}

#[test]
fn a_service_is_exported_by_its_person() {
    let world = World::new();
    world.alice.ok("secret set K v");
    let (id, robot) = world.robot("robot");
    world.alice.ok(&format!("permission set --principal {id} --role read"));
    let stderr = robot.fails("principal export robot", 1);
    assert!(stderr.contains("(PermissionDenied)"), "{stderr}");
    let exported = world.alice.json("principal export robot");
    let mut other = world.other_home();
    other.set("ZOPP_EXPORT_CODE", exported["code"].as_str().unwrap());
    other.set("ZOPP_EXPORT_PASSPHRASE", exported["passphrase"].as_str().unwrap());
    assert_eq!(
        normalise(&other.ok("principal import")),
        "Imported principal 'robot' (ID: <uuid>, User: service principal)\n"
    );
    assert_eq!(other.ok("secret get K"), "v\n");
}
