//! Command lines that make no sense, and those that ask.

use std::process::{Command, Output, Stdio};

/// Runs it to its end, with nothing of the user's own in its variables.
fn konverge(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_konverge"));
    command.env_clear().env("HOME", "/nowhere").args(arguments).stdin(Stdio::null());
    command.output().unwrap()
}

#[test]
fn what_cannot_run_is_told_with_the_name_of_the_job_and_the_next_step() {
    for (arguments, parts) in [
        (&["run"][..], &["--job", "try '--help'"][..]),
        (&["run", "--job", ""], &["names no job", "There are pull, push, roll and manage"]),
        (&["run", "--job", "--server=hunter2"], &["names no job"]),
        (&["run", "--job", "pul"], &["no job \"pul\"", "pull, push, roll and manage"]),
        (&["run", "--job", "roll", "--job", "roll --leader-elect"], &["job roll is asked for twice", "one --job"]),
        (&["run", "--job", "pull --credentials 'hunter2"], &["job pull", "no end"]),
        (
            &["run", "--job", "roll", "--job", "pull --sever hunter2"],
            &["job pull: unexpected argument '--sever'", "'--server'", "try 'konverge run --job \"pull --help\"'"],
        ),
        (&["run", "--job", "pull --poll-interval 1d"], &["job pull: invalid value '1d'", "use s, m or h"]),
        (&["run", "--job", "push -binary keep"], &["job push: invalid value 'keep' for '--binary <POLICY>'"]),
        (&["run", "--job", "push drain"], &["job push: drain is no job", "vault-sync-operator drain"]),
        (&["run", "--job", "push -vault-auth-method token"], &["job push", "needs --vault-token-file"]),
        (&["run", "--job", "roll --kinds pods"], &["job roll: invalid value 'pods'", "deployments,statefulsets"]),
        (&["run", "--job", "roll --log-format json"], &["job roll: --log-format is of the whole process"]),
        (&["run", "--job", "roll", "--bind-address", "somewhere"], &["\"somewhere\" is no address to listen on"]),
    ] {
        let output = konverge(arguments);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
        assert!(told.starts_with("error: ") && output.stdout.is_empty(), "{told}");
        assert!(parts.iter().all(|part| told.contains(part)), "{arguments:?}: {told}");
        assert!(!told.contains("hunter2"), "{told}");
    }
}

#[test]
fn what_keeps_a_job_from_starting_ends_the_process_and_is_named() {
    for (arguments, part) in [
        (
            &["--job", "pull --credentials /nowhere/at/all", "--job", "roll"][..],
            "job pull cannot start: cannot use the zopp credentials",
        ),
        (
            &["--job", "roll --kubeconfig /nowhere/at/all"],
            "job roll cannot start: cannot use kubeconfig /nowhere/at/all",
        ),
    ] {
        let output = konverge(&[&["run", "--bind-address", "127.0.0.1:0"], arguments].concat());
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), told.contains(part)), (Some(1), true), "{told}");
    }
}

#[test]
fn help_explains_it_with_an_example_and_that_of_a_job_is_that_of_its_program() {
    let asked = |arguments: &[&str]| {
        let output = konverge(arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let help = asked(&["run", "--help"]);
    for part in
        ["konverge run --job \"pull --server", "as vault-sync-operator does it", "--bind-address", "[default: :8080]"]
    {
        assert!(help.contains(part), "{part} is not in {help}");
    }
    for (line, part) in [
        ("pull --help", "--poll-interval <TIME>"),
        ("push -help", "--default-deletion-policy <POLICY>"),
        ("roll --help", "--runaway-changes <NUMBER>"),
    ] {
        let help = asked(&["run", "--job", line]);
        assert!(help.contains(part) && !help.contains("--log-format"), "{help}");
    }
}
