//! A dashboard as a drawing: its panels in two columns, each with axes, curves and a legend.

use std::fmt::Write;

use serde_json::Value;

use crate::series::{Curve, Panel, Range};

const COLUMN: f64 = 590.0;
const ROW: f64 = 250.0;
const HEAD: f64 = 46.0;

/// The place of the curves in a panel.
const LEFT: f64 = 72.0;
const RIGHT: f64 = 26.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 66.0;

/// Entries that fit into a legend.
const LEGENDS: usize = 6;
const LEGEND_LENGTH: usize = 24;

/// Told apart by people who do not see all colours, too.
const COLOURS: [&str; 8] = ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8c6d31", "#4d4d4d"];

/// Returns the drawing as SVG.
pub(crate) fn svg(title: &Value, panels: &[Panel], range: Range) -> String {
    let rows = panels.len().div_ceil(2);
    let (width, height) = (COLUMN * 2.0, number(rows) * ROW + HEAD);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#f4f5f5\"/>\n\
         <text x=\"16\" y=\"30\" font-size=\"20\">{}</text>\n",
        escaped(title.as_str().unwrap_or_default())
    );
    for (place, panel) in panels.iter().enumerate() {
        let (x, y) = (number(place % 2) * COLUMN, number(place / 2) * ROW + HEAD);
        let _ = writeln!(text, "<g transform=\"translate({x} {y})\">{}</g>", drawn(panel, range));
    }
    text.push_str("</svg>\n");
    text
}

fn drawn(panel: &Panel, range: Range) -> String {
    let mut text = format!(
        "<rect x=\"6\" y=\"4\" width=\"{}\" height=\"{}\" fill=\"white\" stroke=\"#d0d0d0\"/><text x=\"16\" y=\"24\" font-weight=\"bold\">{}</text>",
        COLUMN - 12.0,
        ROW - 8.0,
        escaped(&panel.title)
    );
    if panel.curves.is_empty() {
        let _ = write!(
            text,
            "<text x=\"{}\" y=\"{}\" fill=\"#888\" text-anchor=\"middle\">No data</text>",
            COLUMN / 2.0,
            ROW / 2.0
        );
        return text;
    }
    let values = panel.curves.iter().flat_map(|curve| curve.points.iter().map(|(_, value)| *value));
    let ticks = ticks(values.fold(0.0, f64::max));
    let top = ticks.last().copied().unwrap_or(1.0);
    let x = |at: f64| LEFT + (at - range.start) / range.length.as_secs_f64() * (COLUMN - LEFT - RIGHT);
    let y = |value: f64| ROW - BOTTOM - value / top * (ROW - TOP - BOTTOM);
    for tick in &ticks {
        let (y, right) = (y(*tick), COLUMN - RIGHT);
        let _ = write!(
            text,
            "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#e4e4e4\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555\">{}</text>",
            LEFT - 6.0,
            y + 4.0,
            with_unit(*tick, &panel.unit)
        );
    }
    let minutes = range.length.as_secs() / 60;
    for minute in (0..=minutes).step_by(usize::try_from((minutes / 4).max(1)).unwrap_or(1)) {
        let at = x(range.start + number(usize::try_from(minute * 60).unwrap_or_default()));
        let _ = write!(
            text,
            "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#555\">{minute} min</text>",
            ROW - BOTTOM + 18.0
        );
    }
    for (curve, colour) in panel.curves.iter().zip(COLOURS.iter().cycle()) {
        let points: Vec<_> = curve.points.iter().map(|(at, value)| format!("{:.1},{:.1}", x(*at), y(*value))).collect();
        let _ = write!(
            text,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>",
            points.join(" ")
        );
    }
    legend(&mut text, &panel.curves);
    text
}

fn legend(text: &mut String, curves: &[Curve]) {
    let entry = (COLUMN - 24.0) / 3.0;
    for (place, (curve, colour)) in curves.iter().zip(COLOURS.iter().cycle()).take(LEGENDS).enumerate() {
        let (x, y) = (14.0 + number(place % 3) * entry, ROW - 32.0 + number(place / 3) * 16.0);
        let shown = shortened(&curve.legend);
        let _ = write!(
            text,
            "<path d=\"M{x:.1} {:.1}h14\" stroke=\"{colour}\" stroke-width=\"3\"/><text x=\"{:.1}\" y=\"{y:.1}\" font-size=\"11\">{}</text>",
            y - 4.0,
            x + 20.0,
            escaped(&shown)
        );
    }
}

