//! Items outside of the cluster whose objects do not exist.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{Cluster, Examined, Failure, Leftover, arguments::Form, output::print, text::harmless};

#[derive(Serialize)]
struct Report {
    jobs: BTreeMap<&'static str, Vec<Leftover>>,
}

pub(super) async fn run(
    jobs: &[Box<dyn Examined>],
    cluster: &Cluster,
    only: &[String],
    delete: bool,
    form: Form,
) -> Result<bool, Failure> {
    let mut report = Report { jobs: BTreeMap::new() };
    for job in jobs {
        if let Some(found) = job.leftovers(cluster, only, delete).await? {
            report.jobs.insert(job.name(), found);
        }
    }
    print(form, &report, || render(&report, delete))?;
    Ok(report.jobs.values().flatten().all(|leftover| leftover.is_deleted))
}

fn render(report: &Report, delete: bool) -> String {
    let mut text = String::new();
    for (job, found) in &report.jobs {
        if found.is_empty() {
            text.push_str(&format!("{job}: nothing is left over\n"));
        }
        for Leftover { item, uid, is_deleted, error } in found {
            let outcome = match (is_deleted, error) {
                (true, _) => "deleted".to_owned(),
                (false, Some(error)) => format!("kept: {error}"),
                (false, None) => "its object does not exist".to_owned(),
            };
            text.push_str(&harmless(&format!("{job}: {item}, made for the uid {uid}: {outcome}")));
            text.push('\n');
        }
    }
    if !delete && report.jobs.values().any(|found| !found.is_empty()) {
        text.push_str("Nothing was changed; kubectl konverge leftovers --delete deletes these items.\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_and_their_fate() {
        let leftover = |is_deleted, error: Option<&str>| Leftover {
            item: "policy web (p1)".to_owned(),
            uid: "u1".to_owned(),
            is_deleted,
            error: error.map(str::to_owned),
        };
        let report = |found| Report { jobs: [("manage", found)].into() };
        let line = "manage: policy web (p1), made for the uid u1: ";
        for (found, delete, expected) in [
            (vec![], false, "manage: nothing is left over\n".to_owned()),
            (
                vec![leftover(false, None)],
                false,
                format!(
                    "{line}its object does not exist\nNothing was changed; kubectl konverge leftovers --delete deletes these items.\n"
                ),
            ),
            (vec![leftover(true, None)], true, format!("{line}deleted\n")),
            (vec![leftover(false, Some("in use"))], true, format!("{line}kept: in use\n")),
        ] {
            assert_eq!(render(&report(found), delete), expected);
        }
    }
}
