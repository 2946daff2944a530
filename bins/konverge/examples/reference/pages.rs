//! The text of each page.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    fmt::Write,
};

use clap::{Command, CommandFactory};
use konverge_gen::{
    Files, reference,
    watching::{Alert, Watching},
};
use konverge_jobs::reference::{Annotation, Reason};
use konverge_kubectl::Permission;
use serde_json::Value;

use crate::{framework, manage, program, uses, watched};

const GENERATED: &str = "<!-- Generated; change the code instead. -->\n";

/// The operators that do not come from the framework, by job.
const OPERATORS: [(&str, &str); 3] =
    [("Pull", "zopp-operator"), ("Push", "vault-sync-operator"), ("Roll", "vault-rollout-operator")];

/// The one that does.
const MANAGE: (&str, &str) = ("Manage", konverge_manage::program::PROGRAM);

fn table<const N: usize>(text: &mut String, head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "| {} |\n|{}", head.join(" | "), "---|".repeat(N));
    for row in rows {
        let cells = row.map(|cell| cell.replace('|', "\\|").replace('\n', " "));
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
}

fn code(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("`{text}`") }
}

/// Annotations and the finalizer, by job.
pub(crate) fn annotations() -> String {
    let mut text = format!(
        "{GENERATED}# Annotations\n\nAnnotations are on the object itself, not on its pod template, unless the table says otherwise. Those of \
         Reloader and wave are on the pages of [Reloader](../migrate/reloader.md#annotations) and [wave](../migrate/wave.md#annotations).\n"
    );
    for (job, entries) in [
        ("Pull", konverge_pull::annotations::ANNOTATIONS),
        ("Push", konverge_push::annotations::ANNOTATIONS),
        ("Roll", konverge_roll::annotations::ANNOTATIONS),
        ("Manage", konverge_manage::annotations::ANNOTATIONS),
    ] {
        let _ = write!(text, "\n## {job}\n\n");
        let row = |entry: &Annotation| {
            [code(entry.name), entry.on.to_owned(), entry.meaning.to_owned(), entry.otherwise.to_owned()]
        };
        table(&mut text, ["Annotation", "On", "Meaning", "An invalid value"], entries.iter().map(row));
    }
    text
}

/// Flags and variables, by program.
pub(crate) fn flags() -> String {
    let mut text = format!(
        "{GENERATED}# Flags and variables\n\nA flag overrides its variable. A flag without a variable in the table can only be given on the command line. \
         push and roll also read [the variables of Vault's client](vault-variables.md). `RUST_LOG` sets the log level of every program. The flags of \
         [`kubectl konverge`](kubectl-commands.md) and of [`zopp`](zopp.md) have pages of their own.\n"
    );
    let konverge = program::Cli::command();
    let of_konverge = |name: &str| konverge.find_subcommand(name).cloned().unwrap_or_default();
    for (name, command) in [
        ("zopp-operator", konverge_pull::config::Config::command()),
        ("vault-sync-operator", konverge_push::config::Config::command()),
        ("vault-rollout-operator", konverge_roll::config::Config::command()),
        (MANAGE.1, konverge_manage::config::Config::command()),
        ("konverge run", of_konverge("run")),
        ("konverge migrate", of_konverge("migrate")),
    ] {
        let _ = write!(text, "\n## {name}\n\n{}", reference::flags(&command));
    }
    let server = konverge_zopp_server::args::Arguments::command();
    let _ = write!(text, "\n## zopp-server\n\n{}", reference::flags(&server));
    verbs(&mut text, "zopp-server", &server);
    text
}

/// The flags of each verb that has some.
fn verbs(text: &mut String, name: &str, command: &Command) {
    for verb in command.get_subcommands().filter(|verb| verb.get_name() != "help") {
        let name = format!("{name} {}", verb.get_name());
        let has_flags = verb.get_arguments().any(|argument| argument.get_long().is_some() && !argument.is_hide_set());
        if has_flags {
            let _ = write!(text, "\n### {name}\n\n{}", reference::flags(verb));
        }
        verbs(text, &name, verb);
    }
}

