//! The entries of the reference pages name all that there is, and nothing that there is not (W26). The pages themselves are tested in
//! `bins/konverge/tests/docs`.

use std::{collections::BTreeSet, fs, path::Path};

use clap::{CommandFactory, ValueEnum};
use konverge_push::{
    annotations,
    config::Config,
    journal, reasons,
    spec::{BinaryPolicy, DeletionPolicy, ExistingPolicy},
};
use konverge_vault::Owner;

const OWNERSHIP: &str = include_str!("../../../../docs/explanation/ownership.md");
const PUSH: &str = include_str!("../../../../docs/reference/push.md");
const VARIABLES: &str = include_str!("../../../../docs/reference/vault-variables.md");
const VAULT_PUSH: &str = include_str!("../../../../docs/reference/vaultpush.md");
const POLICIES: &str = include_str!("../../../../docs/reference/vault-policies.md");

/// The texts of the constants that a source file declares in a table, such as `    PATH = "…"`.
fn constants(source: &str) -> BTreeSet<&str> {
    let is_name = |name: &str| name.bytes().all(|letter| letter.is_ascii_uppercase() || letter == b'_');
    let rows = source.lines().filter_map(|line| line.trim_start().split_once(" = \""));
    rows.filter(|(name, _)| is_name(name)).filter_map(|(_, rest)| rest.split('"').next()).collect()
}

/// The words of a text that are made of such letters, and satisfy a condition.
fn words(text: &str, is_letter: impl Fn(char) -> bool, is_it: impl Fn(&str) -> bool) -> impl Iterator<Item = &str> {
    text.split(move |letter| !is_letter(letter)).filter(move |word| is_it(word))
}

/// The section with this heading, up to the next heading of its level or above.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let begin = page.find(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("there is no {heading:?}"));
    let rest = &page[begin + heading.len() + 2..];
    let level = heading.split(' ').next().unwrap().len();
    let ends = (1..=level).filter_map(|level| rest.find(&format!("\n{} ", "#".repeat(level))));
    &rest[..ends.min().unwrap_or(rest.len())]
}

/// The texts between backticks that begin the rows of tables.
fn rows(section: &str) -> BTreeSet<&str> {
    section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect()
}

/// The text of all source files beneath a folder.
fn sources(folder: &Path) -> String {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { sources(&path) } else { fs::read_to_string(path).unwrap() }).collect()
}

#[test]
fn w26_annotations_are_those_of_the_reference() {
    let source = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "-./".contains(letter);
    let words = words(&source, is_letter, |word| word.starts_with("vault-sync.io/"));
    // Also a label and marks in Vault have this prefix.
    let is_annotation = |word: &&str| {
        *word != journal::LABEL && *word != "vault-sync.io/owner" && !word.starts_with("vault-sync.io/key/")
    };
    let known: BTreeSet<_> = words.map(|word| word.trim_end_matches('.')).filter(is_annotation).collect();
    assert!(known.len() > 10 && known.contains(annotations::PATH), "{known:?}");
    let listed: BTreeSet<_> = annotations::ANNOTATIONS.iter().map(|entry| entry.name).collect();
    assert_eq!(listed, known);
}

/// The meaning of an annotation names each value that the program takes.
fn assert_values<T: ValueEnum>(annotation: &str) {
    let entry = annotations::ANNOTATIONS.iter().find(|entry| entry.name == annotation).unwrap();
    for value in T::value_variants() {
        let name = value.to_possible_value().unwrap().get_name().to_owned();
        assert!(entry.meaning.contains(&format!("`{name}`")), "{annotation} does not name {name}");
    }
}

#[test]
fn w26_values_of_annotations_are_those_of_the_reference() {
    assert_values::<DeletionPolicy>(annotations::DELETION_POLICY);
    assert_values::<ExistingPolicy>(annotations::EXISTING);
    assert_values::<BinaryPolicy>(annotations::BINARY);
    let policies = rows(section(OWNERSHIP, "## Deletion"));
    assert_eq!(policies, ["deletion-policy", "destroy", "keep", "metadata", "soft"].into());
}

