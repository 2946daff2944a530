//! The planned changes, by the names of keys.

use serde::Serialize;

use super::asking;
use crate::{
    Change, Cluster, Difference, Examined, Failure, PlannedChange, arguments::Form, output::print, target::One,
    text::harmless,
};

#[derive(Serialize)]
struct Report {
    paths: Vec<Difference>,
    /// The objects that could not be compared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<String>,
}

pub(super) async fn run(jobs: &[Box<dyn Examined>], one: &One, cluster: &Cluster, form: Form) -> Result<bool, Failure> {
    let object = cluster.get(one).await?;
    let mut report = Report { paths: Vec::new(), errors: Vec::new() };
    let concerned = asking(jobs, cluster, one, &object)?;
    let all = concerned.len();
    for (job, _) in concerned {
        match job.difference(cluster, &one.kind, &object).await {
            Ok(found) => report.paths.extend(found),
            // An object that cannot be compared does not hide the others.
            Err(failure) if all > 1 => report.errors.push(format!("{}: {failure}", job.name())),
            Err(failure) => return Err(failure),
        }
    }
    if all > 0 && report.errors.len() == all {
        return Err(Failure::Failed(report.errors.join("\n")));
    }
    for error in &report.errors {
        eprintln!("warning: {error}");
    }
    print(form, &report, || render(&report.paths))?;
    if !report.errors.is_empty() {
        return Err(Failure::Failed("not everything could be compared; the warnings name the rest".to_owned()));
    }
    Ok(report.paths.iter().all(|path| path.planned == PlannedChange::Same))
}

fn render(paths: &[Difference]) -> String {
    let mut text = String::new();
    for Difference { path, planned, note, keys } in paths {
        let planned = match planned {
            PlannedChange::Same => "is in sync",
            PlannedChange::Created => "would be created",
            PlannedChange::Changed => "would be changed",
            PlannedChange::Cleared => "would be cleared",
            PlannedChange::Left => "would stay as it is",
            PlannedChange::Differs => "differs from the content in use",
            PlannedChange::Noted => "would be recorded",
        };
        let note = note.as_deref().map(|note| format!(": {note}")).unwrap_or_default();
        text.push_str(&format!("{} {planned}{}\n", harmless(path), harmless(&note)));
        for (key, change) in keys {
            let (sign, change) = match change {
                Change::Added => ('+', "added"),
                Change::Removed => ('-', "removed"),
                Change::Changed => ('~', "changed"),
                Change::Same => (' ', "same"),
            };
            text.push_str(&format!("  {sign} {} {change}\n", harmless(key)));
        }
    }
    if text.is_empty() {
        text.push_str("It requests no path.\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_by_name() {
        let keys = [("a", Change::Added), ("b", Change::Changed), ("c", Change::Removed), ("d", Change::Same)];
        let keys = keys.into_iter().map(|(key, change)| (key.to_owned(), change)).collect();
        let changed =
            Difference { path: "secret/data/db".to_owned(), planned: PlannedChange::Changed, note: None, keys };
        let note = Some("secret \"tls\" not found".to_owned());
        let left =
            Difference { path: "secret/data/tls".to_owned(), planned: PlannedChange::Left, note, keys: [].into() };
        assert_eq!(
            render(&[changed, left]),
            "secret/data/db would be changed\n  + a added\n  ~ b changed\n  - c removed\n    d same\n\
             secret/data/tls would stay as it is: secret \"tls\" not found\n"
        );
    }
}
