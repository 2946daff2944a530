//! Private keys in the configuration file: encrypted on request, and a warning where others can read them.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::Value;

use crate::{home::Home, lying_server::config, world::World};

const WORDS: &str = "six words that nobody else knows";

/// The private keys in the file of a home.
fn keys(home: &Home) -> Vec<String> {
    let config = config(home);
    let text = |key: &Value| key.as_str().unwrap().to_owned();
    let of = |one: &Value| [text(&one["private_key"]), text(&one["x25519_private_key"])];
    config["principals"].as_array().unwrap().iter().flat_map(of).collect()
}

#[test]
fn a_change_of_this_device_alone_needs_no_passphrase() {
    let mut world = World::new();
    world.alice.set("ZOPP_KEY_PASSPHRASE", WORDS);
    world.alice.ok("principal encrypt-keys");
    world.alice.set("ZOPP_KEY_PASSPHRASE", "");
    assert!(world.alice.fails("environment get dev", 2).contains("passphrase"), "it needs the keys");
    let text = world.alice.ok("environment allow dev");
    assert!(text.contains("run and export may use environment acme/backend/dev"), "{text}");
}

#[test]
fn private_keys_are_encrypted_with_a_passphrase_on_request() {
    let mut world = World::new();
    world.alice.ok("secret set K v");
    let before = keys(&world.alice);
    assert_eq!(world.alice.run("principal encrypt-keys").code, 2, "nobody to ask");
    for weak in ["secret", "password1234"] {
        world.alice.set("ZOPP_KEY_PASSPHRASE", weak);
        let stderr = world.alice.fails("principal encrypt-keys", 2);
        assert!(stderr.contains("is weak") && !stderr.contains(weak), "{stderr}");
    }
    assert_eq!(keys(&world.alice), before);
    world.alice.set("ZOPP_KEY_PASSPHRASE", WORDS);
    let text = world.alice.ok("principal encrypt-keys");
    assert!(text.contains("ZOPP_KEY_PASSPHRASE"), "{text}");
    assert!(world.alice.fails("principal encrypt-keys", 1).contains("encrypted already"));
    let file = fs::read_to_string(world.alice.config_file()).unwrap();
    assert!(
        before.iter().all(|key| !file.contains(key)) && keys(&world.alice).iter().all(|key| key.starts_with("sealed:"))
    );

    // Every command that reads or adds keys.
    assert_eq!(world.alice.ok("secret get K"), "v\n");
    assert_eq!(world.alice.ok("run -- printenv K"), "v\n");
    assert_ne!(world.alice.run("run -- printenv ZOPP_KEY_PASSPHRASE").code, 0, "the command does not get it");
    world.alice.ok("principal create tablet");
    world.alice.set("ZOPP_WORKSPACE", "");
    world.alice.ok("principal create service --service");
    let code = world.alice.ok("invite create -w acme --plain");
    world.alice.set("ZOPP_WORKSPACE", "acme");
    world.alice.ok(&format!("join {} service@localhost --principal service", code.trim()));
    world.alice.ok(&format!("join {} other@example.com --principal work", world.server.invite()));
    world.alice.ok("principal use laptop");
    world.alice.ok("principal rename laptop desktop");
    world.alice.ok("principal fingerprint");
    assert!(keys(&world.alice).len() == 8 && keys(&world.alice).iter().all(|key| key.starts_with("sealed:")));
    let exported = world.alice.json("principal export desktop");
    let mut other = world.other_home();
    other.set("ZOPP_EXPORT_CODE", exported["code"].as_str().unwrap());
    other.set("ZOPP_EXPORT_PASSPHRASE", exported["passphrase"].as_str().unwrap());
    other.ok("principal import");
    assert_eq!(keys(&other), before);

    // Only commands that need no key work without the passphrase.
    world.alice.set("ZOPP_KEY_PASSPHRASE", "");
    world.alice.ok("principal list");
    for line in ["secret get K", "principal export desktop", "principal decrypt-keys", "principal create x"] {
        let stderr = world.alice.fails(line, 2);
        assert!(stderr.contains("ZOPP_KEY_PASSPHRASE"), "{line}: {stderr}");
    }
    let server_invite = world.server.invite();
    let join = format!("join {server_invite} more@example.com --principal more");
    assert_eq!(world.alice.run(&join).code, 2);
    world.alice.set("ZOPP_KEY_PASSPHRASE", "another passphrase of this person");
    assert!(world.alice.fails("secret get K", 1).contains("Is the passphrase right?"));
    world.alice.set("ZOPP_KEY_PASSPHRASE", WORDS);
    world.alice.ok(&join);
    world.alice.ok("principal decrypt-keys");
    assert_eq!(keys(&world.alice)[..2], before);
    world.alice.set("ZOPP_KEY_PASSPHRASE", "");
    world.alice.ok("principal use desktop");
    assert_eq!(world.alice.ok("secret get K"), "v\n");
}

#[test]
fn a_file_that_others_can_read_is_warned_of_and_refused_on_request() {
    let world = World::new();
    let alice = &world.alice;
    let mode = |mode| fs::set_permissions(alice.config_file(), fs::Permissions::from_mode(mode)).unwrap();
    assert_eq!(alice.run("--strict workspace list").stderr, "");
    for open in [0o644, 0o640, 0o606] {
        mode(open);
        let warned = alice.run("workspace list");
        assert!(warned.code == 0 && warned.stderr.contains(&format!("(mode {open:04o})")), "{}", warned.stderr);
        for line in ["--strict workspace list", "principal list --strict", "secret get K --strict"] {
            let stderr = alice.fails(line, 1);
            assert!(stderr.contains("--strict refuses") && stderr.contains("chmod 600"), "{line}: {stderr}");
        }
    }
    mode(0o600);
    alice.ok("--strict principal list");
    // Another user who can write the folder replaces the file.
    let file = alice.config_file();
    let folder = file.parent().unwrap();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
    let warned = alice.run("workspace list");
    assert!(warned.code == 0 && warned.stderr.contains("can be written by every user"), "{}", warned.stderr);
    let stderr = alice.fails("--strict workspace list", 1);
    assert!(stderr.contains("--strict refuses") && stderr.contains("chmod go-w "), "{stderr}");
}
