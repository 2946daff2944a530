//! The table that a run prints: what was measured, the figure, what it is held against, the ratio and the bound.

use std::fmt;

/// One line of the table.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) subject: &'static str,
    pub(crate) figure: String,
    pub(crate) against: String,
    /// The figure as a multiple of what it is held against, or a plain count where the bound is a count.
    pub(crate) ratio: f64,
    /// The largest ratio that is still good; `None` where a figure is for information.
    pub(crate) bound: Option<f64>,
}

impl Row {
    fn verdict(&self) -> &'static str {
        match self.bound {
            None => "-",
            Some(bound) if self.ratio <= bound => "within",
            Some(_) => "ABOVE",
        }
    }
}

/// All lines of a run, in the order in which they were measured.
#[derive(Debug, Default)]
pub(crate) struct Report(Vec<Row>);

impl Report {
    pub(crate) fn add(&mut self, row: Row) {
        self.0.push(row);
    }

    /// Whether every figure with a bound keeps it.
    pub(crate) fn within_bounds(&self) -> bool {
        self.0.iter().all(|row| row.verdict() != "ABOVE")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = ["measured", "figure", "held against", "ratio", "bound", ""].map(str::to_owned);
        let body = self.0.iter().map(|row| {
            let bound = row.bound.map_or_else(|| "-".to_owned(), |bound| format!("{bound:.2}"));
            let ratio = format!("{:.2}", row.ratio);
            [row.subject.to_owned(), row.figure.clone(), row.against.clone(), ratio, bound, row.verdict().to_owned()]
        });
        let lines: Vec<[String; 6]> = std::iter::once(header).chain(body).collect();
        let widths: Vec<usize> =
            (0..6).map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0)).collect();
        for line in &lines {
            let cells: Vec<String> = line.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
            writeln!(out, "{}", cells.join("  ").trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ratio: f64, bound: Option<f64>) -> Row {
        Row { subject: "p99", figure: "9 ms".into(), against: "3 ms".into(), ratio, bound }
    }

    #[test]
    fn only_a_ratio_above_its_bound_breaks_a_report() {
        for (ratio, bound, expected) in [(3.0, Some(3.0), true), (3.1, Some(3.0), false), (9.0, None, true)] {
            let mut report = Report::default();
            report.add(row(ratio, bound));
            assert_eq!(report.within_bounds(), expected, "{ratio} against {bound:?}");
        }
    }

    #[test]
    fn columns_line_up() {
        let mut report = Report::default();
        report.add(row(2.5, Some(3.0)));
        let text = report.to_string();
        let [header, line] = text.lines().collect::<Vec<_>>()[..] else { panic!("two lines, got {text}") };
        assert_eq!(header.find("bound"), line.find("3.00"));
        assert!(line.ends_with("within"));
    }
}
