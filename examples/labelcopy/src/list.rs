//! The list outside the cluster: an entry, how it is compared, and the calls.

use std::collections::BTreeMap;

use konverge::{
    JsonApi,
    remote::{Deletion, Failure, Mark, Remote},
    serde_json::json,
};
use serde::{Deserialize, Serialize};

/// The content of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Entry {
    /// Its name, which no other entry has.
    pub name: String,
    /// The labels.
    pub labels: BTreeMap<String, String>,
}

/// An entry as the list shows it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Listed {
    /// The id that the list gave it.
    pub id: String,
    /// The text that it was created with: the mark of its Deployment. Nothing can change it.
    pub tag: String,
    /// Its content.
    #[serde(flatten)]
    pub entry: Entry,
}

/// A client of the list.
#[derive(Clone, Debug)]
pub struct LabelList(pub JsonApi);

impl Remote for LabelList {
    type Item = Listed;
    type Desired = Entry;

    const NOUN: &'static str = "entry";

    async fn list(&self, _scope: &str) -> Result<Vec<Listed>, Failure> {
        self.0.list("entries").await
    }

    async fn get(&self, _scope: &str, id: &str) -> Result<Option<Listed>, Failure> {
        self.0.get(&format!("entries/{id}")).await
    }

    async fn create(&self, _scope: &str, desired: &Entry, mark: &Mark) -> Result<Listed, Failure> {
        let body = json!({"name": desired.name, "labels": desired.labels, "tag": mark.to_string()});
        self.0.post("entries", &body).await
    }

    async fn update(&self, _scope: &str, item: &Listed, desired: &Entry, _: &Mark) -> Result<Listed, Failure> {
        self.0.put(&format!("entries/{}", item.id), desired).await
    }

    async fn delete(&self, _scope: &str, item: &Listed) -> Result<Deletion, Failure> {
        self.0.delete(&format!("entries/{}", item.id)).await
    }

    fn id(item: &Listed) -> &str {
        &item.id
    }

    fn name(item: &Listed) -> &str {
        &item.entry.name
    }

    fn mark(item: &Listed) -> Option<Mark> {
        Mark::find_in(&item.tag)
    }

    fn differences(item: &Listed, desired: &Entry, _: &Mark) -> Result<Vec<&'static str>, Failure> {
        let name = (item.entry.name != desired.name).then_some("name");
        let labels = (item.entry.labels != desired.labels).then_some("labels");
        Ok(name.into_iter().chain(labels).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_differs_in_its_name_and_in_its_labels() {
        let entry = |name: &str, team: &str| Entry {
            name: name.to_owned(),
            labels: BTreeMap::from([("team".to_owned(), team.to_owned())]),
        };
        let mark = Mark::new("cluster", "uid", "");
        let listed = Listed { id: "e-1".to_owned(), tag: mark.to_string(), entry: entry("web", "shop") };
        for (desired, expected) in [
            (entry("web", "shop"), &[][..]),
            (entry("web", "search"), &["labels"]),
            (entry("site", "search"), &["name", "labels"]),
        ] {
            assert_eq!(LabelList::differences(&listed, &desired, &mark).as_deref(), Ok(expected), "{desired:?}");
        }
    }
}
