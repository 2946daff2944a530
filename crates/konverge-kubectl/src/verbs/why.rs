//! One object in words: its spec, its state, and the next step.

use jiff::Timestamp;
use serde::Serialize;

use super::concerned;
use crate::{
    Cluster, Examined, Fact, Failure, Grade, ObjectHealth, RequestedAction,
    arguments::Form,
    events::{self, Said},
    output::print,
    target::One,
    text::{age, harmless, when, wrapped},
};

/// The column in which sentences begin.
const INDENT: usize = 14;

/// The width of a line.
const WIDTH: usize = 100;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    kind: String,
    namespace: String,
    name: String,
    jobs: Vec<Section>,
    /// How the object can opt in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    could: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Section {
    job: &'static str,
    #[serde(flatten)]
    health: ObjectHealth,
    facts: Vec<Fact>,
    events: Vec<Said>,
    /// Why the events could not be listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    events_error: Option<String>,
    next: String,
}

pub(super) async fn run(jobs: &[Box<dyn Examined>], one: &One, cluster: &Cluster, form: Form) -> Result<bool, Failure> {
    let object = cluster.get(one).await?;
    let mut page = Page {
        kind: one.kind.resource.kind.clone(),
        namespace: object.metadata.namespace.clone().unwrap_or_default(),
        name: one.name.clone(),
        jobs: Vec::new(),
        could: Vec::new(),
    };
    for (job, health) in concerned(jobs, one, &object) {
        let facts = job.explain(cluster, &one.kind, &object).await;
        let (events, events_error) = match events::of(cluster, job.operator(), &object).await {
            Ok(events) => (events, None),
            Err(failure) => (Vec::new(), Some(failure.to_string())),
        };
        let sync = job.annotation_for(&object, &RequestedAction::Sync(String::new())).is_ok();
        let sync = sync.then_some(if job.acknowledges() { " --wait" } else { "" });
        let is_held = facts.iter().any(|fact| fact.about == Fact::HELD_BACK);
        let next = next(one, &health, sync, is_held);
        page.jobs.push(Section { job: job.name(), health, facts, events, events_error, next });
    }
    if page.jobs.is_empty() {
        let able = jobs.iter().filter(|job| job.kinds().iter().any(|kind| kind.is(&one.kind)));
        page.could = able.map(|job| job.how_to_opt_in(&one.kind, &one.name)).collect();
    }
    print(form, &page, || render(one, &page, Timestamp::now()))?;
    Ok(page.jobs.iter().all(|section| section.health.grade == Grade::InSync))
}

/// Returns the next step. `sync` are the flags of the verb, if the job can be asked. `is_held`: a fact names what holds the object back.
fn next(one: &One, health: &ObjectHealth, sync: Option<&str>, is_held: bool) -> String {
    match health.grade {
        Grade::InSync if is_held => "remove the cause that holds it back, or wait until it is gone".to_owned(),
        Grade::InSync => "nothing to do".to_owned(),
        Grade::Paused => format!("kubectl konverge resume {one}"),
        Grade::Waiting if health.state == "Pending" => {
            "kubectl konverge doctor shows whether an operator runs".to_owned()
        }
        Grade::Waiting => {
            "wait until the cause that is named above is gone, or remove it; kubectl konverge doctor shows whether an operator runs"
                .to_owned()
        }
        Grade::Wrong => match sync {
            Some(flags) => format!(
                "fix the cause that is named above; the operator notices it by itself, and kubectl konverge sync {one}{flags} makes it try at once"
            ),
            None => "fix the cause that is named above; the operator notices it by itself".to_owned(),
        },
    }
}

fn render(one: &One, page: &Page, now: Timestamp) -> String {
    let mut text = format!("{one}{}\n", one.kind.place(&page.namespace));
    if page.jobs.is_empty() {
        text.push_str("\nIt has not opted in, so no operator of Konverge works on it.\n");
        for could in &page.could {
            text.push('\n');
            for line in could.lines() {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    for section in &page.jobs {
        let Section { job, health, facts, events, events_error, next } = section;
        text.push_str(&format!("\n{job}\n"));
        let since = health.since.map(|since| format!(" since {}", when(since, now))).unwrap_or_default();
        say(&mut text, "state", &format!("{}{since}", health.state));
        if let Some(message) = &health.message {
            say(&mut text, "", message);
        }
        for fact in facts {
            say(&mut text, fact.about, &fact.text);
        }
        for (index, place) in health.paths.iter().enumerate() {
            let version = place.version.map(|version| format!(", version {version}")).unwrap_or_default();
            let note = place.note.as_deref().map(|note| format!(", {note}")).unwrap_or_default();
            say(&mut text, if index == 0 { "paths" } else { "" }, &format!("{}{version}{note}", place.path));
        }
        for (index, said) in events.iter().enumerate() {
            let often = if said.count > 1 { format!(" (x{})", said.count) } else { String::new() };
            let is_above = health.message.as_deref() == Some(&*said.message);
            let message = if is_above { "as above" } else { &*said.message };
            let line = format!("{} ago{often} {} {}: {message}", age(said.last, now), said.kind, said.reason);
            say(&mut text, if index == 0 { "events" } else { "" }, &line);
        }
        match events_error {
            Some(error) => say(&mut text, "events", error),
            None if events.is_empty() => {
                say(&mut text, "events", "none; the cluster usually deletes events after an hour");
            }
            None => {}
        }
        say(&mut text, "next", next);
    }
    text
}

/// A label, and what is said of it beside.
fn say(text: &mut String, label: &str, words: &str) {
    for (index, line) in wrapped(&harmless(words), WIDTH - INDENT).into_iter().enumerate() {
        let label = if index == 0 { label } else { "" };
        text.push_str(&format!("  {label:<width$}{line}\n", width = INDENT - 2));
    }
}
