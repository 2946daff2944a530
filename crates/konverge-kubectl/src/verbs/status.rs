//! The verb `status`: the health of the objects that have opted in.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, stream::select_all};
use jiff::Timestamp;
use konverge_core::error::in_one_line;
use kube::{ResourceExt, core::DynamicObject};
use serde::Serialize;

use super::concerned;
use crate::{
    Cluster, Examined, Failure, Grade, Kind, ObjectHealth,
    arguments::Form,
    cluster::{is_unknown, of_namespace},
    output::print,
    target::{One, Target, kinds},
    text::{age, harmless, table},
};

/// A message in a table is cut to this; `why` has all of it.
const LONGEST: usize = 100;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    job: &'static str,
    kind: String,
    namespace: String,
    name: String,
    #[serde(flatten)]
    health: ObjectHealth,
}

impl Row {
    /// The kind and the name, such as `deployment/web`.
    fn object(&self) -> String {
        format!("{}/{}", self.kind.to_ascii_lowercase(), self.name)
    }
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    objects: Vec<Row>,
    /// The items that deleted objects have left outside of the cluster.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_behind: Vec<Left>,
    /// The objects that could not be read.
    errors: Vec<String>,
}

#[derive(Serialize)]
struct Left {
    job: &'static str,
    what: String,
}

/// The objects to list.
pub(super) struct Place {
    /// The namespace, or `None` for all.
    pub(super) namespace: Option<String>,
    /// The selector of labels.
    pub(super) selector: Option<String>,
}

pub(super) async fn run(
    jobs: &[Box<dyn Examined>],
    cluster: &Cluster,
    target: Option<Target>,
    place: &Place,
    form: Form,
) -> Result<bool, Failure> {
    let mut report = Report::default();
    match target {
        Some(Target { kind, name: Some(name) }) => {
            let one = One { kind, name };
            let object = cluster.get(&one).await?;
            report.objects.extend(rows(jobs, &one, &object));
        }
        Some(Target { kind, name: None }) => report.objects = list(jobs, cluster, &kind, place).await?,
        None => {
            let mut reached = false;
            for kind in kinds(jobs) {
                match list(jobs, cluster, &kind, place).await {
                    Ok(rows) => {
                        reached = true;
                        report.objects.extend(rows);
                    }
                    // One kind that may not be seen hides no other.
                    Err(Failure::Forbidden(why)) => report.errors.push(why),
                    Err(failure) => return Err(failure),
                }
            }
            if !reached {
                return Err(Failure::Forbidden(report.errors.join("\n")));
            }
            if place.selector.is_none() {
                add_left_behind(&mut report, jobs, cluster, place.namespace.as_deref()).await;
            }
        }
    }
    report.objects.sort_by(|one, other| {
        (&one.namespace, &one.kind, &one.name).cmp(&(&other.namespace, &other.kind, &other.name))
    });
    for error in &report.errors {
        eprintln!("warning: {error}");
    }
    let now = Timestamp::now();
    print(form, &report, || match form {
        Form::Name => report.objects.iter().map(Row::object).collect::<Vec<_>>().join("\n"),
        _ => render(&report, place.namespace.as_deref(), now, form),
    })?;
    // A kind that may not be seen is a warning, and no answer about the objects that are shown.
    Ok(report.objects.iter().all(|row| row.health.grade == Grade::InSync))
}

/// Adds the items of all jobs. Most users may not read the operator's namespace, so a refusal is no warning.
async fn add_left_behind(report: &mut Report, jobs: &[Box<dyn Examined>], cluster: &Cluster, namespace: Option<&str>) {
    for job in jobs {
        match job.left_behind(cluster, namespace).await {
            Ok(left) => report.left_behind.extend(left.into_iter().map(|what| Left { job: job.name(), what })),
            Err(Failure::Forbidden(_)) => {}
            Err(failure) => report.errors.push(failure.to_string()),
        }
    }
}

async fn list(jobs: &[Box<dyn Examined>], cluster: &Cluster, kind: &Kind, place: &Place) -> Result<Vec<Row>, Failure> {
    let objects = cluster.list_selected(kind, place.namespace.as_deref(), place.selector.as_deref()).await?;
    Ok(objects
        .into_iter()
        .flat_map(|object| rows(jobs, &One { kind: kind.clone(), name: object.name_any() }, &object))
        .collect())
}

fn rows(jobs: &[Box<dyn Examined>], one: &One, object: &DynamicObject) -> Vec<Row> {
    let row = |(job, health): (&dyn Examined, ObjectHealth)| Row {
        job: job.name(),
        kind: one.kind.resource.kind.clone(),
        namespace: object.namespace().unwrap_or_default(),
        name: one.name.clone(),
        health,
    };
    concerned(jobs, one, object).into_iter().map(row).collect()
}

