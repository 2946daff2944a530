//! Flags and variables.

use std::collections::BTreeSet;

use clap::{Arg, CommandFactory};
use konverge_push::config::Config;

use super::{PAGE, PAGES, section, words};

fn flags() -> Vec<Arg> {
    let command = Config::command();
    let flags = command.get_arguments().filter(|flag| flag.get_long().is_some());
    flags.cloned().collect()
}

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
fn w26_the_table_of_flags_is_what_the_program_says_of_itself() {
    let rows: Vec<_> = flags().iter().map(row).collect();
    assert!(rows.len() > 30, "{rows:?}");
    let told: Vec<_> = section(PAGE, "### Flags").lines().filter(|line| line.starts_with("| `")).collect();
    assert_eq!(told, rows, "docs/push.md should have these rows:\n{}", rows.join("\n"));
}

#[test]
fn w26_every_flag_that_a_page_names_is_one() {
    let flags = flags();
    let known: Vec<_> = flags.iter().filter_map(Arg::get_long).collect();
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
fn w26_every_variable_is_explained_and_is_one() {
    let is_letter = |letter: char| letter.is_ascii_uppercase() || letter == '_';
    let is_variable = |word: &str| word.len() > 6 && word.starts_with("VAULT_");
    let read = include_str!("../../../../../stores/vault/src/environment.rs");
    let mut known: BTreeSet<_> = words(read, is_letter, is_variable).map(str::to_owned).collect();
    known.extend(flags().iter().filter_map(|flag| flag.get_env()).map(|name| name.to_string_lossy().into_owned()));
    for source in [include_str!("../../../src/runtime_info.rs"), include_str!("../../../src/run.rs")] {
        let is_it = |word: &str| ["GOMAXPROCS", "GOMEMLIMIT", "RUST_LOG"].contains(&word);
        known.extend(words(source, is_letter, is_it).map(str::to_owned));
    }
    assert!(known.len() > 50, "{known:?}");
    let is_any = |word: &str| is_variable(word) || ["GOMAXPROCS", "GOMEMLIMIT", "RUST_LOG"].contains(&word);
    let told: BTreeSet<_> = words(PAGE, is_letter, is_any).map(str::to_owned).collect();
    assert_eq!(told, known);
}
