//! Figures of a program, as it tells them at `/metrics`.

/// The sum of a metric over all its label sets that contain `label`; zero if there is none yet. `label` may be empty.
///
/// ```
/// let text = "# TYPE runs counter\nruns_total{name=\"a\"} 2\nruns_total{name=\"b\"} 3\nprocess_open_fds 9\n";
/// assert_eq!(konverge_testkit::metric(text, "runs_total", ""), 5.0);
/// assert_eq!(konverge_testkit::metric(text, "runs_total", "\"b\""), 3.0);
/// assert_eq!(konverge_testkit::metric(text, "process_open_fds", ""), 9.0);
/// ```
pub fn metric(scraped: &str, name: &str, label: &str) -> f64 {
    let lines = scraped.lines().filter(|line| line.split(['{', ' ']).next() == Some(name) && line.contains(label));
    // Behind the figure there may be an exemplar.
    let figure = |line: &str| line.split(" # ").next()?.rsplit(' ').next()?.parse::<f64>().ok();
    lines.filter_map(figure).sum()
}
