//! Pages in which people look things up.

mod fields;

use std::{collections::BTreeSet, fmt::Write};

pub use self::fields::fields;
use prometheus_client::{encoding::text::encode, registry::Registry};

/// A table of the flags that a command shows: name, variable, default, meaning. A flag of a fixed choice has its values at the end of the meaning.
#[cfg(feature = "cli")]
pub fn flags(command: &clap::Command) -> String {
    let mut page = "| Flag | Variable | Default | Meaning |\n|---|---|---|---|\n".to_owned();
    for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
        let Some(name) = argument.get_long() else { continue };
        let value = argument.get_value_names().and_then(|names| names.first()).map(|name| format!(" {name}"));
        let value = value.filter(|_| argument.get_action().takes_values()).unwrap_or_default();
        let variable = argument.get_env().map(|variable| variable.to_string_lossy()).unwrap_or_default();
        let default: Vec<_> = argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        let short = argument.get_short().map(|short| format!("`-{short}`, ")).unwrap_or_default();
        let meaning = argument.get_help().map(ToString::to_string).unwrap_or_default() + &choice(argument);
        row(&mut page, &[&format!("{short}`--{name}{value}`"), &code(&variable), &code(&default.join(",")), &meaning]);
    }
    page
}

/// A table of the operands that a command shows: name and meaning. Empty if there are none.
#[cfg(feature = "cli")]
pub fn operands(command: &clap::Command) -> String {
    let mut page = String::new();
    for operand in command.get_positionals().filter(|operand| !operand.is_hide_set()) {
        if page.is_empty() {
            page.push_str("| Operand | Meaning |\n|---|---|\n");
        }
        let name = operand.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
        let meaning = operand.get_help().map(ToString::to_string).unwrap_or_default() + &choice(operand);
        row(&mut page, &[&code(&name.unwrap_or_default()), &meaning]);
    }
    page
}

/// The values of an argument that has a fixed choice of them, unless its name lists them already.
#[cfg(feature = "cli")]
fn choice(argument: &clap::Arg) -> String {
    let named = argument.get_value_names().into_iter().flatten().any(|name| name.contains('|'));
    let values: Vec<_> = argument.get_possible_values().iter().map(|value| code(value.get_name())).collect();
    // Those of a boolean say nothing.
    if !argument.get_action().takes_values() || named || values.is_empty() || values == ["`true`", "`false`"] {
        return String::new();
    }
    format!(" [values: {}]", values.join(", "))
}

/// A table of the series in a registry: the name that a scrape shows, and the meaning, by name.
///
/// A counter is scraped with the suffix `_total`, and an info with `_info`. The registry does not tell the type of a family of series that has no value yet. For the families of
/// Konverge it is known; any other family shows as a counter once it has a value.
pub fn metrics(registry: &Registry) -> String {
    let mut page = "| Metric | Meaning |\n|---|---|\n".to_owned();
    let (counters, infos) = (of_type(registry, "counter"), of_type(registry, "info"));
    let is_counter = |series: &Described| {
        series.is_counter || counters.contains(&series.name) || FAMILIES_OF_COUNTERS.contains(&series.name.as_str())
    };
    let series = described(registry).into_iter().map(|series| {
        let is_info = infos.contains(&series.name);
        let suffix = if is_counter(&series) {
            "_total"
        } else if is_info {
            "_info"
        } else {
            ""
        };
        (format!("{}{suffix}", series.name), series.help)
    });
    for (name, help) in series.collect::<BTreeSet<_>>() {
        row(&mut page, &[&code(&name), &help]);
    }
    page
}

/// The counters of the framework that are families, and so have no value before the first run, request or event.
const FAMILIES_OF_COUNTERS: [&str; 19] = [
    "controller_runtime_reconcile",
    "controller_runtime_reconcile_errors",
    "controller_runtime_reconcile_panics",
    "controller_runtime_reconcile_timeouts",
    "controller_runtime_terminal_reconcile_errors",
    "controller_runtime_webhook_requests",
    "konverge_cache_events",
    "konverge_events",
    "konverge_external_changes",
    "konverge_external_errors",
    "konverge_external_polls",
    "konverge_reconcile_errors",
    "konverge_remote_drift_corrected",
    "konverge_remote_drift_found",
    "konverge_remote_writes",
    "leader_election_slowpath",
    "rest_client_requests",
    "workqueue_adds",
    "workqueue_retries",
];

/// The names of the series of this type that have a value.
fn of_type(registry: &Registry, kind: &str) -> BTreeSet<String> {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = encode(&mut text, registry);
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.rsplit_once(' '));
    types.filter(|(_, found)| *found == kind).map(|(name, _)| name.to_owned()).collect()
}

/// A table of words with a fixed meaning, such as the reasons of conditions and events.
pub fn glossary(title: &str, terms: &[(&str, &str)]) -> String {
    let mut page = format!("| {title} | Meaning |\n|---|---|\n");
    for (word, meaning) in terms {
        row(&mut page, &[&code(word), meaning]);
    }
    page
}

fn code(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("`{text}`") }
}

fn row(page: &mut String, cells: &[&str]) {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|").replace('\n', " ")).collect();
    // Writing to a string cannot fail.
    let _ = writeln!(page, "| {} |", cells.join(" | "));
}