/// The commands of `zopp`, with their flags.
pub(crate) fn zopp() -> String {
    let command = konverge_zopp_cli::arguments::command();
    let mut text = format!(
        "{GENERATED}# `zopp`\n\nThe commands and their flags. [Its own page](../../stores/zopp/cli/README.md) shows how to use them.\n\n\
         ## Every command\n\n`--output text|json|yaml|table`, or `--format`, chooses how the answer is printed.\n\n{}",
        reference::flags(&without_format(&command))
    );
    commands(&mut text, "zopp", &command);
    text
}

/// The verbs of `kubectl konverge`, with their operands and flags.
pub(crate) fn kubectl() -> String {
    let command = konverge_kubectl::command();
    let mut text = format!(
        "{GENERATED}# `kubectl konverge`: commands and flags\n\nEvery command with its operands and flags. [Its own page](kubectl.md) shows what each \
         prints, and what the exit codes mean.\n\n## Every command\n\n{}",
        reference::flags(&command)
    );
    commands(&mut text, "kubectl konverge", &command);
    text
}

/// A section for each command without commands of its own.
fn commands(text: &mut String, name: &str, command: &Command) {
    for command in command.get_subcommands().filter(|command| command.get_name() != "help" && !command.is_hide_set()) {
        let name = format!("{name} {}", command.get_name());
        if command.has_subcommands() {
            commands(text, &name, command);
            continue;
        }
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let _ = write!(text, "\n## {name}\n\n{about}.\n");
        let operands: Vec<_> = command.get_positionals().map(ToString::to_string).collect();
        if !operands.is_empty() {
            let _ = write!(text, "\n    {name} {}\n", operands.join(" "));
        }
        let table = reference::operands(command);
        if !table.is_empty() {
            let _ = write!(text, "\n{table}");
        }
        let command = without_format(command);
        if command.get_arguments().any(|argument| argument.get_long().is_some() && !argument.is_hide_set()) {
            let _ = write!(text, "\n{}", reference::flags(&command));
        }
    }
}

/// The command without the flag that all of them have.
fn without_format(command: &Command) -> Command {
    let format = command.get_arguments().find(|argument| argument.get_id() == "output-format").map(clap::Arg::get_id);
    match format.cloned() {
        Some(format) => command.clone().mut_arg(format, |argument| argument.hide(true)),
        None => command.clone(),
    }
}

/// Reasons, by job, then those of the framework.
pub(crate) fn reasons() -> Result<String, String> {
    let mut text = format!(
        "{GENERATED}# Reasons\n\nReasons are in events, conditions, the recorded state and metrics. An object has each event once, until the operator \
         has something else to say. [By symptom](../troubleshooting/symptoms.md) starts from what you see.\n"
    );
    for (job, entries) in [
        ("Pull", konverge_pull::reasons::REASONS),
        ("Push", konverge_push::reasons::REASONS),
        ("Roll", konverge_roll::reasons::REASONS),
        ("Manage", konverge_manage::reasons::REASONS),
    ] {
        let _ = write!(text, "\n## {job}\n\n");
        let row =
            |entry: &Reason| [code(entry.reason), entry.on.to_owned(), entry.cause.to_owned(), entry.next.to_owned()];
        table(&mut text, ["Reason", "On", "Cause", "Next step"], entries.iter().map(row));
    }
    let _ = write!(
        text,
        "\n## Failed writes to the API server\n\nEvery job, and every operator that is made with the framework, can report these.\n\n"
    );
    let next: BTreeMap<&str, &str> = framework::NEXT.iter().copied().collect();
    let known: BTreeSet<&str> = konverge_core::reasons::ALL.iter().map(|(reason, _)| *reason).collect();
    let listed: BTreeSet<&str> = next.keys().copied().collect();
    if known != listed {
        let differs: Vec<_> = known.symmetric_difference(&listed).collect();
        return Err(format!("framework.rs and konverge_core::reasons differ: {differs:?}"));
    }
    let rows = konverge_core::reasons::ALL
        .iter()
        .map(|(reason, meaning)| [code(reason), format!("{meaning}."), next[reason].to_owned()]);
    table(&mut text, ["Reason", "Cause", "Next step"], rows);
    Ok(text)
}

