//! Gaining and losing an identity at the command line.

use std::{fs, os::unix::fs::PermissionsExt, process::Stdio};

use serde_json::Value;

use crate::{
    home::Home,
    world::{World, normalise},
};

fn principals(home: &Home) -> Vec<String> {
    let content: Value = serde_json::from_slice(&fs::read(home.config_file()).unwrap()).unwrap();
    let names = content["principals"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

fn id_of(home: &Home, name: &str) -> String {
    let list = home.json("principal list");
    let found = list["principals"].as_array().unwrap().iter().find(|one| one["name"] == name).unwrap();
    found["id"].as_str().unwrap().to_owned()
}

#[test]
fn commands_at_the_same_time_lose_no_keys_of_each_other() {
    let World { alice, server } = World::new();
    let at_once = |lines: &[String]| {
        let start = |line: &String| alice.command(line).stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let running: Vec<_> = lines.iter().map(start).collect();
        for mut child in running {
            assert!(child.wait().unwrap().success());
        }
    };
    let mut lines: Vec<_> = (0..4).map(|number| format!("principal create service{number} --service")).collect();
    lines.extend((0..3).map(|number| format!("principal create device{number}")));
    lines.push("principal use laptop".to_owned());
    at_once(&lines);
    let join = |number| format!("join {} other{number}@example.com --principal joined{number}", server.invite());
    at_once(&(0..3).map(join).collect::<Vec<_>>());
    let expected = [
        "device0", "device1", "device2", "joined0", "joined1", "joined2", "laptop", "service0", "service1", "service2",
        "service3",
    ];
    assert_eq!(principals(&alice), expected, "the server knows all of them");
    let lock = fs::metadata(alice.path(".zopp/config.json.lock")).unwrap();
    assert_eq!(lock.permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_mistyped_address_or_name_uses_no_invite_up() {
    let world = World::new();
    let code = world.alice.ok("invite create --plain");
    let home = world.server.home();
    for email in ["bob", "bob@", "@example.com", "bob@exam\u{7}ple.com"] {
        let stderr = home.fails(&format!("join {} {email} --principal phone", code.trim()), 2);
        assert!(stderr.contains("is not an e-mail address") && stderr.contains("was not used"), "{email}: {stderr}");
    }
    for name in ["a:b", "a/b"] {
        let stderr = home.fails(&format!("join {} bob@example.com --principal {name}", code.trim()), 2);
        assert!(stderr.contains("is not a name for a principal"), "{name}: {stderr}");
    }
    home.ok(&format!("join {} bob@example.com --principal phone", code.trim()));
}

#[test]
fn an_invite_need_not_stand_on_the_command_line() {
    let world = World::new();
    let code = || world.alice.ok("invite create --plain");
    let by_stdin = world.server.home();
    by_stdin.ok_with_stdin("join - bob@example.com --principal phone", code().as_bytes());
    let piped = world.server.home();
    piped.ok_with_stdin("join carol@example.com --principal phone", code().as_bytes());
    let by_file = world.server.home();
    by_file.write("invite.txt", code());
    by_file.ok("join --invite-file invite.txt dave@example.com --principal phone");
    for home in [by_stdin, piped, by_file] {
        assert_eq!(home.ok("workspace list"), "Workspaces:\n  acme\n");
    }
    let home = world.server.home();
    assert!(home.fails("join nonsense --principal x", 2).contains("e-mail address is missing"));
    assert!(home.fails("join --invite-file gone.txt e@example.com --principal x", 1).contains("gone.txt"));
    assert!(home.fails("join inv_a e@example.com --invite-file invite.txt --principal x", 2).contains("twice"));
    let stderr = home.run_with_stdin("join - e@example.com --principal x", b"\n").failed("join", 2);
    assert!(stderr.contains("no invite"), "{stderr}");

    for number in 0..3 {
        let code = code();
        match number {
            0 => drop(world.alice.ok_with_stdin("invite revoke -", code.as_bytes())),
            1 => drop(world.alice.ok_with_stdin("invite revoke", code.as_bytes())),
            _ => {
                world.alice.write("code", &code);
                world.alice.ok("invite revoke --invite-file code");
            }
        }
        let stderr = home.run_with_stdin("join - e@example.com --principal x", code.as_bytes()).failed("join", 1);
        assert!(stderr.contains("(NotFound)"), "{stderr}");
    }
}

#[test]
fn an_invite_is_used_up_and_lists_say_how_far() {
    let world = World::new();
    let code = world.alice.ok("invite create --plain");
    let listed = world.alice.json("invite list")["invites"][0].clone();
    let time = |name: &str| listed[name].as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_second();
    assert_eq!(time("expires_at") - time("created_at"), 24 * 3600);
    assert!(world.alice.ok("invite list").contains("\nUses:    0 of 1\n"), "for one person");
    let bob = world.server.home();
    bob.ok_with_stdin("join - bob@example.com --principal phone", code.as_bytes());
    let listed = world.alice.json("invite list")["invites"][0].clone();
    assert_eq!((&listed["uses"], &listed["max_uses"]), (&1.into(), &1.into()));
    let eve = world.server.home();
    let stderr = eve.run_with_stdin("join - eve@example.com --principal x", code.as_bytes()).failed("join", 1);
    assert!(stderr.contains("used up"), "{stderr}");
    for bad in ["0", "many", "-1"] {
        world.alice.fails(&format!("invite create --plain --uses {bad}"), 2);
    }
    world.alice.ok("invite create --plain --uses unlimited");
    assert!(world.alice.ok("invite list").contains("\nUses:    0\n"), "as many as like");
}

#[test]
fn a_services_keys_need_not_be_in_ones_own_file() {
    let World { alice, server: _server } = World::new();
    let text = alice.ok("principal create operator --service --credentials-file operator.json --credentials-only");
    assert!(text.ends_with("\nCredentials saved to operator.json\n"), "{text}");
    assert_eq!(principals(&alice), ["laptop"]);
    let own = fs::read_to_string(alice.config_file()).unwrap();
    let service: Value = serde_json::from_slice(&fs::read(alice.path("operator.json")).unwrap()).unwrap();
    for key in ["private_key", "x25519_private_key"] {
        assert!(!own.contains(service["principals"][0][key].as_str().unwrap()), "{key}");
    }
    // Should the file not be writable in the end, the keys are not lost.
    alice.write("file", "");
    let stderr = alice.fails("principal create ci --service --credentials-file file/ci.json --credentials-only", 1);
    assert!(stderr.contains("The service principal exists"), "{stderr}");
    assert_eq!(principals(&alice), ["ci", "laptop"]);
    assert!(alice.fails("principal create x --service --credentials-only", 2).contains("--credentials-file"));
}

#[test]
fn a_lost_device_is_disabled_and_enabled() {
    let World { alice, server: _server } = World::new();
    alice.ok("secret set K v");
    alice.ok("principal create tablet");
    let tablet = id_of(&alice, "tablet");
    let text = alice.ok(&format!("principal disable --principal {tablet}"));
    assert!(text.starts_with("Principal 'tablet' disabled: "), "{text}");
    alice.ok("principal use tablet");
    let stderr = alice.fails("secret get K", 1);
    assert!(stderr.contains("(Unauthenticated)") && stderr.contains("disabled"), "{stderr}");
    alice.ok("principal use laptop");
    assert_eq!(alice.ok(&format!("principal enable --principal {tablet}")), "Principal 'tablet' enabled\n");
    alice.ok("principal use tablet");
    assert_eq!(alice.ok("secret get K"), "v\n");
    // The last one with the key takes a second word.
    let laptop = id_of(&alice, "laptop");
    alice.ok(&format!("principal disable --principal {laptop}"));
    let stderr = alice.fails(&format!("principal disable --principal {tablet}"), 1);
    assert!(stderr.ends_with("\n  Add --even-if-last-key to disable it all the same.\n"), "{stderr}");
}

#[test]
fn a_member_is_removed_and_a_workspace_handed_on() {
    let world = World::new();
    let code = world.alice.ok("invite create --plain");
    let bob = world.other_home();
    bob.ok_with_stdin("join - bob@example.com --principal phone", code.as_bytes());
    let stderr = bob.fails("workspace remove-member alice@example.com", 1);
    assert!(stderr.contains("(PermissionDenied)"), "{stderr}");
    assert!(world.alice.fails("workspace remove-member alice@example.com", 1).contains("transfer the ownership first"));
    let stderr = world.alice.fails("workspace remove-member nobody@example.com --keep-keys", 1);
    assert!(stderr.contains("is no member of workspace"), "{stderr}");

    assert_eq!(
        world.alice.ok("workspace transfer bob@example.com"),
        "Workspace 'acme' now belongs to bob@example.com; you stay a member with the admin role\n"
    );
    assert!(world.alice.fails("workspace transfer alice@example.com", 1).contains("only the owner"));
    world.alice.ok("secret set K v");
    bob.ok("secret get K");
    let stderr = bob.fails("user remove bob@example.com", 1);
    assert!(stderr.contains("transfer the ownership first"), "{stderr}");

    let text = bob.ok("workspace remove-member Alice@example.com");
    assert!(text.starts_with("User Alice@example.com removed from workspace 'acme'\nKeys removed:    1\n"), "{text}");
    assert!(world.alice.fails("secret get K", 1).contains("(NotFound)"));
    let text = world.alice.ok("user remove alice@example.com");
    assert!(text.starts_with("User alice@example.com removed from the server\nPrincipals removed: 1\n"), "{text}");
    assert!(world.alice.fails("workspace list", 1).contains("(Unauthenticated)"));
}

#[test]
fn revoking_the_ceilings_of_a_device_tells_what_it_may_now() {
    let world = World::new();
    let code = world.alice.ok("invite create --plain");
    let bob = world.other_home();
    bob.ok_with_stdin("join - bob@example.com --principal phone", code.as_bytes());
    world.alice.ok("workspace transfer bob@example.com");
    // Alice is an admin by her user now; her second device gets a ceiling, and loses it again.
    world.alice.ok("principal create tablet");
    let tablet = id_of(&world.alice, "tablet");
    bob.ok(&format!("permission set --principal {tablet} --role read"));
    let text = bob.ok(&format!("principal revoke-all --principal {tablet}"));
    assert!(
        normalise(&text).starts_with(
            "Revoked 1 permissions of principal <uuid> in workspace acme\nIt is a person's device, and without a ceiling it has its \
             user's role there: admin\n"
        ),
        "{text}"
    );
    let object = bob.json(&format!("principal revoke-all --principal {tablet}"));
    assert_eq!(object["role_afterwards"], "admin");
    bob.ok(&format!("principal workspace-remove --principal {tablet} --keep-keys"));
    world.alice.ok("principal use tablet");
    assert!(world.alice.fails("secret list", 1).contains("(NotFound)"));
}
