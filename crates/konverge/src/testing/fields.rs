//! Server-side apply as a model: which manager owns which fields, and how an apply is merged. Pure.
//!
//! It merges as the API server does for maps and for the lists in [`KEYED`]. All other lists are owned as a whole, because the model has no
//! schemas.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// Lists whose items are merged by a key, with that key.
const KEYED: [(&str, &str); 7] = [
    ("conditions", "type"),
    ("containers", "name"),
    ("env", "name"),
    ("initContainers", "name"),
    ("ownerReferences", "uid"),
    ("volumeMounts", "mountPath"),
    ("volumes", "name"),
];

/// Members of `metadata` that no manager owns.
const UNOWNED: [&str; 10] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generateName",
    "generation",
    "managedFields",
    "name",
    "namespace",
    "resourceVersion",
    "uid",
];

/// The time of all that the model makes, so that runs of a test are alike.
pub(super) const TIME: &str = "2026-01-01T00:00:00Z";

/// The way to a field, in the notation of `fieldsV1`: `f:data`, `f:text`. An item of a keyed list is `k:{"type":"Ready"}`, and `.` is the
/// item itself.
type Path = Vec<String>;

/// The writer of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Writer<'a> {
    pub(super) manager: &'a str,
    pub(super) api_version: &'a str,
    pub(super) subresource: Option<&'a str>,
}

/// One entry of `managedFields`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    manager: String,
    operation: String,
    api_version: String,
    subresource: String,
    fields: BTreeSet<Path>,
}

impl Entry {
    fn is_of(&self, writer: Writer<'_>, operation: &str) -> bool {
        self.manager == writer.manager
            && self.operation == operation
            && self.subresource == writer.subresource.unwrap_or_default()
    }
}

/// Merges an apply configuration into an object. On conflict, returns the fields that other managers own with other values, each with its
/// manager, and leaves the object as it is.
pub(super) fn apply(object: &mut Value, body: &Value, writer: Writer<'_>, force: bool) -> Result<(), Vec<String>> {
    let mut entries = entries(object);
    let wanted = owned_part(body, writer.subresource);
    let fields = leaves(&wanted);
    let is_ours = |entry: &Entry| entry.is_of(writer, "Apply");
    let mut conflicts = Vec::new();
    for entry in entries.iter_mut().filter(|entry| !is_ours(entry)) {
        let contested: Vec<Path> = entry
            .fields
            .iter()
            .filter(|path| fields.contains(*path) && get(object, path) != get(body, path))
            .cloned()
            .collect();
        for path in contested {
            conflicts.push(format!("{} is owned by {}", shown(&path), entry.manager));
            entry.fields.remove(&path);
        }
    }
    if !conflicts.is_empty() && !force {
        return Err(conflicts);
    }
    let before = entries.iter().find(|entry| is_ours(entry)).map(|entry| entry.fields.clone()).unwrap_or_default();
    entries.retain(|entry| !is_ours(entry));
    let kept: BTreeSet<&Path> = entries.iter().flat_map(|entry| &entry.fields).chain(&fields).collect();
    let is_kept = |path: &Path| match path.split_last() {
        Some((last, item)) if last == "." => kept.iter().any(|other| other.starts_with(item)),
        _ => kept.iter().any(|other| other.starts_with(path)),
    };
    for path in before.iter().filter(|path| !is_kept(path)) {
        remove(object, path);
    }
    for path in &fields {
        if let Some(value) = get(&wanted, path) {
            set(object, path, value.clone());
        }
    }
    entries.push(entry(writer, "Apply", fields));
    write_entries(object, entries);
    Ok(())
}

/// Records who owns what after a write that is no apply: the manager owns what it changed, and no manager owns what is gone.
pub(super) fn update(before: &Value, after: &mut Value, writer: Writer<'_>) {
    let mut entries = entries(after);
    let (was, is) = (leaves(&whole(before)), leaves(&whole(after)));
    let changed: BTreeSet<Path> =
        is.iter().filter(|path| get(before, path) != get(after, path) || !was.contains(*path)).cloned().collect();
    for entry in &mut entries {
        let is_ours = entry.is_of(writer, "Update");
        entry.fields.retain(|path| get(after, path).is_some() && (is_ours || !changed.contains(path)));
    }
    if !changed.is_empty() {
        match entries.iter_mut().find(|entry| entry.is_of(writer, "Update")) {
            Some(ours) => ours.fields.extend(changed),
            None => entries.push(entry(writer, "Update", changed)),
        }
    }
    write_entries(after, entries);
}

fn entry(writer: Writer<'_>, operation: &str, fields: BTreeSet<Path>) -> Entry {
    Entry {
        manager: writer.manager.to_owned(),
        operation: operation.to_owned(),
        api_version: writer.api_version.to_owned(),
        subresource: writer.subresource.unwrap_or_default().to_owned(),
        fields,
    }
}

