//! Permissions of devices, other people and services.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::Value;

use crate::world::{World, normalise};

fn file(path: impl AsRef<std::path::Path>) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn c1_joining_again_keeps_other_identities() {
    let World { alice, server } = World::with_alice();
    let stderr = alice.fails(&format!("join {} other@example.com --principal laptop", server.invite()), 1);
    assert!(stderr.starts_with("Error: this device already has a principal named 'laptop'\n"), "{stderr}");
    alice.ok(&format!("join {} other@example.com --principal work", server.invite()));
    let list = alice.ok("principal list");
    assert_eq!(
        normalise(&list),
        "Principals:\n  laptop (ID: <uuid>, User: alice@example.com)\n* work (ID: <uuid>, User: other@example.com)\n"
    );
    let config = file(alice.config_file());
    assert_eq!((&config["current_principal"], &config["email"]), (&"work".into(), &"other@example.com".into()));
    assert_eq!(fs::metadata(alice.config_file()).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_user_who_joins_another_workspace_stays_the_same_user() {
    let world = World::new();
    let bob = world.server.home();
    bob.ok(&format!("join {} bob@example.com --principal phone", world.server.invite()));
    bob.ok("workspace create private");
    let code = world.alice.ok("invite create --plain --uses 2");
    bob.ok(&format!("join {} Bob@Example.com --principal work", code.trim()));
    let mut workspaces: Vec<_> = bob.ok("workspace list").lines().skip(1).map(str::to_owned).collect();
    workspaces.sort();
    assert_eq!(workspaces, ["  acme", "  private"]);

    let thief = world.server.home();
    let stderr = thief.fails(&format!("join {} bob@example.com --principal mine", code.trim()), 1);
    assert!(stderr.starts_with("Error: cannot join: "), "an address alone opens nobody's account: {stderr}");
}

/// The four lines of the published operator's documentation, as a shell runs them.
#[test]
fn the_setup_of_the_published_operator_works_as_printed() {
    let mut world = World::new();
    world.alice.ok("secret set K v");
    // Without a default workspace, as for somebody who follows the documentation.
    for name in ["WORKSPACE", "PROJECT", "ENVIRONMENT"] {
        world.alice.set(&format!("ZOPP_{name}"), "");
    }
    assert!(world.alice.ok("principal create k8s-operator --service").contains("created on this device"));
    let early = world.alice.fails("principal use k8s-operator", 1);
    assert!(early.contains("has not joined a workspace yet") && early.contains("zopp join"), "{early}");
    let code = world.alice.ok("invite create --workspace acme --plain");
    let server_invite = world.server.invite();
    let join = |code: &str| format!("join {code} k8s-operator@acme.com --principal k8s-operator");
    assert!(world.alice.fails(&join(&server_invite), 2).contains("is a service"), "a user is not made of it");
    let said = world.alice.ok(&join(code.trim()));
    assert!(said.contains("k8s-operator (service)") && said.contains("Role:         read"), "{said}");
    assert_eq!(world.alice.ok("principal current"), "laptop\n");
    world.alice.ok("principal use k8s-operator");

    let place = "-w acme -p backend -e dev";
    assert_eq!(world.alice.ok(&format!("secret get K {place}")), "v\n");
    let refused = world.alice.fails(&format!("secret set K w {place}"), 1);
    assert!(refused.contains("(PermissionDenied)"), "{refused}");
    world.alice.fails("project create other -w acme", 1);
    let list = normalise(&world.alice.ok("principal list"));
    assert!(list.contains("* k8s-operator (ID: <uuid>, User: service principal)\n"), "{list}");
    let config = file(world.alice.config_file());
    assert_eq!(config["principals"][1].get("pending_service"), None);
    world.alice.ok("principal use laptop");
    let services = world.alice.ok("principal service-list -w acme");
    assert!(services.contains("k8s-operator"), "{services}");
}

#[test]
fn a_second_device_reads_the_same_secrets() {
    let World { alice, server: _server } = World::new();
    alice.ok("secret set K v");
    assert_eq!(
        normalise(&alice.ok("principal create tablet")),
        "Principal 'tablet' created (ID: <uuid>)\n  Granted access to workspace acme\n"
    );
    alice.ok("principal use tablet");
    assert_eq!(alice.ok("secret get K"), "v\n");
    assert_eq!(alice.ok("principal rename tablet slate"), "Principal 'tablet' renamed to 'slate'\n");
    assert_eq!(alice.ok("principal current"), "slate\n");
    assert_eq!(alice.ok("secret get K"), "v\n");
}

#[test]
fn somebody_without_a_role_is_told_whom_to_ask() {
    let world = World::new();
    world.alice.ok("secret set K v");
    let code = world.alice.ok("invite create --plain");
    let bob = world.other_home();
    bob.ok(&format!("join {} bob@example.com --principal phone", code.trim()));
    let stderr = bob.fails("secret get K", 1);
    assert!(stderr.contains("(PermissionDenied)"), "{stderr}");
    assert!(stderr.ends_with("\n  Ask the owner or an admin of workspace 'acme' for the read role.\n"), "{stderr}");
}

#[test]
fn a_service_is_told_the_command_that_helps_and_it_does() {
    let world = World::new();
    world.alice.ok("secret set K v");
    let (id, robot) = world.robot("robot");
    let stderr = robot.fails("secret get K", 1);
    let command =
        stderr.lines().last().unwrap().trim().strip_prefix("An admin can grant it: zopp ").unwrap().to_owned();
    assert_eq!(command, format!("permission env-set -w acme -p backend -e dev --principal {id} --role read"));
    world.alice.ok(&command);
    assert_eq!(robot.ok("secret get K"), "v\n");
    let stderr = robot.fails("secret set K w", 1);
    assert!(stderr.contains("(PermissionDenied)") && stderr.contains("--role write"), "{stderr}");
}

#[test]
fn a_credentials_file_holds_one_principal_for_its_owner_only() {
    let world = World::new();
    let alice = &world.alice;
    let text = alice.ok("principal create operator --service --credentials-file operator.json");
    let id = text.split("(ID: ").nth(1).unwrap().split(')').next().unwrap().to_owned();
    assert_eq!(
        normalise(&text),
        "Service principal 'operator' created (ID: <uuid>)\nWorkspace: acme\nIt has no role yet: zopp permission set -w acme \
         --principal <uuid> --role read\nCredentials saved to operator.json\n"
    );
    let path = alice.path("operator.json");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let content = file(&path);
    assert_eq!(content["principals"].as_array().unwrap().len(), 1);
    assert_eq!(content["principals"][0]["id"], id.as_str());
    assert_eq!(content["current_principal"], "operator");
    assert_eq!(file(alice.config_file())["current_principal"], "laptop", "Alice stays herself");
}

#[test]
fn c6_a_service_has_no_devices() {
    let world = World::new();
    let (_, robot) = world.robot("robot");
    let stderr = robot.fails("principal create phone", 1);
    assert!(stderr.starts_with("Error: the current principal 'robot' is a service"), "{stderr}");
}

#[test]
fn services_are_listed_and_cut_off() {
    let world = World::new();
    let alice = &world.alice;
    assert_eq!(alice.ok("principal service-list"), "No service principals found in workspace acme\n");
    let (id, robot) = world.robot("robot");
    alice.ok("secret set K v");
    let listed = "Service principals in workspace acme:\n\n  robot (ID: <uuid>)\n    Created: <time>\n    Permissions:";
    assert_eq!(normalise(&alice.ok("principal service-list")), format!("{listed} none\n"));
    alice.ok(&format!("permission project-set --principal {id} --role read"));
    alice.ok(&format!("permission env-set --principal {id} --role write"));
    let text = normalise(&alice.ok("principal service-list"));
    assert!(text.starts_with(listed), "{text}");
    assert!(
        text.contains("\n      project:backend -> read\n") || text.ends_with("      project:backend -> read\n"),
        "{text}"
    );
    assert!(text.contains("      environment:backend/dev -> write\n"), "{text}");
    let object = alice.json("principal service-list");
    assert_eq!(object["service_principals"][0]["permissions"].as_array().unwrap().len(), 2);
    assert_eq!(robot.ok("secret get K"), "v\n");

    assert_eq!(
        alice.ok(&format!("principal revoke-all --principal {id}")),
        format!("Revoked 2 permissions of principal {id} in workspace acme\n")
    );
    assert!(robot.fails("secret get K", 1).contains("(PermissionDenied)"));
    assert_eq!(
        alice.ok(&format!("principal workspace-remove --principal {id}")),
        format!("Principal {id} removed from workspace acme\n")
    );
    assert!(robot.fails("secret get K", 1).contains("(NotFound)"));
}

#[test]
fn a_key_handed_over_opens_another_workspace() {
    let world = World::new();
    let alice = &world.alice;
    let (id, robot) = world.robot("robot");
    alice.ok("workspace create other");
    alice.ok("project create backend -w other");
    alice.ok("environment create dev -w other");
    alice.ok("secret set K v -w other");
    assert!(robot.fails("secret get K -w other", 1).contains("(NotFound)"));
    assert_eq!(
        alice.ok(&format!("workspace grant-principal-access -w other -p {id}")),
        "Granted principal 'robot' access to workspace 'other'\n"
    );
    alice.ok(&format!("permission set -w other --principal {id} --role read"));
    assert_eq!(robot.ok("secret get K -w other"), "v\n");
}

#[test]
fn the_owner_deletes_a_workspace_on_purpose_only() {
    let world = World::new();
    world.alice.ok("secret set A 1");
    let stderr = world.alice.fails("workspace delete acme", 1);
    assert!(stderr.contains("1 environments") && stderr.contains("--even-if-not-empty"), "{stderr}");
    assert_eq!(world.alice.ok("secret get A"), "1\n");
    let deleted = world.alice.json("workspace delete acme --even-if-not-empty");
    assert_eq!(deleted["environments_deleted"], 1);
    assert!(world.alice.fails("secret get A", 1).contains("(NotFound)"));
    // The name is free, and what this device knew of the former one is no hindrance.
    world.alice.ok("workspace create acme");
    world.alice.ok("project create backend -w acme");
    world.alice.ok("environment create dev -w acme -p backend");
    world.alice.ok("secret set B 2");
    assert_eq!(world.alice.ok("secret export"), "B=2\n");
}
