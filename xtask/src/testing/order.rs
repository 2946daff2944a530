//! Which test program is started next: the longest first, and never two that need the same server.

use super::program::Program;

/// The long programs and the seconds that each took among the others, on two cores (2026-12-01). A program that is not in the list is short, and starts
/// after them. A run prints this list anew; it need not be exact.
const LONG: [(&str, u16); 25] = [
    ("-p konverge-manage --test it", 503),
    ("-p konverge-vault-sync-operator --test it", 496),
    ("-p konverge-cli --test shipped", 353),
    ("-p konverge-roll --test it", 350),
    ("-p konverge-e2e --test it", 296),
    ("-p konverge-push --test it", 248),
    ("-p konverge-vault-rollout-operator --test it", 235),
    ("-p konverge-openzro-operator --test it", 233),
    ("-p konverge-zopp-server --test it", 205),
    ("-p konverge-new --test it", 123),
    ("-p multicontroller-operator --test it", 113),
    ("-p konverge --test it", 110),
    ("--workspace --doc", 105),
    ("-p konverge-external --test it", 103),
    ("-p configmapsync-operator --test it", 101),
    ("-p konverge-pull --test it", 100),
    ("-p konverge-kubectl-plugin --test it", 93),
    ("-p konverge-runtime --test it", 60),
    ("-p konverge-zopp-cli --test it", 53),
    ("-p konverge-testkit --test it", 38),
    ("-p konverge-manage --test cluster", 37),
    ("-p konverge-zopp-server --lib", 31),
    ("-p xtask --bin xtask", 30),
    ("-p konverge-vault --test it", 25),
    ("-p cloudbucket-operator --test it", 24),
];

/// The programs that start an openZro server. A machine can have one, which a program keeps until it ends; a second program would only wait for it.
const WITH_OPENZRO: [&str; 4] = [
    "-p konverge-manage --test it",
    "-p konverge-openzro --test it",
    "-p konverge-openzro --test restart",
    "-p konverge-openzro-operator --test it",
];

/// Sorts programs: the longest first, so that none of them runs alone at the end.
pub(crate) fn longest_first(programs: &mut [Program]) {
    programs.sort_by_key(|program| std::cmp::Reverse(seconds(&program.name)));
}

fn seconds(name: &str) -> u16 {
    LONG.iter().find(|(long, _)| *long == name).map_or(0, |(_, seconds)| *seconds)
}

/// Returns the index of the first waiting program that may run beside the running ones.
pub(crate) fn next<'a>(
    mut waiting: impl Iterator<Item = &'a str>,
    mut running: impl Iterator<Item = &'a str>,
) -> Option<usize> {
    let has_openzro = |name: &str| WITH_OPENZRO.contains(&name);
    let is_taken = running.any(has_openzro);
    waiting.position(|name| !(is_taken && has_openzro(name)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::metadata;

    #[test]
    fn the_first_program_is_next_that_needs_no_server_of_a_running_one() {
        let [operator, push, contract] =
            ["-p konverge-openzro-operator --test it", "-p konverge-push --test it", "-p konverge-openzro --test it"];
        for (waiting, running, expected) in [
            (vec![push, operator], vec![], Some(0)),
            (vec![push, operator], vec![push], Some(0)),
            (vec![operator, push], vec![push], Some(0)),
            (vec![operator, push], vec![push, contract], Some(1)),
            (vec![operator, contract], vec![contract], None),
            (vec![], vec![push], None),
        ] {
            assert_eq!(
                next(waiting.iter().copied(), running.iter().copied()),
                expected,
                "{waiting:?} beside {running:?}"
            );
        }
    }

    #[test]
    fn long_programs_are_listed_from_the_longest_to_the_shortest() {
        assert!(LONG.is_sorted_by_key(|(_, seconds)| std::cmp::Reverse(*seconds)));
        assert!(seconds("-p konverge-push --test it") > seconds("-p konverge-push --lib"));
    }

    #[test]
    fn every_listed_program_is_one_of_the_workspace() {
        #[derive(serde::Deserialize)]
        struct Workspace {
            packages: Vec<Package>,
        }
        #[derive(serde::Deserialize)]
        struct Package {
            name: String,
            targets: Vec<Target>,
        }
        #[derive(serde::Deserialize)]
        struct Target {
            kind: Vec<String>,
            name: String,
        }
        let workspace: Workspace = metadata::read(&["--no-deps"]).unwrap();
        let mut there = BTreeSet::from([Program::docs().name]);
        for package in workspace.packages {
            for target in package.targets {
                let kind = target.kind.first().unwrap();
                let suffix = if kind == "lib" { String::new() } else { format!(" {}", target.name) };
                there.insert(format!("-p {} --{kind}{suffix}", package.name));
            }
        }
        for name in LONG.iter().map(|(name, _)| *name).chain(WITH_OPENZRO) {
            assert!(there.contains(name), "the workspace has no test program {name}");
        }
    }
}
