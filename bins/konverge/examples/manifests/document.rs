//! A document of the chart under other names. It stays text, so that the order of its fields and its comments stay.

use std::error::Error;

/// The beginning of the names that the chart gives to its objects here.
pub(crate) const NAMED: &str = "named";

/// The label with which the chart begins each set of labels.
const FIRST: &str = "app.kubernetes.io/name: ";

/// The other labels of the chart. They say that Helm manages the object.
const OF_RELEASE: [&str; 6] = [
    "app.kubernetes.io/instance: ",
    "app.kubernetes.io/component: ",
    "app.kubernetes.io/version: ",
    "app.kubernetes.io/part-of: ",
    "app.kubernetes.io/managed-by: ",
    "helm.sh/chart: ",
];

/// The name of a label, and its value.
pub(crate) type Label = (&'static str, &'static str);

/// A text of the chart, and the text in its place.
pub(crate) type Renaming = (&'static str, &'static str);

/// The labels of the objects of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Labels {
    /// Those of objects and pods.
    pub(crate) all: &'static [Label],
    /// The labels that select the pods.
    pub(crate) selecting: &'static [Label],
}

impl Labels {
    /// Returns the document with these labels in the place of the chart's.
    pub(crate) fn put(self, document: &str) -> String {
        let (mut text, mut above) = (String::new(), "");
        for line in document.lines() {
            let field = line.trim_start();
            if field.starts_with(FIRST) {
                let indent = &line[..line.len() - field.len()];
                // A selector is beneath `selector` or `matchLabels`.
                let labels = if above.trim() == "labels:" { self.all } else { self.selecting };
                text.extend(labels.iter().map(|(name, value)| format!("{indent}{name}: {value}\n")));
            } else if !OF_RELEASE.iter().any(|label| field.starts_with(label)) {
                text.push_str(line);
                text.push('\n');
            }
            above = line;
        }
        text
    }
}

/// Returns the document with the name of its object, and with other texts renamed.
pub(crate) fn renamed(document: &str, name: &str, renamings: &[Renaming]) -> Result<String, Box<dyn Error>> {
    let mut lines: Vec<_> = document.lines().map(str::to_owned).collect();
    let named = lines.iter_mut().find(|line| line.starts_with(&format!("  name: {NAMED}-")));
    *named.ok_or("the chart gives an object another name than it did")? = format!("  name: {name}");
    let mut text = lines.iter().fold(String::new(), |text, line| text + line + "\n");
    for (chart, ours) in renamings {
        // A renaming that the chart has outgrown must not go unnoticed.
        if text.matches(chart).count() != 1 {
            return Err(format!("{chart:?} is not once in the {name} that the chart renders").into());
        }
        text = text.replace(chart, ours);
    }
    if text.contains(&format!("{NAMED}-")) {
        return Err(format!("{name} still has a name of the chart:\n{text}").into());
    }
    Ok(text)
}