/// The end of a legend that is too long: names of methods and objects differ there.
fn shortened(legend: &str) -> String {
    match legend.chars().count().checked_sub(LEGEND_LENGTH) {
        None | Some(0) => legend.to_owned(),
        Some(rest) => format!("…{}", legend.chars().skip(rest + 1).collect::<String>()),
    }
}

/// Round values from zero to at least the largest one: steps of 1, 2 or 5 times a power of ten.
fn ticks(largest: f64) -> Vec<f64> {
    let largest = if largest > 0.0 { largest } else { 1.0 };
    let rough = largest / 4.0;
    let power = 10_f64.powf(rough.log10().floor());
    let step =
        [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= rough).unwrap_or(rough);
    let mut ticks = vec![0.0];
    while ticks.last().is_none_or(|last| *last < largest) {
        ticks.push(number(ticks.len()) * step);
    }
    ticks
}

/// A value in Grafana's unit.
fn with_unit(value: f64, unit: &str) -> String {
    let short = |value: f64| {
        let text = format!("{value:.3}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    match unit {
        "s" if value > 0.0 && value < 1.0 => format!("{} ms", short(value * 1000.0)),
        "s" => format!("{} s", short(value)),
        "ops" | "reqps" => format!("{}/s", short(value)),
        "bytes" => format!("{} MiB", short((value / 1024.0 / 1024.0 * 10.0).round() / 10.0)),
        "percentunit" => format!("{}%", short(value * 100.0)),
        _ => short(value),
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of panels, ticks and seconds are small")]
fn number(count: usize) -> f64 {
    count as f64
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    #[test]
    fn ticks_are_round_and_reach_the_largest_value() {
        for (largest, expected) in [
            (0.0, vec![0.0, 0.5, 1.0]),
            (3.0, vec![0.0, 1.0, 2.0, 3.0]),
            (7.0, vec![0.0, 2.0, 4.0, 6.0, 8.0]),
            (16.0, vec![0.0, 5.0, 10.0, 15.0, 20.0]),
        ] {
            assert_eq!(ticks(largest), expected, "{largest}");
        }
    }

    #[test]
    fn values_have_the_units_of_the_panel() {
        for (value, unit, expected) in [
            (0.25, "s", "250 ms"),
            (2.0, "s", "2 s"),
            (0.0, "s", "0 s"),
            (0.5, "ops", "0.5/s"),
            (3_145_728.0, "bytes", "3 MiB"),
            (0.02, "percentunit", "2%"),
            (12.0, "short", "12"),
        ] {
            assert_eq!(with_unit(value, unit), expected);
        }
    }

    #[test]
    fn a_long_legend_keeps_its_end() {
        for (legend, expected) in [
            ("half", "half"),
            ("exactly twenty-four char", "exactly twenty-four char"),
            ("zopp.ZoppService/CreateEnvironment", "…rvice/CreateEnvironment"),
        ] {
            let shown = shortened(legend);
            assert_eq!(shown, expected);
            assert!(shown.chars().count() <= LEGEND_LENGTH);
        }
    }

    #[test]
    fn a_drawing_has_each_panel_with_its_curves_and_no_raw_markup() {
        let curve = Curve { legend: "<error>".to_owned(), points: vec![(0.0, 1.0), (60.0, 2.0)] };
        let panel = |curves| Panel { title: "Runs & waits".to_owned(), unit: "short".to_owned(), curves };
        let range = Range { start: 0.0, length: Duration::from_mins(2) };
        let text = svg(&json!("tester"), &[panel(vec![curve]), panel(Vec::new())], range);
        assert_eq!((text.matches("<polyline").count(), text.matches("No data").count()), (1, 1), "{text}");
        assert_eq!(text.matches("Runs &amp; waits").count(), 2, "{text}");
        assert!(text.contains("&lt;error&gt;") && !text.contains("<error>"), "{text}");
    }
}
