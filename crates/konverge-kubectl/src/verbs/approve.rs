//! Approval of deletions that an operator has stopped because there are too many.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{Cluster, Examined, Failure, arguments::Form, output::print, text::harmless};

#[derive(Serialize)]
struct Report {
    approved: BTreeMap<&'static str, Vec<String>>,
}

/// Approves the stopped deletions of all jobs, in one namespace of operators if `namespace` names it.
pub(super) async fn run(
    jobs: &[Box<dyn Examined>],
    cluster: &Cluster,
    namespace: Option<&str>,
    form: Form,
) -> Result<bool, Failure> {
    let mut report = Report { approved: BTreeMap::new() };
    for job in jobs {
        let approved = job.approve(cluster, namespace).await?;
        if !approved.is_empty() {
            report.approved.insert(job.name(), approved);
        }
    }
    print(form, &report, || render(&report))?;
    Ok(true)
}

fn render(report: &Report) -> String {
    let lines = report.approved.iter().flat_map(|(job, approved)| approved.iter().map(move |what| (job, what)));
    let lines: Vec<_> = lines.map(|(job, what)| harmless(&format!("{job}: approved: {what}"))).collect();
    if lines.is_empty() { "no operator has stopped deletions".to_owned() } else { lines.join("\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_approved_is_listed_by_job() {
        let mut report = Report { approved: BTreeMap::new() };
        assert_eq!(render(&report), "no operator has stopped deletions");
        report.approved.insert("push", vec!["9 deletions are requested".to_owned()]);
        assert_eq!(render(&report), "push: approved: 9 deletions are requested");
    }
}