fn shown(path: &[String]) -> String {
    path.iter().flat_map(|segment| [".", segment.strip_prefix("f:").unwrap_or(segment)]).collect()
}

fn entries(object: &Value) -> Vec<Entry> {
    let managed = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    let text = |entry: &Value, member: &str| entry[member].as_str().unwrap_or_default().to_owned();
    let read = |entry: &Value| {
        let mut fields = BTreeSet::new();
        read_fields(&entry["fieldsV1"], &mut Vec::new(), &mut fields);
        Entry {
            manager: text(entry, "manager"),
            operation: text(entry, "operation"),
            api_version: text(entry, "apiVersion"),
            subresource: text(entry, "subresource"),
            fields,
        }
    };
    managed.into_iter().flatten().map(read).collect()
}

fn write_entries(object: &mut Value, entries: Vec<Entry>) {
    let written = entries.into_iter().filter(|entry| !entry.fields.is_empty()).map(|entry| {
        let mut fields = json!({});
        for path in &entry.fields {
            let mut place = &mut fields;
            for segment in path {
                place = &mut place[segment];
                if place.is_null() {
                    *place = json!({});
                }
            }
        }
        let mut written = json!({
            "manager": entry.manager,
            "operation": entry.operation,
            "apiVersion": entry.api_version,
            "fieldsType": "FieldsV1",
            "fieldsV1": fields,
            "time": TIME,
        });
        if !entry.subresource.is_empty() {
            written["subresource"] = json!(entry.subresource);
        }
        written
    });
    object["metadata"]["managedFields"] = written.collect();
}

fn read_fields(fields: &Value, path: &mut Path, found: &mut BTreeSet<Path>) {
    match fields.as_object().filter(|members| !members.is_empty()) {
        None if path.is_empty() => {}
        None => {
            found.insert(path.clone());
        }
        Some(members) => {
            for (segment, below) in members {
                path.push(segment.clone());
                read_fields(below, path, found);
                path.pop();
            }
        }
    }
}

/// The fields of an apply configuration that a manager can own.
fn owned_part(body: &Value, subresource: Option<&str>) -> Value {
    if let Some(subresource) = subresource {
        json!({ subresource: body.get(subresource).cloned().unwrap_or_default() })
    } else {
        let mut part = whole(body);
        if let Some(members) = part.as_object_mut() {
            members.remove("status");
        }
        part
    }
}

/// The fields of an object that a manager can own.
fn whole(object: &Value) -> Value {
    let mut part = object.clone();
    if let Some(members) = part.as_object_mut() {
        members.remove("apiVersion");
        members.remove("kind");
        if let Some(metadata) = members.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|name, _| !UNOWNED.contains(&name.as_str()));
            if metadata.is_empty() {
                members.remove("metadata");
            }
        }
    }
    part
}

fn leaves(value: &Value) -> BTreeSet<Path> {
    let mut found = BTreeSet::new();
    for (name, member) in value.as_object().into_iter().flatten() {
        find_leaves(name, member, &mut vec![format!("f:{name}")], &mut found);
    }
    found
}

fn find_leaves(name: &str, value: &Value, path: &mut Path, found: &mut BTreeSet<Path>) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            for (name, member) in members {
                path.push(format!("f:{name}"));
                find_leaves(name, member, path, found);
                path.pop();
            }
        }
        Value::Array(items) if merge_key(name, items).is_some() => {
            let key = merge_key(name, items).unwrap_or_default();
            for item in items {
                path.push(format!("k:{}", json!({ key: item[key] })));
                found.insert(path.iter().cloned().chain([".".to_owned()]).collect());
                for (name, member) in item.as_object().into_iter().flatten() {
                    path.push(format!("f:{name}"));
                    find_leaves(name, member, path, found);
                    path.pop();
                }
                path.pop();
            }
        }
        _ => {
            found.insert(path.clone());
        }
    }
}

/// The key by which the items of this list are merged; none if it is owned as a whole.
fn merge_key(name: &str, items: &[Value]) -> Option<&'static str> {
    let (_, key) = KEYED.into_iter().find(|(list, _)| *list == name)?;
    (!items.is_empty() && items.iter().all(|item| item.get(key).is_some_and(Value::is_string))).then_some(key)
}

fn key_of(segment: &str) -> Option<Map<String, Value>> {
    serde_json::from_str(segment.strip_prefix("k:")?).ok()
}

fn has_key(item: &Value, key: &Map<String, Value>) -> bool {
    key.iter().all(|(name, value)| item.get(name) == Some(value))
}

fn get<'a>(value: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, segment| match segment.strip_prefix("f:") {
        Some(name) => value.get(name),
        None if segment == "." => Some(value),
        None => key_of(segment).and_then(|key| value.as_array()?.iter().find(|item| has_key(item, &key))),
    })
}

