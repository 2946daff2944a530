//! `--version` of each program.

use std::process::Command;

use konverge_e2e::binary;

/// The programs that an image and an archive hold.
const PROGRAMS: [&str; 9] = [
    "konverge",
    "kubectl-konverge",
    "openzro-operator",
    "vault-rollout-operator",
    "vault-sync-operator",
    "zopp",
    "zopp-k8s",
    "zopp-operator",
    "zopp-server",
];

#[test]
fn each_program_prints_its_name_its_version_and_its_commit() {
    for name in PROGRAMS {
        let output = Command::new(binary(name).unwrap()).arg("--version").output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        // The original of this one has a word more.
        let between = if name == "vault-sync-operator" { " version " } else { " " };
        assert_eq!(printed, format!("{name}{between}{}\n", konverge_version::line()), "{output:?}");
    }
}
