//! The generated dashboard and alerts of a program, compared with its real metrics.

use std::collections::BTreeSet;

use konverge::{generate::watching::series_in, prelude::*};
use serde_json::Value;

use crate::stage::{Place, Prober, operator};

/// Every expression of the dashboard and of the alerts.
fn expressions(files: &konverge::generate::Files) -> Vec<String> {
    let dashboard: Value = serde_json::from_str(files.get("dashboard.json").unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let shown = targets.map(|target| target["expr"].as_str().unwrap().to_owned());
    let rule: Value = serde_saphyr::from_str(files.get("alerts.yaml").unwrap()).unwrap();
    let groups = rule["spec"]["groups"].as_array().unwrap();
    let rules = groups.iter().flat_map(|group| group["rules"].as_array().unwrap());
    let alerts = rules.map(|rule| rule["expr"].as_str().unwrap().to_owned());
    shown.chain(alerts).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn row_31_every_expression_is_about_series_that_are_there_when_it_runs() {
    let (place, prober) = (Place::new().await, Prober::default());
    let program = || operator(Controller::new(prober.clone()).owns::<ConfigMap>());
    let files = program().generate("here").unwrap();
    let mut named = BTreeSet::new();
    let expressions = expressions(&files);
    assert!(expressions.len() > 25, "{expressions:#?}");
    for expression in &expressions {
        assert!(expression.contains("konverge_build_info{program="), "{expression}");
        named.extend(series_in(expression).into_iter().map(str::to_owned));
    }

    let running = place.run(program(), &["--leader-election", "--lease-namespace", &place.namespace]).await;
    for behave in ["ok", "transient", "permanent", "panic"] {
        place.create_probe(behave, behave).await;
        prober.runs.reach(behave, 1).await;
    }
    for line in ["controller_runtime_reconcile_panics_total{", "reason=\"NeverWorks\"} 1", "konverge_check_status{"] {
        running.measures(line).await;
    }
    for series in named {
        // A name is followed by its labels or its value, so no other name begins with it.
        let text = running.scraped();
        let is_there = text
            .lines()
            .any(|line| line.strip_prefix(series.as_str()).is_some_and(|rest| rest.starts_with(['{', ' '])));
        assert!(is_there, "{series} is not in\n{text}");
    }
    // The reference has each series under the name of the scrape.
    let reference = files.get("reference.md").unwrap();
    let text = running.scraped();
    let types: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    assert!(types.iter().filter(|(_, form)| *form == "counter").count() > 10, "{types:?}");
    for (name, form) in types {
        let suffix = if form == "counter" { "_total" } else { "" };
        assert!(reference.contains(&format!("\n| `{name}{suffix}` |")), "{name} is a {form} in\n{reference}");
    }
    running.end().await.unwrap();
}
