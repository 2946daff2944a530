//! Tables out of an answer's JSON: a row for each entry of a listing, or for each field of a single thing.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};

use crate::escape::visible;

/// Between columns.
const GAP: &str = "  ";

/// JSON with its fields in the order in which the answer has them.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Node {
    Null,
    Truth(bool),
    Number(serde_json::Number),
    Text(String),
    List(Vec<Node>),
    Object(Fields),
}

#[derive(Debug)]
struct Fields(Vec<(String, Node)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}

/// The table of the JSON values, one after the other, that an answer is made of.
pub(super) fn format(json: &[u8]) -> serde_json::Result<String> {
    let values: Vec<Node> = serde_json::Deserializer::from_slice(json).into_iter().collect::<Result<_, _>>()?;
    Ok(render(&rows(&values)))
}

/// The heading and the rows.
fn rows(values: &[Node]) -> Vec<Vec<String>> {
    match values {
        [Node::Object(fields)] => match listing(fields) {
            Some(entries) => of_entries(entries),
            None => of_fields(fields),
        },
        entries => of_entries(entries),
    }
}

/// The entries of an object that is a listing: it has one list, and no object.
fn listing(Fields(fields): &Fields) -> Option<&[Node]> {
    let mut lists = fields.iter().filter_map(|(_, node)| if let Node::List(list) = node { Some(list) } else { None });
    let list = lists.next()?;
    let is_only = lists.next().is_none() && !fields.iter().any(|(_, node)| matches!(node, Node::Object(_)));
    is_only.then_some(list)
}

fn of_entries(entries: &[Node]) -> Vec<Vec<String>> {
    let Some(Node::Object(Fields(first))) = entries.first() else {
        return entries.iter().map(|entry| vec![cell(entry)]).collect();
    };
    let heading = first.iter().map(|(name, _)| name.to_uppercase()).collect();
    let rows = entries.iter().map(|entry| first.iter().map(|(name, _)| cell(field(entry, name))).collect());
    std::iter::once(heading).chain(rows).collect()
}

/// Entries leave out what they do not have.
fn field<'a>(entry: &'a Node, name: &str) -> &'a Node {
    let Node::Object(Fields(fields)) = entry else { return &Node::Null };
    fields.iter().find(|(known, _)| known == name).map_or(&Node::Null, |(_, node)| node)
}

fn of_fields(Fields(fields): &Fields) -> Vec<Vec<String>> {
    fields.iter().map(|(name, node)| vec![name.to_uppercase(), cell(node)]).collect()
}

fn cell(node: &Node) -> String {
    match node {
        Node::Null => "-".to_owned(),
        Node::Truth(truth) => truth.to_string(),
        Node::Number(number) => number.to_string(),
        Node::Text(text) => visible(text),
        Node::List(items) => items.iter().map(cell).collect::<Vec<_>>().join(","),
        Node::Object(Fields(fields)) => {
            let fields = fields.iter().map(|(name, node)| format!("{name}={}", cell(node)));
            fields.collect::<Vec<_>>().join(" ")
        }
    }
}

/// Columns as wide as their widest cell; nothing behind the last one.
fn render(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or_default()).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', width - cell.chars().count()));
            line.push_str(GAP);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, expected: &str) {
        assert_eq!(format(json.as_bytes()).unwrap(), expected);
    }

    #[test]
    fn a_listing_has_a_row_for_each_entry_and_its_columns_in_order() {
        check(
            r#"{"total": 2, "entries": [{"name": "acme", "id": 1, "roles": ["a", "b"]}, {"name": null, "id": 22}]}"#,
            "NAME  ID  ROLES\nacme  1   a,b\n-     22  -\n",
        );
        check(r#"{"version": 1, "secrets": ["A", "B"]}"#, "A\nB\n");
        check(r#"{"secrets": []}"#, "");
        check("{\"id\": 1}\n{\"id\": 2}\n", "ID\n1\n2\n");
    }

    #[test]
    fn a_single_thing_has_a_row_for_each_field() {
        check(
            r#"{"key": "A", "environment": {"workspace": "acme", "project": "x"}, "new": true}"#,
            "KEY          A\nENVIRONMENT  workspace=acme project=x\nNEW          true\n",
        );
    }

    #[test]
    fn cells_do_not_control_the_terminal() {
        check(r#"{"name": "\u001b[2J\n"}"#, "NAME  \\u{1b}[2J\\n\n");
    }
}
