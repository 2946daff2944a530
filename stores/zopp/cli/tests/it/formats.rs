//! `--output`, wherever it stands, and the verbs that tell about this device.

use serde_json::{Value, json};

use crate::{
    home::{Home, as_root},
    world::World,
};

#[test]
fn yaml_and_tables_say_what_json_says() {
    let World { alice, server: _server } = World::new();
    alice.ok_with_stdin("secret set GREETING -", b"hello \"you\"\nand you: #1");
    alice.ok("secret set BYTES x");
    alice.ok_with_stdin("secret set BYTES -", &[0xff]);
    for line in [
        "workspace list",
        "project list",
        "environment get dev",
        "secret list",
        "secret get GREETING",
        "secret get BYTES",
        "principal list",
        "audit list -w acme",
        "whoami",
    ] {
        let text = alice.ok(&format!("{line} --output yaml"));
        let yaml: Value = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("zopp {line}: {error}: {text}"));
        // Listing is recorded, so a later list of the record is longer.
        if line != "audit list -w acme" {
            assert_eq!(yaml, alice.json(line), "zopp {line}");
        }
    }
    let table = alice.ok("project list --output table");
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines.len(), 2, "{table}");
    assert!(lines[0].starts_with("ID ") && lines[0].contains("  NAME "), "{table}");
    assert_eq!(lines[0].find("NAME"), lines[1].find("backend"), "{table}");
    assert_eq!(alice.ok("secret list --output table"), "BYTES\nGREETING\n");
    assert!(alice.ok("environment get dev --output table").contains("\nNAME "), "fields in rows");
    assert_eq!(alice.ok("secret delete BYTES --output table").lines().count(), 2);
    assert_eq!(
        alice.ok("secret get GREETING --output table"),
        "hello \"you\"\nand you: #1\n",
        "a value is in no table"
    );
}

#[test]
fn an_export_takes_a_format_like_every_command_and_a_file_by_the_originals_flag() {
    let World { alice, server: _server } = World::new();
    alice.ok("secret set A one");
    assert_eq!(alice.ok("secret export --output .env"), "Exported 1 secrets to .env\n");
    assert_eq!(std::fs::read_to_string(alice.path(".env")).unwrap(), "A=one");
    let object: Value = serde_json::from_str(&alice.ok("secret export --format json")).unwrap();
    assert_eq!(object, json!({"A": "one"}));
    assert_eq!(alice.ok("secret export --format yaml"), "A: 'one'\n");
    assert_eq!(alice.ok("secret export -o yaml"), "A: 'one'\n");
    assert!(!alice.path("yaml").exists(), "no file is called like a format by a slip");
    assert_eq!(alice.ok("secret export --file yaml"), "Exported 1 secrets to yaml\n");
    let object: Value = serde_json::from_str(&alice.ok("secret export -o json --file .env")).unwrap();
    assert_eq!(object, json!({"file": ".env", "count": 1}));
    let stderr = alice.fails("secret export -o other --file .env", 2);
    assert!(stderr.contains("other is not a format"), "{stderr}");
    assert_eq!(alice.ok("--output yaml secret export"), "A: 'one'\n");
    let object: Value = serde_json::from_str(&alice.ok("secret export --format json --output .env")).unwrap();
    assert_eq!(object, json!({"file": ".env", "count": 1}));
    alice.fails("audit export -w acme --format yaml", 2);
}

#[test]
fn whoami_is_what_the_server_says() {
    let world = World::new();
    let who = world.alice.json("whoami");
    assert_eq!((&who["principal"], &who["email"]), (&json!("laptop"), &json!("alice@example.com")));
    assert_eq!(who["workspaces"][0]["name"], "acme");
    assert_eq!(who["fingerprint"].as_str().unwrap(), world.alice.ok("principal fingerprint").trim());
    assert!(world.alice.ok("whoami").contains("\nUser:        alice@example.com\n"));
    let (id, robot) = world.robot("robot");
    assert!(
        robot.ok("whoami").starts_with(&format!("Principal:   robot (ID: {id})\nUser:        service principal\n"))
    );
    assert_eq!(robot.json("whoami")["workspaces"], Value::Null, "the server tells a service none");
    world.alice.ok(&format!("principal disable --principal {id}"));
    assert!(robot.fails("whoami", 1).contains("disabled"));
}

#[test]
fn status_tells_what_works_and_its_exit_code_does_too() {
    let world = World::new();
    let status = world.alice.json("status");
    assert_eq!((&status["server_problem"], &status["principal_problem"]), (&Value::Null, &Value::Null));
    assert_eq!((&status["generation"], &status["environment"]), (&json!("v2"), &json!("dev")));
    let text = world.alice.ok("status -e staging");
    assert!(text.contains("serves\n") && text.contains("Environment: staging\n"), "{text}");

    let (id, robot) = world.robot("robot");
    world.alice.ok(&format!("principal disable --principal {id}"));
    let ended = robot.run("--output json status");
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let status: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(status["server_problem"], Value::Null);
    assert!(status["principal_problem"].as_str().unwrap().contains("disabled"), "{status}");

    let mut nowhere = Home::new();
    nowhere.set("ZOPP_SERVER", "http://127.0.0.1:1");
    let ended = nowhere.run("status");
    let text = String::from_utf8(ended.stdout).unwrap();
    assert_eq!(ended.code, 1);
    assert!(text.contains("NOT OK: Check: server http://127.0.0.1:1 cannot be reached"), "{text}");
    assert!(text.contains("zopp join") && text.contains("Workspace:   not set\n"), "{text}");
}

#[test]
fn each_shell_gets_a_script_that_knows_the_verbs() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = home.ok(&format!("completions {shell}"));
        assert!(script.contains("grant-principal-access") && script.contains("tls-client-cert"), "{shell}");
    }
    let script = home.write("zopp.bash", home.ok("completions bash"));
    let checked = std::process::Command::new("bash").arg("-n").arg(script).status().unwrap();
    assert!(checked.success(), "bash can read its script");
    home.fails("completions tcsh", 2);
    // A user who is in no list of users, as in a container, has no home directory.
    let mut homeless = as_root("setpriv");
    homeless.args(["--reuid=54321", "--clear-groups", "env", "-i"]).arg(home.program()).args(["completions", "bash"]);
    let ended = homeless.current_dir("/").output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert_eq!(String::from_utf8_lossy(&ended.stdout), home.ok("completions bash"));
}