#[test]
fn w26_marks_are_explained() {
    let [name, uid, instance] = ["a/Secret/b", "1", "one"].map(str::to_owned);
    let owner = Owner { prefix: "vault-sync.io".to_owned(), name, uid, instance };
    for mark in owner.mark().unwrap().into_keys() {
        assert!(OWNERSHIP.contains(&format!("`{mark}`")), "{mark} is not explained");
    }
    // That of a key ends with the key.
    assert!(include_str!("../../src/merge.rs").contains("/key/{key}"));
    assert!(VAULT_PUSH.contains("`vault-sync.io/key/<key>`"));
}

/// Every reason that an event, a state or the metric of bindings can have, but for those of failed writes to the API server.
fn reasons() -> BTreeSet<&'static str> {
    let mut reasons = constants(include_str!("../../src/reasons.rs"));
    for source in [
        include_str!("../../src/spec.rs"),
        include_str!("../../src/ledger.rs"),
        include_str!("../../src/error.rs"),
        include_str!("../../../../stores/vault/src/error.rs"),
    ] {
        let after = source.split("fn reason(&self)").nth(1).unwrap_or_else(|| panic!("no reasons in {source:.200}"));
        let body = &after[..after.find("\n    }\n").unwrap()];
        reasons.extend(body.split('"').skip(1).step_by(2));
    }
    reasons
}

#[test]
fn w26_reasons_are_those_of_the_reference() {
    let reasons = reasons();
    assert!(reasons.len() > 45, "{reasons:?}");
    let listed: Vec<_> = reasons::REASONS.iter().map(|entry| entry.reason).collect();
    let set: BTreeSet<_> = listed.iter().copied().collect();
    assert_eq!(set, reasons);
    assert_eq!(set.len(), listed.len(), "a reason has two entries");
}

#[test]
fn every_field_of_the_custom_resource_is_explained() {
    let definition = serde_json::to_value(konverge_push::vault_push::definition()).unwrap();
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let fields: BTreeSet<_> =
        definition.pointer(spec).unwrap().as_object().unwrap().keys().map(String::as_str).collect();
    assert!(fields.len() > 10, "{fields:?}");
    assert_eq!(rows(section(VAULT_PUSH, "## Fields")), fields);
}

#[test]
fn w26_routes_are_those_of_the_policy_and_of_the_client() {
    let policy = include_str!("../../../../deploy/vault-policy.hcl");
    let route = |line: &str| line.split('"').nth(1).map(|path| path.trim_end_matches('*').to_owned());
    let allowed: BTreeSet<_> =
        policy.lines().filter(|line| line.starts_with("path \"secret/")).filter_map(route).collect();
    let told: BTreeSet<_> =
        rows(section(POLICIES, "## Push")).into_iter().map(|path| path.trim_end_matches('…').to_owned()).collect();
    assert_eq!(told, allowed);
    assert!(PUSH.contains("`sys/internal/ui/mounts`"));
    assert!(include_str!("../../../../stores/vault/src/locate.rs").contains("sys/internal/ui/mounts/"));
}

#[test]
fn w26_every_variable_is_explained_and_is_one() {
    let is_letter = |letter: char| letter.is_ascii_uppercase() || letter == '_';
    let is_variable = |word: &str| word.len() > 6 && word.starts_with("VAULT_");
    let read = include_str!("../../../../stores/vault/src/environment.rs");
    let mut known: BTreeSet<_> = words(read, is_letter, is_variable).map(str::to_owned).collect();
    // The variables of flags have their place in the table of flags.
    let flags = Config::command();
    let of_flags: BTreeSet<_> = flags
        .get_arguments()
        .filter_map(|flag| flag.get_env())
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    known.retain(|name| !of_flags.contains(name));
    assert!(known.len() > 15, "{known:?}");
    let told: BTreeSet<_> = words(VARIABLES, is_letter, is_variable).map(str::to_owned).collect();
    assert_eq!(told, known);
    for name in ["GOMAXPROCS", "GOMEMLIMIT"] {
        assert!(include_str!("../../src/runtime_info.rs").contains(name) && PUSH.contains(name), "{name}");
    }
}
