//! The shipped alerts as Prometheus' own engine evaluates them.

use std::{fs, path::Path, process::Command};

use konverge_testkit_stores::promtool;
use serde_json::{Value, json};

/// The labels that Prometheus adds to each series of a target.
const TARGET: &str = r#"namespace="home",job="konverge",instance="one""#;

/// The minute in which the fault begins.
pub(super) const ONSET: u64 = 10;

/// An hour, in minutes.
pub(super) const HOUR: u64 = 60;

/// A counter that grows by one each minute from then on.
pub(super) const GROWS: &str = "0x10 0+1x3000";

/// A gauge that becomes one.
pub(super) const RISES: &str = "0x9 1x3000";

/// A gauge that becomes zero.
pub(super) const FALLS: &str = "1x9 0x3000";

/// Seconds that have passed since then.
pub(super) const AGES: &str = "0x10 0+60x3000";

/// The rules of one program.
pub(super) struct Rules {
    pub(super) program: String,
    pub(super) rules: Vec<Value>,
}

impl Rules {
    /// The series that says that the program runs.
    pub(super) fn build_info(&self) -> String {
        match self.program.as_str() {
            "zopp-server" => r#"zopp_server_build_info{version="1"}"#.to_owned(),
            program => format!("konverge_build_info{{program=\"{program}\"}}"),
        }
    }
}

/// The rules of each program that the repository ships.
pub(super) fn shipped() -> Vec<Rules> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    let files =
        ["pull", "push", "roll", "manage", "server"].map(|job| format!("charts/konverge/files/alerts/{job}.yaml"));
    let rules = files.into_iter().map(|file| {
        let text = fs::read_to_string(root.join(&file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let content: Value = serde_saphyr::from_str(&text).unwrap();
        let group = &content["groups"][0];
        Rules { program: group["name"].as_str().unwrap().to_owned(), rules: group["rules"].as_array().unwrap().clone() }
    });
    rules.collect()
}

pub(super) fn name(rule: &Value) -> &str {
    rule["alert"].as_str().unwrap()
}

/// For how many minutes the expression must hold.
pub(super) fn waits(rule: &Value) -> u64 {
    let text = rule["for"].as_str().unwrap();
    let (number, unit) = text.split_at(text.len() - 1);
    let minutes = match unit {
        "m" => 1,
        "h" => 60,
        _ => panic!("{text} is in another unit"),
    };
    number.parse::<u64>().unwrap() * minutes
}

/// A series with the labels of the target.
pub(super) fn series(series: &str, values: &str) -> Value {
    let labelled = series.strip_suffix('}').unwrap();
    let comma = if labelled.ends_with('{') { "" } else { "," };
    json!({ "series": format!("{labelled}{comma}{TARGET}}}"), "values": values })
}

/// States which alerts of a kind have been active in the time up to a minute.
pub(super) fn state(state: &str, minute: u64, alerts: &[&str]) -> Value {
    let samples: Vec<_> =
        alerts.iter().map(|alert| json!({ "labels": format!("{{alertname=\"{alert}\"}}"), "value": 1 })).collect();
    json!({
        "expr": format!("group by (alertname) (present_over_time(ALERTS{{alertstate=\"{state}\"}}[{minute}m]))"),
        "eval_time": format!("{minute}m"),
        "exp_samples": samples,
    })
}

/// Runs promtool's tests with the rules of one program.
pub(super) fn evaluate(rules: &[Value], tests: &[Value]) {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: Value| fs::write(folder.path().join(name), content.to_string()).unwrap();
    write("rules.yaml", json!({ "groups": [{ "name": "shipped", "rules": rules }] }));
    write("tests.yaml", json!({ "rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests }));
    let mut command = Command::new(promtool().unwrap());
    let output = command.args(["test", "rules", "tests.yaml"]).current_dir(folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}
