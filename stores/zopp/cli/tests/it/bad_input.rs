//! Arguments and files that make no sense: exit code, the name of what is wrong, no key in any text.

use crate::home::Home;

const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
const SEED: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const PUBLIC: &str = "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8";

fn home_with_config(content: &str) -> Home {
    let home = Home::new();
    home.write(".zopp/config.json", content);
    home
}

fn config(id: &str, private_key: &str) -> String {
    format!(
        r#"{{"principals":[{{"id":"{id}","name":"laptop","user_id":"u","email":"a@b.c",
            "private_key":"{private_key}","public_key":"{PUBLIC}"}}],"current_principal":"laptop"}}"#
    )
}

#[test]
fn the_version_is_one_line() {
    let line = Home::new().ok("--version");
    assert!(line.starts_with(&format!("zopp {} (commit: ", env!("CARGO_PKG_VERSION"))), "{line}");
    assert!(line.ends_with(")\n") && line.lines().count() == 1, "{line}");
}

#[test]
fn unknown_arguments_are_usage_errors() {
    let home = Home::new();
    for line in [
        "",
        "nonsense",
        "secret",
        "secret set",
        "workspace create",
        "join token",
        "permission set -w acme --principal x --role emperor",
        "principal create phone -w acme",
        "principal create phone --credentials-file x",
        "secret set K v --stdin",
        "invite create -w acme --expires-hours 0",
        "run",
        "workspace list --output toml",
        "workspace list --timeout 0",
    ] {
        let ended = home.run(line);
        assert_eq!(ended.code, 2, "zopp {line}: {}", ended.stderr);
        assert!(ended.stdout.is_empty(), "zopp {line}");
    }
}

#[test]
fn help_has_examples() {
    let home = Home::new();
    for line in
        ["--help", "join --help", "secret set --help", "secret export --help", "principal create --help", "run --help"]
    {
        assert!(home.ok(line).contains("Example"), "zopp {line}");
    }
}

#[test]
fn without_a_configuration_it_says_to_join() {
    let home = Home::new();
    assert_eq!(
        home.fails("workspace list", 1),
        format!(
            "Error: {} does not exist; run \"zopp join\" first, or name another credentials file\n",
            home.config_file().display()
        )
    );
}

#[test]
fn a_malformed_configuration_is_named_without_its_content() {
    let check = |content: &str, expected: &str| {
        let home = home_with_config(content);
        let stderr = home.fails("workspace list", 1);
        assert!(!stderr.contains(&SEED[2..10]), "{stderr}");
        assert_eq!(stderr, format!("Error: {}{expected}\n", home.config_file().display()));
    };
    check(
        &config(ID, &SEED[..60]),
        ": principals[0].private_key: 30 bytes long instead of 32; 64 hexadecimal digits are expected",
    );
    check(
        &config(ID, &SEED.replace('0', "g")),
        ": principals[0].private_key: not hexadecimal; 64 hexadecimal digits are expected",
    );
    check(&config("me", SEED), ": principals[0].id: not a UUID");
    check(&config(ID, &"ab".repeat(32)), ": principals[0].public_key: does not belong to the private key beside it");
    check(
        &config(ID, SEED)[..150],
        " is not valid JSON: it ends too early at line 2, column 43; bring back a whole copy, or move it away and make it anew",
    );
    let home = home_with_config(&config(ID, SEED).replace("\"laptop\"}", "\"gone\"}"));
    assert_eq!(
        home.fails("workspace list", 1),
        format!("Error: principal \"gone\" not found in {}; it has laptop\n", home.config_file().display())
    );
    check(r#"{"principals":[]}"#, " holds no principal; run \"zopp join\" first");
}

#[test]
fn a_malformed_file_stops_join_before_anything_is_sent() {
    let home = home_with_config("{");
    let stderr = home.fails("--server http://127.0.0.1:1 join token a@b.c", 1);
    assert!(stderr.contains("is not valid JSON"), "{stderr}");
}

#[test]
fn server_addresses_are_corrected() {
    let home = home_with_config(&config(ID, SEED));
    assert_eq!(
        home.fails("--server 10.0.0.1:50051 workspace list", 1),
        "Error: server address \"10.0.0.1:50051\" has no scheme: write \"http://10.0.0.1:50051\", or \
         \"https://10.0.0.1:50051\" if the server uses TLS\n"
    );
    let stderr = home.fails("--server http://a:1 --tls-ca-cert ca.pem workspace list", 1);
    assert!(
        stderr.contains("CA certificate ca.pem is given but server address \"http://a:1\" does not use TLS"),
        "{stderr}"
    );
    let stderr = home.fails("--server https://a:1 --tls-ca-cert ca.pem workspace list", 1);
    assert_eq!(stderr, "Error: CA certificate ca.pem cannot be read: No such file or directory (os error 2)\n");
    home.write("ca.pem", "not a certificate");
    let stderr = home.fails("--server https://a:1 --tls-ca-cert ca.pem workspace list", 1);
    assert!(stderr.contains("CA certificate ca.pem holds no PEM certificate"), "{stderr}");
}

#[test]
fn a_missing_environment_name_says_where_to_put_it() {
    let home = home_with_config(&config(ID, SEED));
    assert_eq!(
        home.fails("secret list -w acme", 2),
        "Error: no project is given\n  Use -p/--project, or set ZOPP_PROJECT, or write it into zopp.toml under [defaults].\n"
    );
}

#[test]
fn c7_a_malformed_project_file_is_an_error_that_names_it() {
    let home = home_with_config(&config(ID, SEED));
    let file = home.write("zopp.toml", "[defaults\nworkspace = 'acme'");
    let stderr = home.fails("secret list", 1);
    assert!(stderr.starts_with(&format!("Error: project file {} is malformed: ", file.display())), "{stderr}");
}

#[test]
fn bad_invite_codes_are_usage_errors_that_quote_nothing() {
    let home = Home::new();
    let stderr = home.fails("join inv_5ec4e7 a@b.c --principal laptop", 2);
    assert_eq!(stderr, "Error: invite code after \"inv_\" is 3 bytes long instead of 32\n");
}

#[test]
fn an_existing_credentials_file_is_not_overwritten() {
    let home = home_with_config(&config(ID, SEED));
    home.write("operator.json", "mine");
    let stderr = home.fails("principal create operator --service -w acme --credentials-file operator.json", 1);
    assert_eq!(
        stderr,
        "Error: credentials file operator.json exists already\n  Name another one, or remove it first.\n"
    );
    assert_eq!(std::fs::read_to_string(home.path("operator.json")).unwrap(), "mine");
}
