//! The pages for users name all that there is, and nothing that there is not (W26).

mod names;
mod settings;

const PAGE: &str = include_str!("../../../../docs/push.md");

const PAGES: [&str; 2] = [PAGE, include_str!("../../../../docs/from-vault-sync-operator.md")];

/// The words of a text that are made of such letters, and satisfy a condition.
fn words(text: &str, is_letter: impl Fn(char) -> bool, is_it: impl Fn(&str) -> bool) -> impl Iterator<Item = &str> {
    text.split(move |letter| !is_letter(letter)).filter(move |word| is_it(word))
}

/// What stands between backticks on a page.
fn quoted(page: &str) -> impl Iterator<Item = &str> {
    // Every second part, where no block of code is.
    let parts = page.split("```").step_by(2);
    parts.flat_map(|part| part.split('`').skip(1).step_by(2))
}

/// The section with this heading, without its subsections' end in mind: up to the next heading of its level or above.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let begin = page.find(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("there is no {heading:?}"));
    let rest = &page[begin + heading.len() + 2..];
    let level = heading.split(' ').next().unwrap().len();
    let ends = (1..=level).filter_map(|level| rest.find(&format!("\n{} ", "#".repeat(level))));
    &rest[..ends.min().unwrap_or(rest.len())]
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
