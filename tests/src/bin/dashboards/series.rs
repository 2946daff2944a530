//! The series of a dashboard's panels, as Prometheus returns them.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, ensure};
use konverge_testkit::http_get;
use serde_json::Value;

/// Points of a curve.
const POINTS: u64 = 120;

/// The time that a picture shows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    /// Seconds of the Unix time.
    pub(crate) start: f64,
    pub(crate) length: Duration,
}

impl Range {
    pub(crate) fn from_now(length: Duration) -> Self {
        let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        Self { start, length }
    }
}

/// A panel with its curves.
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) unit: String,
    pub(crate) curves: Vec<Curve>,
}

/// A series with its legend.
pub(crate) struct Curve {
    pub(crate) legend: String,
    /// Seconds of the Unix time, and the value.
    pub(crate) points: Vec<(f64, f64)>,
}

/// Asks for the series of each panel.
pub(crate) async fn panels(address: &str, dashboard: &Value, range: Range) -> Result<Vec<Panel>> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut panels = Vec::new();
    for panel in dashboard["panels"].as_array().context("a dashboard has panels")? {
        let mut curves = Vec::new();
        for target in panel["targets"].as_array().into_iter().flatten() {
            let legend = text(&target["legendFormat"]);
            for series in query(address, &text(&target["expr"]), range).await? {
                curves.push(curve(&legend, &series));
            }
        }
        curves.retain(|curve| !curve.points.is_empty());
        let unit = text(&panel["fieldConfig"]["defaults"]["unit"]);
        panels.push(Panel { title: text(&panel["title"]), unit, curves });
    }
    Ok(panels)
}

/// The alerts that fired, each with the time from the start until then.
pub(crate) async fn fired(address: &str, range: Range) -> Result<BTreeMap<String, Duration>> {
    let mut fired = BTreeMap::new();
    for series in query(address, r#"min by (alertname) (ALERTS{alertstate="firing"})"#, range).await? {
        let first = curve("{{alertname}}", &series);
        if let Some((at, _)) = first.points.first() {
            fired.insert(first.legend, Duration::from_secs_f64((at - range.start).max(0.0)));
        }
    }
    Ok(fired)
}

async fn query(address: &str, expression: &str, range: Range) -> Result<Vec<Value>> {
    let Range { start, length } = range;
    let (end, step) = (start + length.as_secs_f64(), (length.as_secs() / POINTS).max(1));
    let path = format!("/api/v1/query_range?query={}&start={start}&end={end}&step={step}", encoded(expression));
    let (code, body) = http_get(address, &path).await?;
    ensure!(code == 200, "Prometheus refuses {expression}: {body}");
    let mut answer: Value =
        serde_json::from_str(&unchunked(&body)).with_context(|| format!("the answer to {expression}"))?;
    let result = answer["data"]["result"].as_array_mut().context("an answer has a result")?;
    Ok(std::mem::take(result))
}

fn curve(legend: &str, series: &Value) -> Curve {
    let mut legend = legend.to_owned();
    for (label, value) in series["metric"].as_object().into_iter().flatten() {
        legend = legend.replace(&format!("{{{{{label}}}}}"), value.as_str().unwrap_or_default());
    }
    let point = |point: &Value| {
        let value: f64 = point[1].as_str()?.parse().ok()?;
        Some((point[0].as_f64()?, value)).filter(|_| value.is_finite())
    };
    let points = series["values"].as_array().into_iter().flatten().filter_map(point).collect();
    Curve {
        legend: legend.split_whitespace().filter(|word| !word.starts_with("{{")).collect::<Vec<_>>().join(" "),
        points,
    }
}

/// The content of a body that a server sends in chunks because it is long. Any other body stays as it is.
fn unchunked(body: &str) -> String {
    let (mut rest, mut content) = (body, String::new());
    while let Some((size, after)) = rest.split_once("\r\n") {
        let Ok(size) = usize::from_str_radix(size.trim(), 16) else { return body.to_owned() };
        let Some(chunk) = after.get(..size) else { return body.to_owned() };
        content.push_str(chunk);
        rest = after[size..].trim_start_matches("\r\n");
        if size == 0 {
            return content;
        }
    }
    body.to_owned()
}

/// A text for the query of an address.
fn encoded(text: &str) -> String {
    let of =
        |byte: u8| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(of).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_curve_has_its_labels_in_the_legend_and_no_value_that_is_none() {
        let series =
            json!({ "metric": { "reason": "Synced" }, "values": [[1, "2.5"], [2, "NaN"], [3, "+Inf"], [4, "0"]] });
        let curve = curve("{{controller}} {{reason}}", &series);
        assert_eq!((&*curve.legend, &*curve.points), ("Synced", &[(1.0, 2.5), (4.0, 0.0)][..]));
    }

    #[test]
    fn a_body_in_chunks_is_put_together_and_another_one_left_alone() {
        assert_eq!(unchunked("5\r\n{\"a\":\r\n2\r\n1}\r\n0\r\n\r\n"), "{\"a\":1}");
        for whole in ["{\"a\":1}", "", "{\r\n}", "a\r\nb"] {
            assert_eq!(unchunked(whole), whole);
        }
    }

    #[test]
    fn an_expression_is_one_value_of_an_address() {
        assert_eq!(encoded(r#"a{b="c"}+1"#), "a%7Bb%3D%22c%22%7D%2B1");
    }
}
