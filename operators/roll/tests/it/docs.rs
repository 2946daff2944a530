//! The page for users names all that there is, and nothing that there is not.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{Arc, LazyLock},
};

use clap::{Arg, CommandFactory};
use jiff::SignedDuration;
use konverge_roll::{
    breaker,
    config::Config,
    declarations::{self, Others},
    index::Index,
    metrics::Metrics,
    time::Time,
};
use konverge_workload::WorkloadKind;
use prometheus_client::{encoding::text::encode, registry::Registry};

const PAGE: &str = include_str!("../../../../docs/roll.md");

/// The words of a text that are made of such letters, and satisfy a condition.
fn words(text: &str, is_letter: impl Fn(char) -> bool, is_it: impl Fn(&str) -> bool) -> impl Iterator<Item = &str> {
    text.split(move |letter| !is_letter(letter)).filter(move |word| is_it(word))
}

/// Returns the words between backticks in a text without blocks of code.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The section with this heading, up to the next heading of its level or above.
fn section(heading: &str) -> &'static str {
    let begin = PAGE.find(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("there is no {heading:?}"));
    let rest = &PAGE[begin + heading.len() + 2..];
    let level = heading.split(' ').next().unwrap().len();
    let ends = (1..=level).filter_map(|level| rest.find(&format!("\n{} ", "#".repeat(level))));
    &rest[..ends.min().unwrap_or(rest.len())]
}

/// The texts in a source file that stand behind `const`.
fn constants(source: &str) -> BTreeSet<&str> {
    let is_constant = |line: &&str| line.contains("const ") && line.contains(": &str = \"");
    source.lines().filter(is_constant).filter_map(|line| line.split('"').nth(1)).collect()
}

#[test]
fn annotations_are_those_of_the_page() {
    let ours = constants(include_str!("../../src/declarations.rs"));
    let others = constants(include_str!("../../src/declarations/others.rs"));
    assert!(ours.contains(declarations::ON_CHANGE) && ours.len() > 8 && others.len() > 12, "{ours:?} {others:?}");
    for name in ours.iter().chain(&others) {
        assert!(PAGE.contains(&format!("`{name}`")), "docs/roll.md does not explain {name}");
    }
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "-./".contains(letter);
    let is_annotation = |word: &str| ["roll.konverge.dev/", "zopp.dev/"].iter().any(|domain| word.starts_with(domain));
    for named in words(PAGE, is_letter, is_annotation) {
        assert!(ours.contains(named.trim_end_matches('.')), "there is no {named}");
    }
}

/// Every reason that an event can have.
fn reasons() -> BTreeSet<&'static str> {
    let mut reasons = constants(include_str!("../../src/reasons.rs"));
    reasons.insert(konverge_core::reasons::EVENTS_LIMITED);
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
fn reasons_are_those_of_the_page() {
    let table = section("## What you see").split("| Reason |").nth(1).unwrap().split("\n\n").next().unwrap();
    let told: BTreeSet<_> = table.lines().filter_map(|line| line.split('|').nth(1)).flat_map(quoted).collect();
    assert_eq!(told, reasons());
    // In texts between, only what there is, or what the log says.
    let is_word = |letter: char| letter.is_ascii_alphabetic();
    let begins = |word: &str| {
        ["WaitingFor", "Wave", "Workload", "Rollout"].iter().any(|begin| word.len() > 8 && word.starts_with(begin))
    };
    for named in words(PAGE, is_word, begins) {
        assert!(reasons().contains(named), "there is no reason {named}");
    }
    assert!(include_str!("../../src/reader.rs").contains("\"SourceUnreadable\""));
}

