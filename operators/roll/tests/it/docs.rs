//! Reasons and the annotations of other tools have their entries on the pages. The pages themselves are tested in `bins/konverge/tests/docs`.

use std::collections::BTreeSet;

use konverge_roll::reasons;

const MIGRATIONS: [&str; 2] =
    [include_str!("../../../../docs/migrate/reloader.md"), include_str!("../../../../docs/migrate/wave.md")];

/// The texts in a source file that stand behind `const`.
fn constants(source: &str) -> BTreeSet<&str> {
    let is_constant = |line: &&str| line.contains("const ") && line.contains(": &str = \"");
    source.lines().filter(is_constant).filter_map(|line| line.split('"').nth(1)).collect()
}

#[test]
fn annotations_of_reloader_and_wave_are_on_their_migration_pages() {
    let mut others = constants(include_str!("../../src/annotations/others.rs"));
    // The prefix of the annotations is not an annotation.
    others.retain(|name| !name.ends_with('/'));
    assert!(others.len() > 12, "{others:?}");
    for name in others {
        assert!(MIGRATIONS.iter().any(|page| page.contains(&format!("`{name}`"))), "no page explains {name}");
    }
}

#[test]
fn a_reason_of_an_error_is_a_constant_that_the_reference_lists() {
    let errors = [
        include_str!("../../src/reconcile.rs"),
        include_str!("../../src/status_controller.rs"),
        include_str!("../../src/writer.rs"),
    ];
    for source in errors {
        let after = source.split("fn reason(&self)").nth(1).unwrap();
        let body = &after[..after.find("\n    }\n").unwrap()];
        assert!(!body.contains('"'), "the reason in quotes belongs in `reasons`: {body}");
    }
}

#[test]
fn each_reason_has_one_entry() {
    let listed: Vec<_> = reasons::REASONS.iter().map(|entry| entry.reason).collect();
    let set: BTreeSet<_> = listed.iter().copied().collect();
    assert_eq!(set.len(), listed.len(), "{listed:?}");
}