/// A series of a registry.
pub(crate) struct Described {
    /// The name without the suffix of its type.
    pub(crate) name: String,
    help: String,
    /// Whether it is one counter; a family of counters is not known as such.
    is_counter: bool,
}

/// Each series. The registry tells them in its debug form only: its text form leaves out series that have no
/// value yet, which in a program that does not run is nearly all of them.
pub(crate) fn described(registry: &Registry) -> Vec<Described> {
    let text = format!("{registry:?}");
    let mut series = Vec::new();
    let (mut rest, mut prefix) = (text.as_str(), String::new());
    // A registry tells its whole prefix, then its own series, then the registries within it.
    while let Some(start) = rest.find(DESCRIPTOR) {
        if let Some(begin) = rest[..start].rfind(REGISTRY) {
            let named = quoted(&rest[begin..start], "Registry { prefix: Some(Prefix(");
            prefix = named.map(|(prefix, _)| prefix + "_").unwrap_or_default();
        }
        let Some((name, after)) = quoted(&rest[start..], DESCRIPTOR) else { break };
        let Some((help, after)) = quoted(after, "help: ") else { break };
        let metric = after.split_once("}, ").map_or("", |(_, metric)| metric);
        let is_counter = metric.starts_with("Counter {") || metric.starts_with("ConstCounter {");
        let help = help.trim_end_matches('.').to_owned();
        series.push(Described { name: format!("{prefix}{name}"), help, is_counter });
        rest = after;
    }
    series
}

const REGISTRY: &str = "Registry { prefix: ";
const DESCRIPTOR: &str = "Descriptor { name: ";

/// The quoted text after `marker`, and what follows it.
fn quoted<'a>(text: &'a str, marker: &str) -> Option<(String, &'a str)> {
    let start = text.find(marker)? + marker.len();
    let mut deserializer = serde_json::Deserializer::from_str(&text[start..]).into_iter::<String>();
    let word = deserializer.next()?.ok()?;
    Some((word, &text[start + deserializer.byte_offset()..]))
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge, info::Info};

    use super::*;

    #[test]
    fn row_39_series_without_a_value_are_described_too() {
        let mut registry = Registry::default();
        registry.register("b_total_things", "Things, \"counted\"", Family::<Vec<(String, String)>, Counter>::default());
        registry.register("a", "The first", Gauge::<i64>::default());
        assert_eq!(
            metrics(&registry),
            "| Metric | Meaning |\n|---|---|\n| `a` | The first |\n| `b_total_things` | Things, \"counted\" |\n"
        );
    }

    #[test]
    fn counters_have_the_name_that_a_scrape_shows() {
        let mut registry = Registry::default();
        registry.register("one", "A counter", Counter::<u64>::default());
        registry.register("waiting", "A gauge", Gauge::<i64>::default());
        registry.register("workqueue_adds", "A family of ours", Family::<Vec<(String, String)>, Counter>::default());
        let touched = Family::<Vec<(String, String)>, Counter>::default();
        touched.get_or_create(&vec![("result".to_owned(), "done".to_owned())]).inc();
        registry.sub_registry_with_prefix("job").register("runs", "A family with a value", touched);
        registry.register("build", "An info", Info::new([("version", "1")]));
        let names: Vec<_> =
            metrics(&registry).lines().skip(2).map(|line| line.split('`').nth(1).unwrap().to_owned()).collect();
        assert_eq!(names, ["build_info", "job_runs_total", "one_total", "waiting", "workqueue_adds_total"]);
    }

    #[cfg(feature = "cli")]
    #[test]
    fn flags_come_with_variable_and_default() {
        use clap::{Arg, ArgAction};
        let command = clap::Command::new("test")
            .arg(Arg::new("a").long("address").env("ADDRESS").default_value("x").value_name("HOST").help("Where"))
            .arg(Arg::new("b").long("on").action(ArgAction::SetTrue).help("This | or that"))
            .arg(Arg::new("c").short('c').long("color").value_parser(["red", "blue"]).value_name("NAME").help("Which"))
            .arg(Arg::new("d").long("form").value_parser(["x", "y"]).value_name("x|y").help("How"))
            .arg(Arg::new("e").long("yes").value_parser(clap::value_parser!(bool)).value_name("BOOL").help("Whether"))
            .arg(Arg::new("f").value_parser(["bash", "zsh"]).value_name("SHELL").help("Which shell"));
        assert_eq!(
            flags(&command),
            "| Flag | Variable | Default | Meaning |\n|---|---|---|---|\n\
             | `--address HOST` | `ADDRESS` | `x` | Where |\n| `--on` |  |  | This \\| or that |\n\
             | `-c`, `--color NAME` |  |  | Which [values: `red`, `blue`] |\n| `--form x\\|y` |  |  | How |\n\
             | `--yes BOOL` |  |  | Whether |\n"
        );
        assert_eq!(
            operands(&command),
            "| Operand | Meaning |\n|---|---|\n| `SHELL` | Which shell [values: `bash`, `zsh`] |\n"
        );
        assert_eq!(operands(&clap::Command::new("none")), "");
    }
}
