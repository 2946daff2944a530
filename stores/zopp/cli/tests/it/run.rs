//! `zopp run` becomes the command.

use crate::world::World;

#[test]
fn the_command_sees_the_secrets_and_its_arguments() {
    let World { alice, server: _server } = World::new();
    alice.ok_with_stdin("secret set GREETING -", b"hello world");
    alice.ok("secret set USER elsewhere");
    assert_eq!(alice.ok("run -- printenv GREETING USER"), "hello world\nelsewhere\n");
    assert_eq!(alice.ok("run echo -w --server x"), "-w --server x\n");
    assert_eq!(alice.run_with_stdin("run cat", b"input").succeeded("run cat"), "input");
}

#[test]
fn its_exit_code_is_the_commands() {
    let World { alice, server: _server } = World::new();
    let script = alice.write("seven", "#!/bin/sh\nexit 7\n");
    assert_eq!(alice.run(&format!("run sh {}", script.display())).code, 7);
}

/// The codes of `env(1)`.
#[test]
fn a_command_that_cannot_start_ends_with_126_or_127() {
    let World { alice, server: _server } = World::new();
    let stderr = alice.fails("run -- no-such-command-here", 127);
    assert_eq!(stderr, "Error: cannot run no-such-command-here: No such file or directory (os error 2)\n");
    let file = alice.write("not-executable", "#!/bin/sh\n");
    let stderr = alice.fails(&format!("run -- {}", file.display()), 126);
    assert_eq!(stderr, format!("Error: cannot run {}: Permission denied (os error 13)\n", file.display()));
}

#[test]
fn a_signal_reaches_the_command_itself() {
    use std::os::unix::process::ExitStatusExt;
    let World { alice, server: _server } = World::new();
    let script = alice.write("suicide", "kill -TERM $$\n");
    let status = alice.command(&format!("run sh {}", script.display())).status().unwrap();
    assert_eq!(status.signal(), Some(15));
}

#[test]
fn what_no_environment_can_hold_is_named_and_left_out_on_request() {
    let World { alice, server: _server } = World::new();
    alice.ok("secret set GREETING hello");
    alice.ok_with_stdin("secret set ZERO -", b"a\0b");
    let stderr = alice.fails("run true", 1);
    assert_eq!(
        stderr,
        "Error: secret 'ZERO' cannot become a variable: its value contains a zero byte\n  To run the command without it: --skip-invalid.\n"
    );
    let ended = alice.run("run --skip-invalid printenv GREETING");
    assert_eq!(ended.stderr, "Note: the command does not get secret 'ZERO', because its value contains a zero byte\n");
    assert_eq!(ended.succeeded("run --skip-invalid"), "hello\n");
    assert_eq!(alice.ok("run --only GREETING -- printenv GREETING"), "hello\n");
}

#[test]
fn a_value_that_is_too_large_is_named_and_left_out_on_request() {
    let World { alice, server: _server } = World::new();
    alice.ok("secret set GREETING hello");
    alice.ok_with_stdin("secret set LARGE -", "x".repeat(200_000).as_bytes());
    let stderr = alice.fails("run true", 126);
    assert_eq!(
        stderr,
        "Error: secret 'LARGE' cannot become a variable: its value is larger than the system allows\n  To run the command without it: \
         --skip-invalid.\n"
    );
    let ended = alice.run("run --skip-invalid printenv GREETING");
    assert_eq!(
        ended.stderr,
        "Note: the command does not get secret 'LARGE', because its value is larger than the system allows\n"
    );
    assert_eq!(ended.succeeded("run --skip-invalid"), "hello\n");
}

/// Each of these makes `sh`, the loader or an interpreter run what the value says.
#[test]
fn a_key_that_chooses_code_is_refused_unless_it_is_allowed_by_name() {
    let World { alice, server: _server } = World::new();
    let marker = alice.path("marker");
    alice.ok("secret set API_KEY x");
    alice.write("bin/true", format!("#!/bin/sh\ntouch {}\n", marker.display()));
    for (key, value) in [
        ("PATH", "bin"),
        ("LD_PRELOAD", "./evil.so"),
        ("LD_AUDIT", "./evil.so"),
        ("BASH_ENV", "evil.sh"),
        ("NODE_OPTIONS", "--require=./evil.js"),
        ("GIT_SSH_COMMAND", "./evil"),
        ("TAR_OPTIONS", "--checkpoint=1"),
        ("Npm_Config_Script_Shell", "./evil"),
        ("CARGO_BUILD_RUSTC_WORKSPACE_WRAPPER", "./evil"),
        ("GIT_TRACE", "./written"),
        ("LESS", "-owritten"),
        ("ZOPP_SERVER", "http://evil.example"),
        ("ZOPP_REQUIRE_SIGNED_KEYS", "false"),
        ("GH_BROWSER", "./evil"),
        ("SASL_PATH", "."),
        ("VK_LAYER_PATH", "."),
        ("QT_QPA_PLATFORM_PLUGIN_PATH", "."),
        ("GOCOVERDIR", "."),
    ] {
        alice.ok(&format!("secret set {key} -- {value}"));
        let stderr = alice.fails("run true", 1);
        assert_eq!(
            stderr,
            format!(
                "Error: the command is not run: in acme/backend/dev, '{key}' can make programs run code or write files\n  If its \
                 writers may do that: --allow-key {key}. Otherwise choose other keys with --only or --prefix, or declare them in zopp.toml \
                 under [run].\n"
            )
        );
        assert_eq!(alice.ok("run --only API_KEY -- printenv API_KEY"), "x\n", "a key that is not chosen harms nobody");
        alice.ok(&format!("secret delete {key}"));
    }
    assert!(!marker.exists());
    alice.ok("secret set NODE_OPTIONS -- --max-old-space-size=512");
    assert_eq!(
        alice.ok("run --allow-key NODE_OPTIONS printenv NODE_OPTIONS"),
        "--max-old-space-size=512\n",
        "the user's word counts"
    );
}

