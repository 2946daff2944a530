//! The page for users names all that there is, and nothing that there is not.

use clap::CommandFactory;
use konverge_push::config::Config;

const PAGES: [&str; 2] =
    [include_str!("../../../../docs/push.md"), include_str!("../../../../docs/from-vault-sync-operator.md")];

/// The values of the constants of a source file.
fn constants(source: &str) -> impl Iterator<Item = &str> {
    source.lines().filter_map(|line| line.strip_prefix("pub const ")?.split('"').nth(1))
}

#[test]
fn every_annotation_and_every_reason_is_explained() {
    let [page, _] = PAGES;
    let annotations: Vec<_> = constants(include_str!("../../src/annotations.rs")).collect();
    let reasons: Vec<_> = constants(include_str!("../../src/reasons.rs")).collect();
    assert!(annotations.len() > 10 && reasons.len() > 10, "{annotations:?} {reasons:?}");
    for name in annotations.into_iter().chain(reasons) {
        assert!(page.contains(&format!("`{name}`")), "docs/push.md does not explain {name}");
    }
}

#[test]
fn every_flag_that_a_page_names_is_one() {
    let command = Config::command();
    let known: Vec<_> = command.get_arguments().filter_map(|flag| flag.get_long()).collect();
    // Those of other programs that the pages show, and what every program has.
    let others = ["help", "from-literal", "replicas", "for", "release", "field-selector"];
    let letter = |letter: char| letter.is_ascii_lowercase() || letter == '-';
    for page in PAGES {
        let named = page.split("--").skip(1).map(|rest| rest.split(|next| !letter(next)).next().unwrap_or_default());
        for flag in named.filter(|flag| flag.starts_with(|first: char| first.is_ascii_lowercase())) {
            assert!(known.contains(&flag) || others.contains(&flag), "there is no --{flag}");
        }
    }
}

#[test]
fn every_field_of_the_custom_resource_is_explained() {
    let definition = serde_json::to_value(konverge_push::vault_push::definition()).unwrap();
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let fields: Vec<_> = definition.pointer(spec).unwrap().as_object().unwrap().keys().collect();
    assert!(fields.len() > 10, "{fields:?}");
    for field in fields {
        assert!(PAGES[0].contains(&format!("\n| `{field}` |")), "docs/push.md does not explain {field}");
    }
}
