//! Which series an expression is about.

use std::collections::BTreeSet;

/// Names in a registry.
#[derive(Debug, Clone, Default)]
pub struct Series(BTreeSet<String>);

/// The suffixes that a scrape adds to a name: for counters, for the parts of histograms, and for infos.
const ENDINGS: [&str; 5] = ["_total", "_bucket", "_sum", "_count", "_info"];

impl Series {
    /// These.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        Self(names.into_iter().collect())
    }

    /// Whether there is a series that is called so when it is scraped.
    pub fn has(&self, scraped: &str) -> bool {
        let is_ending = |ending: &&str| scraped.strip_suffix(ending).is_some_and(|name| self.0.contains(name));
        self.0.contains(scraped) || ENDINGS.iter().any(is_ending)
    }

    /// Whether there are all series of an expression.
    pub(super) fn have(&self, expression: &str) -> bool {
        series_in(expression).into_iter().all(|name| self.has(name))
    }
}

/// The series that an expression of ours names. All of them have an underscore in their name, which no function of theirs that we
/// use and no label outside of braces and brackets has, but for these.
pub fn series_in(expression: &str) -> BTreeSet<&str> {
    const FUNCTIONS: [&str; 4] = ["histogram_quantile", "label_replace", "max_over_time", "min_over_time"];
    let (mut rest, mut names) = (expression, BTreeSet::new());
    while let Some(start) = rest.find(|sign: char| sign.is_ascii_alphabetic() || "$\"{".contains(sign)) {
        rest = &rest[start..];
        let end = match rest.as_bytes().first() {
            Some(b'"') => rest[1..].find('"').map_or(rest.len(), |end| end + 2),
            Some(b'{') => rest.find('}').unwrap_or(rest.len()),
            Some(b'$') => rest[1..].find(is_no_name).map_or(rest.len(), |end| end + 1),
            _ => rest.find(is_no_name).unwrap_or(rest.len()),
        };
        let word = &rest[..end];
        if word.starts_with(|sign: char| sign.is_ascii_alphabetic()) && word.contains('_') && !FUNCTIONS.contains(&word)
        {
            names.insert(word);
        }
        rest = &rest[end..];
    }
    names
}

fn is_no_name(sign: char) -> bool {
    !(sign.is_ascii_alphanumeric() || sign == '_' || sign == ':')
}

/// With the program's name, and with what leaves only its series: those of the processes that have the series `build_info`.
pub(super) fn complete(expression: &str, program: &str, build_info: &str) -> String {
    let mine = format!("and on (job, instance) {build_info}");
    expression.replace("$mine", &mine).replace("$program", program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_labels_are_not() {
        let expression = r#"histogram_quantile(0.99, sum by (le, my_label) (rate(a_seconds_bucket{b_c="d_e"}[5m]) $mine)) > f_total"#;
        // Labels of ours have no underscore; this one shows what the rule costs.
        assert_eq!(series_in(expression).into_iter().collect::<Vec<_>>(), ["a_seconds_bucket", "f_total", "my_label"]);
    }

    #[test]
    fn endings_belong_to_names() {
        let series = Series::new(["a".to_owned(), "b_seconds".to_owned()]);
        for (name, expected) in
            [("a", true), ("a_total", true), ("b_seconds_bucket", true), ("b", false), ("a_seconds", false)]
        {
            assert_eq!(series.has(name), expected, "{name}");
        }
    }
}
