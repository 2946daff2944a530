//! The entries of the reference pages name all that there is, and nothing that there is not. The pages themselves are tested in `bins/konverge/tests/docs`.

use std::collections::BTreeSet;

use konverge_roll::{declarations, reasons};

const MIGRATIONS: [&str; 2] =
    [include_str!("../../../../docs/migrate/reloader.md"), include_str!("../../../../docs/migrate/wave.md")];

/// The texts in a source file that stand behind `const`.
fn constants(source: &str) -> BTreeSet<&str> {
    let is_constant = |line: &&str| line.contains("const ") && line.contains(": &str = \"");
    source.lines().filter(is_constant).filter_map(|line| line.split('"').nth(1)).collect()
}

/// The texts that a source file declares in a table, such as `    WAVE = "…"`.
fn declared(source: &str) -> BTreeSet<&str> {
    let is_name = |name: &str| name.bytes().all(|letter| letter.is_ascii_uppercase() || letter == b'_');
    let rows = source.lines().filter_map(|line| line.trim_start().split_once(" = \""));
    rows.filter(|(name, _)| is_name(name)).filter_map(|(_, rest)| rest.split('"').next()).collect()
}

#[test]
fn annotations_are_those_of_the_reference() {
    let source = include_str!("../../src/declarations.rs");
    let ours: BTreeSet<_> = &constants(source) | &declared(source);
    let ours: BTreeSet<_> = ours.into_iter().filter(|name| name.contains('/')).collect();
    assert!(ours.contains(declarations::ON_CHANGE) && ours.len() > 8, "{ours:?}");
    let listed: BTreeSet<_> = declarations::ANNOTATIONS.iter().map(|entry| entry.name).collect();
    assert_eq!(listed, ours);
}

#[test]
fn annotations_of_reloader_and_wave_are_on_their_migration_pages() {
    let mut others = constants(include_str!("../../src/declarations/others.rs"));
    // The prefix of the annotations is not an annotation.
    others.retain(|name| !name.ends_with('/'));
    assert!(others.len() > 12, "{others:?}");
    for name in others {
        assert!(MIGRATIONS.iter().any(|page| page.contains(&format!("`{name}`"))), "no page explains {name}");
    }
}

/// Every reason that an event can have, but for those of the framework.
fn reasons() -> BTreeSet<&'static str> {
    let mut reasons = declared(include_str!("../../src/reasons.rs"));
    let errors = [
        include_str!("../../src/reconcile.rs"),
        include_str!("../../src/status_controller.rs"),
        include_str!("../../src/writer.rs"),
    ];
    for source in errors {
        let after = source.split("fn reason(&self)").nth(1).unwrap();
        let body = &after[..after.find("\n    }\n").unwrap()];
        reasons.extend(body.split('"').skip(1).step_by(2));
    }
    reasons
}

#[test]
fn reasons_are_those_of_the_reference() {
    let listed: Vec<_> = reasons::REASONS.iter().map(|entry| entry.reason).collect();
    let set: BTreeSet<_> = listed.iter().copied().collect();
    assert_eq!(set, reasons());
    assert_eq!(set.len(), listed.len(), "a reason has two entries");
}
