//! `zopp run` becomes the command.

use crate::world::World;

#[test]
fn the_command_sees_the_secrets_and_its_arguments() {
    let World { alice, server: _server } = World::new();
    alice.ok_with_stdin("secret set GREETING -", b"hello world");
    alice.ok("secret set HOME /elsewhere");
    assert_eq!(alice.ok("run -- printenv GREETING HOME"), "hello world\n/elsewhere\n");
    assert_eq!(alice.ok("run echo -w --server x"), "-w --server x\n");
    assert_eq!(alice.run_with_stdin("run cat", b"input").succeeded("run cat"), "input");
}

#[test]
fn its_exit_code_is_the_commands() {
    let World { alice, server: _server } = World::new();
    let script = alice.write("seven", "#!/bin/sh\nexit 7\n");
    assert_eq!(alice.run(&format!("run sh {}", script.display())).code, 7);
    let stderr = alice.fails("run -- no-such-command-here", 1);
    assert_eq!(stderr, "Error: cannot run no-such-command-here: No such file or directory (os error 2)\n");
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
fn what_no_environment_can_hold_is_named() {
    let World { alice, server: _server } = World::new();
    alice.ok_with_stdin("secret set ZERO -", b"a\0b");
    let stderr = alice.fails("run true", 1);
    assert_eq!(stderr, "Error: secret 'ZERO' cannot be put into the environment: its value contains a zero byte\n");
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
