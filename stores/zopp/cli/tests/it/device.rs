//! The verbs that need no server.

use std::{collections::BTreeSet, fs, os::unix::fs::PermissionsExt, path::Path};

use serde_json::{Value, json};

use crate::home::Home;

fn home() -> Home {
    let home = Home::new();
    let principal = |id: &str, name: &str, email: Value| {
        json!({"id": id, "name": name, "user_id": email.as_str().map(|_| "u1"), "email": email, "private_key": "aa",
               "public_key": "bb", "x25519_private_key": null, "x25519_public_key": null})
    };
    let config = json!({
        "principals": [principal("1", "laptop", json!("a@b.c")), principal("2", "robot", Value::Null)],
        "current_principal": "laptop",
        "later": true,
    });
    home.write(".zopp/config.json", config.to_string());
    home
}

#[test]
fn list_and_current() {
    let home = home();
    assert_eq!(
        home.ok("principal list"),
        "Principals:\n* laptop (ID: 1, User: a@b.c)\n  robot (ID: 2, User: service principal)\n"
    );
    assert_eq!(home.ok("principal current"), "laptop\n");
    assert_eq!(
        home.json("principal list"),
        json!({"principals": [
            {"id": "1", "name": "laptop", "current": true, "email": "a@b.c", "user_id": "u1"},
            {"id": "2", "name": "robot", "current": false, "email": null, "user_id": null},
        ]})
    );
    assert_eq!(home.json("principal current")["id"], "1");
}

/// `ZOPP_TLS_CA_CERT=` in a script counts as unset.
#[test]
fn every_variable_may_be_empty() {
    let mut variables = BTreeSet::from(["ZOPP_WORKSPACE", "ZOPP_PROJECT", "ZOPP_ENVIRONMENT"].map(str::to_owned));
    let mut commands = vec![konverge_zopp_cli::arguments::command()];
    while let Some(command) = commands.pop() {
        let names = command.get_arguments().filter_map(|argument| argument.get_env()?.to_str());
        variables.extend(names.map(str::to_owned));
        commands.extend(command.get_subcommands().cloned());
    }
    assert!(variables.contains("ZOPP_TLS_CA_CERT") && variables.contains("ZOPP_SERVER"), "{variables:?}");
    let home = home();
    let mut empty = home.with_program(Path::new(env!("CARGO_BIN_EXE_zopp")));
    for variable in &variables {
        empty.set(variable, "");
    }
    for line in ["principal list", "whoami"] {
        let (expected, ended) = (home.run(line), empty.run(line));
        assert_eq!(
            (ended.code, &ended.stdout, &ended.stderr),
            (expected.code, &expected.stdout, &expected.stderr),
            "{line}"
        );
    }
}

#[test]
fn an_empty_device_has_none() {
    let home = Home::new();
    assert_eq!(home.ok("principal list"), "No principals found\n");
    assert_eq!(home.json("principal list"), json!({"principals": []}));
}

#[test]
fn use_switches_and_keeps_everything_else() {
    let home = home();
    assert_eq!(home.ok("principal use robot"), "Now using principal 'robot'\n");
    assert_eq!(home.ok("principal current"), "robot\n");
    let config: Value = serde_json::from_slice(&fs::read(home.config_file()).unwrap()).unwrap();
    assert_eq!((&config["later"], &config["user_id"], &config["email"]), (&json!(true), &json!(""), &json!("")));
    assert_eq!(fs::metadata(home.config_file()).unwrap().permissions().mode() & 0o777, 0o600);
    for line in ["principal use tablet", "principal fingerprint tablet", "principal delete tablet"] {
        assert_eq!(
            home.fails(line, 1),
            "Error: principal 'tablet' not found on this device\n  It has: laptop, robot.\n",
            "{line}"
        );
    }
}

#[test]
fn delete_forgets_all_but_the_last() {
    let home = home();
    assert_eq!(
        home.ok("principal delete laptop"),
        "Principal 'laptop' deleted from this device; now using 'robot'\nThe server still accepts its keys, wherever \
         they are: zopp principal disable --principal 1\n"
    );
    assert_eq!(home.ok("principal list"), "Principals:\n* robot (ID: 2, User: service principal)\n");
    let stderr = home.fails("principal delete robot", 1);
    assert!(stderr.starts_with("Error: 'robot' is the only principal of this device"), "{stderr}");
    assert_eq!(home.ok("principal current"), "robot\n");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let home = home();
    let mut child = home.command("principal list").stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}