/// Metrics, by job and of the zopp server, then those of all jobs.
pub(crate) fn metrics(of_manage: &Files) -> Result<String, String> {
    let mut text = format!(
        "{GENERATED}# Metrics\n\nThe names are those of a scrape. No label names an object, except in those metrics of push that have the \
         original's names; each of these has at most a thousand series. A histogram also has `_bucket`, `_sum` and `_count`.\n"
    );
    for ((job, program), watched) in OPERATORS.iter().zip(&watched::JOBS) {
        let _ = write!(text, "\n## {job}\n\nOf `{program}`.\n\n{}", watched.own_metrics());
    }
    let common = watched::JOBS[0].common_metrics();
    let (job, program) = MANAGE;
    let own = manage::own_metrics(of_manage, &common)?;
    let _ = write!(text, "\n## {job}\n\nOf `{program}`.\n\n{own}");
    let server = &watched::SERVER;
    let _ = write!(text, "\n## The zopp server\n\nOf `{}`.\n\n{}", server.program, server.own_metrics());
    let _ = write!(text, "\n## All jobs\n\nSome have a value only after the first run, request or event.\n\n{common}");
    Ok(text)
}

/// The section of an alert.
struct Section {
    name: String,
    summary: String,
    runbook: String,
    condition: String,
    severity: String,
    since: String,
}

impl Section {
    /// The section of an alert of this program.
    fn of(alert: &Alert, watching: &Watching<'_>, program: &str) -> Self {
        let condition = watching.condition(alert).replace(" $mine", "").replace("$program", "PROGRAM");
        Self {
            name: alert.name.to_owned(),
            summary: plain(alert.summary, named(alert.name, program)),
            runbook: alert.runbook.to_owned(),
            condition: condition.replace("$stuck", "1.5 * TIME_LIMIT"),
            severity: alert.severity.to_owned(),
            since: alert.since.to_owned(),
        }
    }

    /// The section of an alert that stands in a rule of this program.
    fn of_rule(rule: &Value, program: &str) -> Self {
        let text = |pointer: &str| rule.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let name = text("/alert");
        let mine = format!(" and on (job, instance) konverge_build_info{{program={program:?}}}");
        Self {
            summary: plain(&text("/annotations/summary").replace(program, "$program"), named(&name, program)),
            name,
            runbook: text("/annotations/runbook").replace(program, "the program"),
            condition: text("/expr").replace(&mine, "").replace(program, "PROGRAM"),
            severity: text("/labels/severity"),
            since: text("/for"),
        }
    }

    fn is_of_every_job(&self) -> bool {
        is_of_every_job(&self.name)
    }
}

fn is_of_every_job(alert: &str) -> bool {
    alert.starts_with("Operator")
}

/// The name of the program in the summary of an alert.
fn named<'a>(alert: &str, program: &'a str) -> &'a str {
    if is_of_every_job(alert) { "the program" } else { program }
}

/// Each alert with its condition and its runbook. The anchors are those of `runbook_url`.
pub(crate) fn alerts(of_manage: &Files) -> Result<String, Box<dyn Error>> {
    let mut text = format!(
        "{GENERATED}# Alerts\n\n`prometheusRule.enabled=true` of the chart installs these alerts. Each has the labels `program` and `severity`. The alerts of one job \
         or of the zopp server come first, then those of every job that has the series. Words in capitals stand for labels of the alert, and N for its value.\n\n\
         One outage fires one alert: `unless` keeps an alert silent while another alert is about the same fault. The conditions of the alerts of every job are shown here without these \
         clauses; the rules of each job contain them.\n"
    );
    let mut sections = Vec::new();
    for watched in watched::JOBS.iter().chain([&watched::SERVER]) {
        let series = watched.series();
        let watching = watched.watching(&series)?;
        sections.extend(watching.chosen_alerts().map(|alert| Section::of(alert, &watching, watched.program)));
    }
    let of_manage = manage::alerts(of_manage)?;
    let rules = of_manage.pointer("/groups/0/rules").and_then(Value::as_array);
    sections.extend(rules.into_iter().flatten().map(|rule| Section::of_rule(rule, MANAGE.1)));
    let (of_all, of_job): (Vec<_>, Vec<_>) = sections.into_iter().partition(Section::is_of_every_job);
    let mut common: BTreeMap<String, Section> = BTreeMap::new();
    for mut section in of_all {
        // The clauses of one job are not those of another.
        section.condition.truncate(section.condition.find(" unless on (").unwrap_or(section.condition.len()));
        common.entry(section.name.clone()).or_insert(section);
    }
    for section in of_job.into_iter().chain(common.into_values()) {
        let Section { name, summary, runbook, condition, severity, since } = section;
        let runbook = runbook.replace('<', "&lt;");
        let _ = write!(
            text,
            "\n## {name}\n\n{summary}.\n\n{runbook}\n\n```promql\n{condition}\n```\n\nSeverity `{severity}`, after {since}.\n"
        );
    }
    Ok(text)
}

