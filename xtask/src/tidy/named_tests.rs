//! Tests that the docs name: each of them is there.

use std::{fs, path::Path};

use anyhow::{Context, Result};

/// The short prefixes of paths on a page, and their meaning; the page lists them too.
type Short = &'static [(&'static str, &'static str)];

/// The pages whose words rest on tests.
const PAGES: [(&str, Short); 5] = [
    ("docs/parity.md", OF_ALL),
    ("docs/parity-manage.md", OF_MANAGE),
    ("docs/parity-push.md", OF_PUSH),
    ("docs/parity-roll.md", OF_ROLL),
    ("docs/parity-zopp.md", OF_ZOPP),
];

const OF_ALL: Short = &[
    ("admission/", "crates/konverge-admission/"),
    ("apply/", "crates/konverge-apply/"),
    ("core/", "crates/konverge-core/"),
    ("external/", "crates/konverge-external/"),
    ("gen/", "crates/konverge-gen/"),
    ("konverge/", "crates/konverge/"),
    ("new/", "crates/konverge-new/"),
    ("runtime/", "crates/konverge-runtime/"),
    ("testkit/", "crates/konverge-testkit/"),
    ("cms/", "examples/configmapsync/tests/it/"),
    ("multi/", "examples/multicontroller/tests/it/"),
    ("pull/", "tests/it/pull_faults/"),
];

const OF_MANAGE: Short = &[
    ("cluster/", "operators/manage/tests/cluster/"),
    ("manage/", "operators/manage/tests/it/"),
    ("unit/", "operators/manage/src/"),
];

const OF_PUSH: Short = &[
    ("client/", "stores/vault/src/"),
    ("program/", "bins/vault-sync-operator/tests/it/"),
    ("pull/", "tests/it/pull_faults/"),
    ("push/", "operators/push/tests/it/"),
    ("runtime/", "crates/konverge-runtime/"),
    ("unit/", "operators/push/src/"),
    ("vault/", "stores/vault/tests/it/"),
];

const OF_ROLL: Short = &[
    ("client/", "stores/vault/src/"),
    ("demo/", "tests/it/"),
    ("plugin/", "bins/kubectl-konverge/tests/it/"),
    ("program/", "bins/vault-rollout-operator/tests/it/"),
    ("pull/", "tests/it/pull_faults/"),
    ("roll/", "operators/roll/tests/it/"),
    ("runtime/", "crates/konverge-runtime/"),
    ("unit/", "operators/roll/src/"),
    ("vault/", "stores/vault/tests/it/"),
    ("workload/", "crates/konverge-workload/src/"),
];

const OF_ZOPP: Short = &[
    ("chart/", "bins/konverge/tests/shipped/"),
    ("cli/", "stores/zopp/cli/tests/it/"),
    ("client/", "stores/zopp/client/tests/it/"),
    ("server/", "stores/zopp/server/tests/it/"),
    ("sync/", "bins/zopp-k8s/tests/it/"),
];

/// Returns the tests that a page names as `file::test`, or as `::test` behind a file of the same line, and that do not exist.
pub(super) fn missing(root: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for (name, short) in PAGES {
        let page = fs::read_to_string(root.join(name)).with_context(|| format!("cannot read {name}"))?;
        found.extend(not_found(name, short, &page, |file| fs::read_to_string(root.join(file)).ok()));
    }
    Ok(found)
}

fn not_found(name: &str, short: Short, page: &str, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut found = Vec::new();
    for (number, line) in (1..).zip(page.lines()) {
        let mut file = String::new();
        // Every second piece stands between backticks.
        for code in line.split('`').skip(1).step_by(2) {
            let (path, test) = code.split_once("::").map_or((code, None), |(path, test)| (path, Some(test)));
            if Path::new(path).extension().is_some_and(|extension| extension == "rs") {
                file = in_full(path, short);
            } else if !path.is_empty() {
                continue;
            }
            let why = match (read(&file), test) {
                (None, _) => "there is no such file",
                (Some(source), Some(test)) if !source.contains(&format!("fn {test}(")) => "there is no such test in it",
                _ => continue,
            };
            found.push(format!("{name}:{number} names {code}: {why}"));
        }
    }
    found
}

fn in_full(path: &str, short: Short) -> String {
    let short = short.iter().find_map(|(short, full)| path.strip_prefix(short).map(|rest| format!("{full}{rest}")));
    short.unwrap_or_else(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{OF_ALL, not_found};

    #[test]
    fn what_is_named_and_not_there_is_found() {
        let read = |file: &str| match file {
            "crates/konverge-apply/src/a.rs" => Some("#[test]\nfn one() {}\nfn three() {}".to_owned()),
            "tests/it/b.rs" => Some("async fn two() {}".to_owned()),
            _ => None,
        };
        let page = "`core::Type`, `apply/src/a.rs::one`, `::three`, `tests/it/b.rs::two` and `tests/it/b.rs`, \
                    `operator!`\n`apply/src/a.rs::on`, `tests/it/b.rs`, `::one`\n`apply/src/c.rs::one`\n`::one`";
        assert_eq!(
            not_found("docs/parity.md", OF_ALL, page, read),
            [
                "docs/parity.md:2 names apply/src/a.rs::on: there is no such test in it",
                "docs/parity.md:2 names ::one: there is no such test in it",
                "docs/parity.md:3 names apply/src/c.rs::one: there is no such file",
                "docs/parity.md:4 names ::one: there is no such file",
            ]
        );
    }
}
