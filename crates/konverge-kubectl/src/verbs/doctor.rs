//! The verb `doctor`: checks of the operators, and how they are printed.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    Cluster, Examined, Failure, Finding, Verdict,
    arguments::Form,
    output::print,
    text::{harmless, wrapped},
};

/// The column in which findings begin, and the width of a line.
const INDENT: usize = 24;
const WIDTH: usize = 120;

#[derive(Serialize)]
struct Report {
    jobs: BTreeMap<&'static str, Vec<Finding>>,
}

pub(super) async fn run(
    jobs: &[Box<dyn Examined>],
    cluster: &Cluster,
    namespace: Option<&str>,
    form: Form,
) -> Result<bool, Failure> {
    let version = cluster.client.apiserver_version().await;
    version.map_err(|error| Failure::of("ask the API server for its version", &error))?;
    let mut report = Report { jobs: BTreeMap::new() };
    for job in jobs {
        report.jobs.insert(job.name(), job.doctor(cluster, namespace).await);
    }
    print(form, &report, || render(&report))?;
    Ok(report.jobs.values().flatten().all(|finding| finding.verdict != Verdict::Wrong))
}

fn render(report: &Report) -> String {
    let mut text = String::new();
    for (job, findings) in &report.jobs {
        text.push_str(&format!("{job}\n"));
        for finding in findings {
            let verdict = match finding.verdict {
                Verdict::Fine => "ok",
                Verdict::Note => "note",
                Verdict::Unknown => "unknown",
                Verdict::Wrong => "WRONG",
            };
            let mut head = format!("  {verdict:<9}{:<12} ", finding.about);
            let next = finding.next.iter().flat_map(|next| wrapped(&harmless(&format!("→ {next}")), WIDTH - INDENT));
            for line in wrapped(&harmless(&finding.text), WIDTH - INDENT).into_iter().chain(next) {
                text.push_str(&format!("{head:<INDENT$}{line}\n"));
                head.clear();
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_with_what_to_do() {
        let findings = vec![
            Finding::fine("operator", "system/manager: 2 of 2 ready"),
            Finding::wrong("objects", "1 of 2 in sync", "kubectl konverge status -A"),
        ];
        let report = Report { jobs: [("push", findings)].into() };
        assert_eq!(
            render(&report),
            "push\n  ok       operator     system/manager: 2 of 2 ready\n  WRONG    objects      1 of 2 in sync\n\
             \u{20}                       → kubectl konverge status -A\n"
        );
    }
}
