//! Pages in which people look things up.

use std::fmt::Write;

use prometheus_client::registry::Registry;

/// A table of the flags that a command shows: name, variable, default, meaning.
#[cfg(feature = "cli")]
pub fn flags(command: &clap::Command) -> String {
    let mut page = "| Flag | Variable | Default | Meaning |\n|---|---|---|---|\n".to_owned();
    for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
        let Some(name) = argument.get_long() else { continue };
        let value = argument.get_value_names().and_then(|names| names.first()).map(|name| format!(" {name}"));
        let value = value.filter(|_| argument.get_action().takes_values()).unwrap_or_default();
        let variable = argument.get_env().map(|variable| variable.to_string_lossy()).unwrap_or_default();
        let default: Vec<_> = argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        let meaning = argument.get_help().map(ToString::to_string).unwrap_or_default();
        row(&mut page, &[&format!("`--{name}{value}`"), &code(&variable), &code(&default.join(",")), &meaning]);
    }
    page
}

/// A table of the series in a registry: name and meaning, by name.
pub fn metrics(registry: &Registry) -> String {
    let mut page = "| Metric | Meaning |\n|---|---|\n".to_owned();
    let mut series = described(registry);
    series.sort();
    series.dedup();
    for (name, help) in series {
        row(&mut page, &[&code(&name), &help]);
    }
    page
}

/// A table of words with a fixed meaning, such as the reasons of conditions and events.
pub fn words(title: &str, words: &[(&str, &str)]) -> String {
    let mut page = format!("| {title} | Meaning |\n|---|---|\n");
    for (word, meaning) in words {
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

/// Name and help of each series. The registry tells them in its debug form only: its text form leaves out series that have no
/// value yet, which in a program that does not run is nearly all of them.
pub(crate) fn described(registry: &Registry) -> Vec<(String, String)> {
    let text = format!("{registry:?}");
    let mut series = Vec::new();
    let mut rest = text.as_str();
    while let Some((name, after)) = quoted(rest, "Descriptor { name: ") {
        let Some((help, after)) = quoted(after, "help: ") else { break };
        series.push((name, help.trim_end_matches('.').to_owned()));
        rest = after;
    }
    series
}

/// The quoted text after `marker`, and what follows it.
fn quoted<'a>(text: &'a str, marker: &str) -> Option<(String, &'a str)> {
    let start = text.find(marker)? + marker.len();
    let mut deserializer = serde_json::Deserializer::from_str(&text[start..]).into_iter::<String>();
    let word = deserializer.next()?.ok()?;
    Some((word, &text[start + deserializer.byte_offset()..]))
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge};

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

    #[cfg(feature = "cli")]
    #[test]
    fn flags_come_with_variable_and_default() {
        use clap::{Arg, ArgAction};
        let command = clap::Command::new("test")
            .arg(Arg::new("a").long("address").env("ADDRESS").default_value("x").value_name("HOST").help("Where"))
            .arg(Arg::new("b").long("on").action(ArgAction::SetTrue).help("This | or that"));
        assert_eq!(
            flags(&command),
            "| Flag | Variable | Default | Meaning |\n|---|---|---|---|\n\
             | `--address HOST` | `ADDRESS` | `x` | Where |\n| `--on` |  |  | This \\| or that |\n"
        );
    }
}