/// Returns a summary with the names of labels, in capitals, in place of their values.
fn plain(summary: &str, program: &str) -> String {
    let summary = summary.replace("{{ $value }}", "N");
    let mut parts = summary.split("{{ $labels.");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (label, rest) = part.split_once(" }}").unwrap_or((part, ""));
        let _ = write!(text, "`{}`{rest}", label.to_uppercase());
    }
    let text = text.replace("$program", program).replace("$stuck seconds", "one and a half time limits");
    match text.strip_prefix("the ") {
        Some(rest) => format!("The {rest}"),
        None => text,
    }
}

/// The permissions of each program, with every feature.
pub(crate) fn roles() -> Result<String, Box<dyn Error>> {
    let mut text = format!(
        "{GENERATED}# Roles\n\nThe permissions that each operator uses with leader election, with authentication of the readers of its metrics, and with every kind. *Cluster* means all namespaces; with `--namespace` it \
         is that namespace. The chart and the files in `deploy/rbac` grant exactly these. `kubectl konverge doctor` checks them.\n"
    );
    let arguments = |list: &[&str]| list.iter().map(|&one| one.to_owned()).collect::<Vec<_>>();
    let of_manage = ["--openzro-api-key-file=/nowhere", "--enable-metrics-auth", "--gateway-api-enabled"];
    for ((job, program), permissions) in OPERATORS.iter().chain([&MANAGE]).zip([
        uses::pull(&arguments(&["--leader-elect", "--enable-metrics-auth"]))?,
        uses::push(&arguments(&["--leader-elect"]))?,
        uses::roll(&arguments(&["--leader-elect", "--enable-metrics-auth", "--vault-addr=https://vault"]))?,
        manage::used(&of_manage)?.into_iter().collect(),
    ]) {
        let _ = write!(text, "\n## {job}\n\nOf `{program}`.\n\n");
        let mut verbs: BTreeMap<[String; 4], BTreeSet<String>> = BTreeMap::new();
        for permission in &permissions {
            let (place, verb) = place_and_verb(permission);
            verbs.entry(place).or_default().insert(verb);
        }
        let rows = verbs.into_iter().map(|([place, group, resource, name], verbs)| {
            let verbs: Vec<_> = verbs.iter().map(|verb| code(verb)).collect();
            [
                place,
                code(if group.is_empty() { "core" } else { &group }),
                code(&resource),
                code(&name),
                verbs.join(", "),
            ]
        });
        table(&mut text, ["Where", "API group", "Resource", "Name", "Verbs"], rows);
    }
    Ok(text)
}

/// Returns the place, group, resource and name of a permission, and its verb.
fn place_and_verb(permission: &Permission) -> ([String; 4], String) {
    let rule = permission.rule();
    let one = |texts: Option<Vec<String>>| texts.into_iter().flatten().next().unwrap_or_default();
    let place = permission.namespace().map_or("cluster", |_| "own namespace").to_owned();
    let resource = if rule.non_resource_urls.is_some() { one(rule.non_resource_urls) } else { one(rule.resources) };
    ([place, one(rule.api_groups), resource, one(rule.resource_names)], rule.verbs.concat())
}
