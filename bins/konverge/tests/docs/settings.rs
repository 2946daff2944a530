//! Flags, variables, verbs and values of the chart.

use std::collections::BTreeSet;

use clap::{Command, CommandFactory};
use serde_json::Value;

use crate::{assert_none, pages, read, words};

// The command line of this package's own program.
#[path = "../../src/main.rs"]
#[expect(dead_code, reason = "only its command line is used, not its main")]
mod program;

fn commands() -> Vec<Command> {
    vec![
        program::Cli::command(),
        konverge_kubectl::command(),
        konverge_manage::config::Config::command(),
        konverge_pull::config::Config::command(),
        konverge_push::config::Config::command(),
        konverge_roll::config::Config::command(),
        konverge_zopp_cli::arguments::command(),
        konverge_zopp_server::args::Arguments::command(),
    ]
}

/// Adds the flags and variables of a command and of its verbs.
fn collect(command: &Command, flags: &mut BTreeSet<String>, variables: &mut BTreeSet<String>) {
    for argument in command.get_arguments() {
        flags.extend(argument.get_long().map(str::to_owned));
        flags.extend(argument.get_all_aliases().into_iter().flatten().map(str::to_owned));
        variables.extend(argument.get_env().map(|name| name.to_string_lossy().into_owned()));
    }
    for verb in command.get_subcommands() {
        collect(verb, flags, variables);
    }
}

fn flags_and_variables() -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut flags, mut variables) = (BTreeSet::new(), BTreeSet::new());
    for command in commands() {
        collect(&command, &mut flags, &mut variables);
    }
    assert!(flags.len() > 100 && variables.len() > 80, "{flags:?} {variables:?}");
    (flags, variables)
}

/// Flags of kubectl, helm, cargo, Reloader and others that the pages show.
const OTHERS: [&str; 54] = [
    "admission-control-config-file",
    "all-namespaces",
    "auto-annotation",
    "auto-reload-all",
    "cascade",
    "cert",
    "check",
    "clusterrole",
    "count",
    "create-namespace",
    "debug-queues",
    "decode",
    "enable-ha",
    "field-selector",
    "for",
    "from",
    "from-file",
    "from-literal",
    "help",
    "ignore-not-found",
    "ignored-workload-types",
    "image",
    "install",
    "keep",
    "key",
    "namespace",
    "namespace-selector",
    "namespaces-to-ignore",
    "no-run-if-empty",
    "package",
    "patch",
    "profile",
    "quick",
    "release",
    "reload-on-create",
    "reload-on-delete",
    "reload-strategy",
    "replicas",
    "reset-then-reuse-values",
    "resource-label-selector",
    "resources-to-ignore",
    "selector",
    "server-side",
    "serviceaccount",
    "set",
    "set-json",
    "skip-tests",
    "sync-after-restart",
    "target",
    "type",
    "values",
    "version",
    "webhook-url",
    "zap-",
];

#[test]
fn every_flag_on_a_page_is_one() {
    let (known, _) = flags_and_variables();
    let letter = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    let mut faults = Vec::new();
    for page in pages() {
        for (at, _) in page.text.match_indices("--") {
            let before = page.text[..at].chars().next_back();
            if before.is_some_and(|before| before == '-' || before.is_alphanumeric()) {
                continue;
            }
            let flag = page.text[at + 2..].split(|next| !letter(next)).next().unwrap_or_default();
            let is_flag = flag.starts_with(|first: char| first.is_ascii_lowercase());
            if is_flag && !known.contains(flag) && !OTHERS.contains(&flag) {
                faults.push(format!("{}: --{flag}", page.path));
            }
        }
    }
    assert_none("there are no such flags", &faults);
}

#[test]
fn every_variable_on_a_page_is_one() {
    let (_, known) = flags_and_variables();
    let of_vault = read("docs/reference/vault-variables.md");
    let of_zopp = konverge_zopp_cli::arguments::command().get_after_help().expect("examples").to_string();
    let is_letter = |letter: char| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_';
    let prefixes = ["VAULT_", "ROLLOUT_", "ZOPP_", "KONVERGE_", "OPENZRO_", "OZ_"];
    let mut faults = Vec::new();
    // `OPENZRO_MANAGEMENT_URL` is read by the plugin of kubectl, and the others by the client of openZro in sidecars.
    let elsewhere = ["OPENZRO_MANAGEMENT_URL", "OZ_HOSTNAME", "OZ_LOG_LEVEL", "OZ_MANAGEMENT_URL"];
    // The page of zopp is generated from the command line, whose help names variables that the command reads by itself.
    let others = ["vault-variables.md", "reference/zopp.md"];
    for page in pages().iter().filter(|page| !others.iter().any(|other| page.path.ends_with(other))) {
        for word in words(&page.text, is_letter) {
            let is_variable = prefixes.iter().any(|prefix| word.starts_with(prefix) && word.len() > prefix.len());
            if is_variable
                && !elsewhere.contains(&word)
                && !known.contains(word)
                && !of_vault.contains(&format!("`{word}`"))
                && !of_zopp.contains(word)
            {
                faults.push(format!("{}: {word}", page.path));
            }
        }
    }
    assert_none("there are no such variables", &faults);
}

#[test]
fn every_verb_of_the_plugin_on_a_page_is_one() {
    let known: BTreeSet<String> =
        konverge_kubectl::command().get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    let mut faults = Vec::new();
    for page in pages() {
        for rest in page.text.split("kubectl konverge ").skip(1) {
            let verb = rest.split(|next: char| !next.is_ascii_lowercase()).next().unwrap_or_default();
            // Sentences go on behind the name.
            let is_command = !verb.is_empty() && !["shows", "finds", "checks", "needs", "tells"].contains(&verb);
            if is_command && !known.contains(verb) {
                faults.push(format!("{}: kubectl konverge {verb}", page.path));
            }
        }
    }
    assert_none("there are no such verbs", &faults);
}

#[test]
fn values_of_the_chart_that_pages_set_are_there() {
    let values: Value = serde_saphyr::from_str(&read("deploy/charts/konverge/values.yaml")).unwrap();
    let mut faults = Vec::new();
    let mut count = 0;
    for page in pages() {
        for set in page.text.split("--set ").skip(1) {
            let path = set.split('=').next().unwrap().trim_start_matches('\'');
            count += 1;
            // The names in these are free.
            let free = [".labels.", ".workspaceFingerprints."];
            let path =
                free.iter().find_map(|free| Some(path.split_at(path.find(free)? + free.len() - 1).0)).unwrap_or(path);
            if values.pointer(&format!("/{}", path.replace('.', "/"))).is_none() {
                faults.push(format!("{}: {path}", page.path));
            }
        }
    }
    assert!(count > 8, "{count}");
    assert_none("the chart has no such values", &faults);
}