#[test]
fn metrics_are_those_of_the_page() {
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry);
    let settings = breaker::Settings { changes: 0, within: SignedDuration::ZERO, quiet: SignedDuration::ZERO };
    metrics.measure(&Arc::new(Index::new(Others::default(), settings)), Time::now());
    metrics.rolled(WorkloadKind::Deployment, "rolled");
    metrics.held("x");
    metrics.unread("x");
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let known: BTreeSet<_> = types
        .map(|line| match line.split_once(' ').unwrap() {
            (name, "counter") => format!("{name}_total"),
            (name, _) => name.to_owned(),
        })
        .collect();
    assert!(known.len() > 8, "{known:?}");
    let rows =
        section("## What you see").lines().filter_map(|line| line.strip_prefix("| `konverge_")?.split('`').next());
    let rows: BTreeSet<_> = rows.map(|name| format!("konverge_{name}")).collect();
    assert_eq!(rows, known);
    let is_letter = |letter: char| letter.is_ascii_lowercase() || letter == '_';
    for named in words(PAGE, is_letter, |word| word.starts_with("konverge_roll_")) {
        assert!(known.contains(named), "there is no {named}");
    }
}

static FLAGS: LazyLock<Vec<Arg>> = LazyLock::new(|| {
    Config::command()
        .get_arguments()
        .filter(|flag| flag.get_long().is_some_and(|name| name != "help"))
        .cloned()
        .collect()
});

/// The row of a flag in the table.
fn row(flag: &Arg) -> String {
    let quoted = |text: String| if text.is_empty() { text } else { format!("`{text}`") };
    let variable = flag.get_env().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let defaults: Vec<_> = flag.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
    let (variable, default) = (quoted(variable), quoted(defaults.join(",")));
    format!("| `--{}` | {variable} | {default} | {help} |", flag.get_long().unwrap_or_default())
}

#[test]
fn the_table_of_flags_is_what_the_program_says_of_itself() {
    let rows: Vec<_> = FLAGS.iter().map(row).collect();
    assert!(rows.len() > 15, "{rows:?}");
    let told: Vec<_> = section("### Flags").lines().filter(|line| line.starts_with("| `")).collect();
    assert_eq!(told, rows, "docs/roll.md should have these rows:\n{}", rows.join("\n"));
}

#[test]
fn every_flag_that_the_page_names_is_one() {
    // Those of other programs.
    let others = ["release", "field-selector", "sync-after-restart", "auto-reload-all", "from-file"];
    let letter = |letter: char| letter.is_ascii_lowercase() || letter == '-';
    let named = PAGE.split("--").skip(1).map(|rest| rest.split(|next| !letter(next)).next().unwrap_or_default());
    for flag in named.filter(|flag| flag.starts_with(|first: char| first.is_ascii_lowercase())) {
        let is_one = FLAGS.iter().any(|known| known.get_long() == Some(flag));
        assert!(is_one || others.contains(&flag), "there is no --{flag}");
    }
}

#[test]
fn names_are_those_of_the_manifests_and_links_lead_somewhere() {
    let known = [
        include_str!("../../../../deploy/vault-rollout-operator.yaml"),
        include_str!("../../../../deploy/rbac/vault-rollout-operator.yaml"),
        "konverge-vault-rollout-operator",
    ]
    .concat();
    let is_letter = |letter: char| letter.is_ascii_lowercase() || "-.".contains(letter);
    for name in words(PAGE, is_letter, |word| word.contains("vault-rollout-operator")) {
        assert!(known.contains(name.trim_end_matches('.')), "nothing is called {name}");
    }
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    for link in PAGE.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
        let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
        assert!(file.contains("://") || docs.join(file).exists(), "{link} leads nowhere");
        let linked = Some(file).filter(|file| !file.is_empty() && !anchor.is_empty());
        let linked = linked.map(|file| std::fs::read_to_string(docs.join(file)).unwrap());
        let heading = |line: &str| line.trim_start_matches(['#', ' ']).to_lowercase().replace(' ', "-");
        let target = linked.as_deref().unwrap_or(PAGE);
        let is_there = target.lines().filter(|line| line.starts_with('#')).any(|line| heading(line) == anchor);
        assert!(anchor.is_empty() || is_there, "there is no heading for {link}");
    }
}