/// Prints the objects, and then each one whose state changes, until a watch ends.
pub(super) async fn watch(
    jobs: &[Box<dyn Examined>],
    cluster: &Cluster,
    target: Option<Target>,
    place: &Place,
    form: Form,
) -> Result<bool, Failure> {
    let (watched, name) = match target {
        Some(Target { kind, name }) => (vec![kind], name),
        None => (kinds(jobs), None),
    };
    let streams = watched.into_iter().map(|kind| {
        let objects = cluster.follow_all(&kind, place.namespace.as_deref(), name.as_deref(), place.selector.as_deref());
        objects.map(move |object| (kind.clone(), object)).boxed()
    });
    let mut changes = select_all(streams);
    let mut warned = BTreeSet::new();
    let mut known: BTreeMap<(&'static str, String, String, String), ObjectHealth> = BTreeMap::new();
    while let Some((kind, object)) = changes.next().await {
        let object = match object {
            Ok(object) => object,
            // The watch is tried again by itself.
            Err(error) => {
                if !is_unknown(&error) && warned.insert(kind.resource.plural.clone()) {
                    eprintln!("warning: cannot watch {}: {}", kind.resource.plural, in_one_line(&error));
                }
                continue;
            }
        };
        for row in rows(jobs, &One { kind: kind.clone(), name: object.name_any() }, &object) {
            let key = (row.job, row.kind.clone(), row.namespace.clone(), row.name.clone());
            if known.insert(key, row.health.clone()).as_ref() == Some(&row.health) {
                continue;
            }
            let report = Report { objects: vec![row], ..Report::default() };
            print(form, &report, || match form {
                Form::Name => report.objects[0].object(),
                _ => line(&report.objects[0], place.namespace.is_none(), form),
            })?;
        }
    }
    Ok(true)
}

fn render(report: &Report, namespace: Option<&str>, now: Timestamp, form: Form) -> String {
    let all_namespaces = namespace.is_none();
    if report.objects.is_empty() {
        let place = if all_namespaces { " in any namespace".to_owned() } else { of_namespace(namespace) };
        return format!("No object{place} has opted in.\n{}", left_lines(report));
    }
    let mut head = vec!["OBJECT", "JOB", "STATE", "SINCE", "PATHS", "MESSAGE"];
    if all_namespaces {
        head.insert(0, "NAMESPACE");
    }
    let rows: Vec<_> = report.objects.iter().map(|row| cells(row, all_namespaces, now, form)).collect();
    table(&head, &rows) + &left_lines(report)
}

fn left_lines(report: &Report) -> String {
    let line = |Left { job, what }: &Left| format!("left behind, {job}: {}\n", harmless(what));
    report.left_behind.iter().map(line).collect()
}

fn cells(row: &Row, with_namespace: bool, now: Timestamp, form: Form) -> Vec<String> {
    let ObjectHealth { state, since, message, paths, .. } = &row.health;
    let message = harmless(message.as_deref().unwrap_or_default());
    let is_wide = form == Form::Wide;
    let mut cells = vec![
        row.object(),
        row.job.to_owned(),
        harmless(state),
        since.map(|since| age(since, now)).unwrap_or_default(),
        match &paths[..] {
            [] => "-".to_owned(),
            all if is_wide => all.iter().map(|place| harmless(&place.path)).collect::<Vec<_>>().join(","),
            [only] => harmless(&only.path),
            [first, rest @ ..] => format!("{} and {} more", harmless(&first.path), rest.len()),
        },
        if is_wide { message } else { shortened(&message) },
    ];
    if with_namespace {
        cells.insert(0, row.namespace.clone());
    }
    cells
}

/// One object that changed, in one line.
fn line(row: &Row, with_namespace: bool, form: Form) -> String {
    let cells = cells(row, with_namespace, Timestamp::now(), form);
    cells.join("   ").trim_end().to_owned() + "\n"
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= LONGEST {
        return text.to_owned();
    }
    text.chars().take(LONGEST - 1).chain(['…']).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;
    use crate::Place;

    fn row(name: &str, state: &str, paths: &[&str], message: Option<&str>) -> Row {
        let place = |path: &&str| Place { path: (*path).to_owned(), version: None, note: None };
        Row {
            job: "push",
            kind: "Secret".to_owned(),
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            health: ObjectHealth {
                since: Some(Timestamp::from_second(40).unwrap()),
                paths: paths.iter().map(place).collect(),
                ..ObjectHealth::new(state, Grade::InSync, message.map(str::to_owned))
            },
        }
    }

    #[test]
    fn a_table_for_people() {
        let now = Timestamp::from_second(100).unwrap();
        let objects = vec![
            row("db", "Synced", &["secret/data/db"], None),
            row("web", "PathNotAllowed", &[], Some(&"long ".repeat(50))),
            row("app", "Synced", &["a/b", "a/c", "a/d"], None),
        ];
        let report = Report { objects, ..Report::default() };
        let cut = format!("{}…", &"long ".repeat(50)[..99]);
        let expected = format!(
            "OBJECT       JOB    STATE            SINCE   PATHS            MESSAGE\n\
             secret/db    push   Synced           60s     secret/data/db\n\
             secret/web   push   PathNotAllowed   60s     -                {cut}\n\
             secret/app   push   Synced           60s     a/b and 2 more\n"
        );
        assert_eq!(render(&report, Some("shop"), now, Form::Text), expected);
        let wide = render(&report, Some("shop"), now, Form::Wide);
        assert!(wide.contains("a/b,a/c,a/d") && wide.contains("long ".repeat(50).trim_end()), "{wide}");
        assert_eq!(
            line(&report.objects[2], true, Form::Text).split_whitespace().collect::<Vec<_>>()[..2],
            ["shop", "secret/app"]
        );
        assert!(render(&report, None, now, Form::Text).starts_with("NAMESPACE   OBJECT"));
        let nothing = Report::default();
        assert_eq!(render(&nothing, Some("shop"), now, Form::Text), "No object in namespace shop has opted in.\n");
    }
}
