//! Empty variables count as unset, such as `ZOPP_TLS_CA_CERT=` in a script or a chart.

use std::{collections::BTreeSet, process::Command};

use konverge_e2e::binary;

/// The programs, with a command line that ends by itself, and its output.
const LINES: [(&str, &[&str], &str); 8] = [
    ("zopp", &["whoami"], "zopp join"),
    ("zopp-server", &["serve", "--addr=nowhere"], "--addr"),
    ("zopp-operator", &["--kubeconfig=/nowhere"], "/nowhere/.zopp/config.json"),
    ("vault-sync-operator", &["-kubeconfig=/nowhere"], "/nowhere"),
    ("vault-rollout-operator", &["--kubeconfig=/nowhere"], "/nowhere"),
    ("openzro-operator", &["--kubeconfig=/nowhere"], "/nowhere"),
    ("konverge", &["run", "--job=pull --kubeconfig=/nowhere", "--bind-address=0"], "/nowhere/.zopp/config.json"),
    ("kubectl-konverge", &["status", "--kubeconfig=/nowhere"], "/nowhere"),
];

/// The credentials of pull. They are no flags, so no help names them, and without them it reads the file in the home directory.
const CREDENTIALS: [&str; 6] = [
    "ZOPP_PRINCIPAL_ID",
    "ZOPP_PRINCIPAL_NAME",
    "ZOPP_PRIVATE_KEY",
    "ZOPP_PUBLIC_KEY",
    "ZOPP_X25519_PRIVATE_KEY",
    "ZOPP_X25519_PUBLIC_KEY",
];

/// Returns the variables that the help of a program names.
fn variables(program: &str, verb: Option<&&str>) -> BTreeSet<String> {
    let mut command = Command::new(binary(program).unwrap());
    let shown = command.args(verb.filter(|verb| !verb.starts_with('-'))).arg("--help").output().unwrap();
    let text = String::from_utf8(shown.stdout).unwrap();
    let named = text.split("[env: ").skip(1).map(|rest| rest.split(['=', ']']).next().unwrap().to_owned());
    named.collect()
}

#[test]
fn an_empty_variable_sets_nothing_in_any_program() {
    let mut count = 0;
    for (program, line, expected) in LINES {
        let variables = variables(program, line.first());
        count += variables.len();
        let variables = variables.iter().map(String::as_str).chain(CREDENTIALS);
        let mut command = Command::new(binary(program).unwrap());
        command.args(line).env_clear().env("HOME", "/nowhere").envs(variables.map(|name| (name, "")));
        let ended = command.output().unwrap();
        let said = [ended.stdout, ended.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(!ended.status.success() && said.contains(expected), "{program}: {said}");
        assert!(!said.contains("invalid value ''"), "{program}: {said}");
    }
    assert!(count > 100, "{count}");
}