/// No list of such names is complete, so a custom program reads `FROBNICATE` here.
#[test]
fn only_keys_that_the_project_file_declares_are_passed() {
    let World { alice, server: _server } = World::new();
    for key in ["APP_NAME", "DATABASE_URL", "FROBNICATE", "LD_PRELOAD"] {
        alice.ok(&format!("secret set {key} {key}"));
    }
    let run = |line: &str| {
        let ended = alice.run(line);
        let stderr = ended.stderr.clone();
        let output = ended.succeeded(line);
        let names = output.lines().filter_map(|line| line.split_once('=')).filter(|(name, value)| name == value);
        let mut names: Vec<_> = names.map(|(name, _)| name.to_owned()).collect();
        names.sort();
        (names, stderr)
    };
    alice.write("zopp.toml", "[run]\nkeys = [\"DATABASE_URL\", \"APP_*\"]\n");
    let (names, stderr) = run("run env");
    assert_eq!(names, ["APP_NAME", "DATABASE_URL"]);
    assert_eq!(
        stderr,
        "Note: the project file does not declare these keys under [run], so the command does not get them: FROBNICATE, LD_PRELOAD\n"
    );
    let (names, stderr) = run("run --only FROBNICATE -- env");
    assert_eq!((names, stderr.as_str()), (vec!["FROBNICATE".to_owned()], ""), "the command line counts more");
    alice.write("zopp.toml", "[run]\nkeys = [\"LD_*\"]\n");
    let stderr = alice.fails("run true", 1);
    assert!(stderr.contains("'LD_PRELOAD' can make programs run code or write files"), "a file permits none: {stderr}");
    alice.write("zopp.toml", "[run]\nkeys = [\"*\", \"A*B\"]\n");
    let stderr = alice.fails("run true", 1);
    assert!(stderr.contains("zopp.toml is malformed: ") && stderr.contains("invalid key pattern"), "{stderr}");
}

#[test]
fn keys_are_chosen_by_name_and_by_prefix() {
    let World { alice, server: _server } = World::new();
    for key in ["API_KEY", "DB_NAME", "DB_USER", "OTHER"] {
        alice.ok(&format!("secret set {key} {key}"));
    }
    let seen = |line: &str| {
        let output = alice.ok(line);
        let names = output.lines().filter_map(|line| line.split_once('=')).filter(|(name, value)| name == value);
        let mut names: Vec<_> = names.map(|(name, _)| name.to_owned()).collect();
        names.sort();
        names
    };
    assert_eq!(seen("run env"), ["API_KEY", "DB_NAME", "DB_USER", "OTHER"]);
    assert_eq!(seen("run --prefix DB_ --only API_KEY -- env"), ["API_KEY", "DB_NAME", "DB_USER"]);
    assert_eq!(seen("run --only OTHER,API_KEY -- env"), ["API_KEY", "OTHER"]);
    assert_eq!(
        alice.fails("run --only GONE -- env", 1),
        "Error: acme/backend/dev has no secret 'GONE'\n  zopp secret list shows them.\n"
    );
}

#[test]
fn flags_count_more_than_variables_and_these_more_than_the_file() {
    let mut world = World::new();
    world.alice.ok("environment create staging");
    world.alice.ok("environment create production");
    for environment in ["dev", "staging", "production"] {
        world.alice.ok(&format!("secret set WHERE {environment} -e {environment}"));
    }
    let alice = &mut world.alice;
    alice.write("zopp.toml", "[defaults]\nworkspace = \"acme\"\nproject = \"backend\"\nenvironment = \"staging\"\n");
    assert_eq!(alice.ok("secret get WHERE -e production"), "production\n");
    assert_eq!(alice.ok("secret get WHERE"), "dev\n");
    for name in ["ZOPP_WORKSPACE", "ZOPP_PROJECT", "ZOPP_ENVIRONMENT"] {
        alice.set(name, "");
    }
    assert_eq!(alice.ok("secret get WHERE"), "staging\n");
}