fn set(target: &mut Value, path: &[String], leaf: Value) {
    let Some((segment, rest)) = path.split_first() else {
        *target = leaf;
        return;
    };
    if let Some(name) = segment.strip_prefix("f:") {
        if !target.is_object() {
            *target = json!({});
        }
        set(&mut target[name], rest, leaf);
    } else if let Some(key) = key_of(segment) {
        if !target.is_array() {
            *target = json!([]);
        }
        let Some(items) = target.as_array_mut() else { return };
        let place = items.iter().position(|item| has_key(item, &key)).unwrap_or_else(|| {
            items.push(Value::Object(key));
            items.len() - 1
        });
        // The item itself is there now; its members are paths of their own.
        if rest != ["."] {
            set(&mut items[place], rest, leaf);
        }
    }
}

/// Removes a field, and what is empty because of it.
fn remove(target: &mut Value, path: &[String]) {
    let Some((segment, rest)) = path.split_first() else { return };
    if let Some(name) = segment.strip_prefix("f:") {
        let Some(members) = target.as_object_mut() else { return };
        if let Some(below) = members.get_mut(name) {
            remove(below, rest);
            if rest.is_empty() || is_empty(below) {
                members.remove(name);
            }
        }
    } else if let Some(key) = key_of(segment) {
        let Some(items) = target.as_array_mut() else { return };
        if rest == ["."] {
            items.retain(|item| !has_key(item, &key));
        } else if let Some(item) = items.iter_mut().find(|item| has_key(item, &key)) {
            remove(item, rest);
        }
    }
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(manager: &str) -> Writer<'_> {
        Writer { manager, api_version: "v1", subresource: None }
    }

    fn content(object: &Value) -> Value {
        let mut object = object.clone();
        object["metadata"].as_object_mut().unwrap().remove("managedFields");
        object
    }

    #[test]
    fn an_apply_removes_only_what_its_manager_had_alone() {
        let mut object = json!({"metadata": {"name": "a"}});
        apply(&mut object, &json!({"data": {"ours": "1", "shared": "1"}}), by("ours"), false).unwrap();
        apply(&mut object, &json!({"data": {"shared": "1", "theirs": "1"}}), by("theirs"), false).unwrap();
        apply(&mut object, &json!({"data": {"ours": "2"}}), by("ours"), false).unwrap();
        let expected = json!({"metadata": {"name": "a"}, "data": {"ours": "2", "shared": "1", "theirs": "1"}});
        assert_eq!(content(&object), expected);
        apply(&mut object, &json!({"metadata": {"name": "a"}}), by("ours"), false).unwrap();
        assert_eq!(object["data"], json!({"shared": "1", "theirs": "1"}));
        assert_eq!(object["metadata"]["managedFields"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn another_value_of_another_manager_is_a_conflict_unless_it_is_forced() {
        let mut object = json!({"metadata": {}});
        apply(&mut object, &json!({"data": {"a": "1"}}), by("theirs"), false).unwrap();
        let before = object.clone();
        let conflicts = apply(&mut object, &json!({"data": {"a": "2"}}), by("ours"), false).unwrap_err();
        assert_eq!(conflicts, [".data.a is owned by theirs"]);
        assert_eq!(object, before);
        apply(&mut object, &json!({"data": {"a": "2"}}), by("ours"), true).unwrap();
        assert_eq!(object["data"]["a"], "2");
        apply(&mut object, &json!({}), by("theirs"), false).unwrap();
        assert_eq!(object["data"]["a"], "2", "the first owner has lost it");
    }

    #[test]
    fn items_of_a_keyed_list_are_owned_one_by_one() {
        let status = |manager| Writer { subresource: Some("status"), ..by(manager) };
        let condition = |name: &str, status: &str| json!({"type": name, "status": status});
        let mut object = json!({"metadata": {}});
        let body = |conditions: &[Value]| json!({"status": {"conditions": conditions}});
        apply(&mut object, &body(&[condition("Ready", "True"), condition("Old", "True")]), status("ours"), true)
            .unwrap();
        apply(&mut object, &body(&[condition("Foo", "True")]), status("theirs"), true).unwrap();
        apply(&mut object, &body(&[condition("Ready", "False")]), status("ours"), true).unwrap();
        assert_eq!(object["status"]["conditions"], json!([condition("Ready", "False"), condition("Foo", "True")]));
    }

    #[test]
    fn an_update_takes_what_it_changes_and_gives_up_what_is_gone() {
        let mut object = json!({"metadata": {}});
        apply(&mut object, &json!({"data": {"a": "1", "b": "1"}}), by("ours"), false).unwrap();
        let before = object.clone();
        object["data"] = json!({"a": "2"});
        update(&before, &mut object, by("kubectl"));
        assert_eq!(entries(&object).len(), 1, "{object}");
        assert_eq!(entries(&object)[0].manager, "kubectl");
        apply(&mut object, &json!({"data": {"a": "1", "b": "1"}}), by("ours"), true).unwrap();
        assert_eq!(object["data"], json!({"a": "1", "b": "1"}));
    }
}
