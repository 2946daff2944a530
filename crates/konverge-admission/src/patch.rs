//! The patch between an object as it was sent and as a handler wants it.
//!
//! A handler works on a typed object, and a type knows less than the sender: fields of a newer version, or spellings that it
//! normalises. So what the handler changed between the typed object before and after is carried over to the object as it was
//! sent, and the patch is the difference of that. Fields that the handler left alone stay exactly as they were sent.

use json_patch::Patch;
use serde_json::{Map, Value};

/// Keys that tell which element of a list of objects is which, as in the lists of Kubernetes' own kinds.
const IDENTITIES: [&str; 6] = ["name", "key", "type", "id", "uid", "ip"];

/// Returns the patch from `sent` to the object of the handler, or `None` if the handler changed nothing.
///
/// `before` is `sent` as the handler's type reads and writes it, `after` the same when the handler was done.
pub(crate) fn between(sent: &Value, before: &Value, after: &Value) -> Option<Patch> {
    let wanted = carry(sent, before, after);
    let patch = json_patch::diff(sent, &wanted);
    (!patch.0.is_empty()).then_some(patch)
}

/// `sent` with the changes from `before` to `after`.
fn carry(sent: &Value, before: &Value, after: &Value) -> Value {
    match (sent, before, after) {
        _ if before == after => sent.clone(),
        (Value::Object(sent), Value::Object(before), Value::Object(after)) => {
            Value::Object(carry_object(sent, before, after))
        }
        (Value::Array(sent), Value::Array(before), Value::Array(after)) if all_correspond(sent, before) => {
            Value::Array(carry_list(sent, before, after))
        }
        _ => after.clone(),
    }
}

fn carry_object(
    sent: &Map<String, Value>,
    before: &Map<String, Value>,
    after: &Map<String, Value>,
) -> Map<String, Value> {
    let mut wanted = sent.clone();
    wanted.retain(|key, _| after.contains_key(key) || !before.contains_key(key));
    for (key, value) in after {
        let was = before.get(key);
        if was == Some(value) {
            continue;
        }
        let value = match (sent.get(key), was) {
            (Some(sent), Some(was)) => carry(sent, was, value),
            _ => value.clone(),
        };
        wanted.insert(key.clone(), value);
    }
    wanted
}

/// Lists of which `before` is element by element what `sent` is. Elements of `after` are looked for in `before`: first those that
/// are the same at both ends, then equal ones and those with the same identity, then by position if as many came as went.
fn carry_list(sent: &[Value], before: &[Value], after: &[Value]) -> Vec<Value> {
    let head = before.iter().zip(after).take_while(|(was, is)| was == is).count();
    let shorter = before.len().min(after.len()) - head;
    let tail = before.iter().rev().zip(after.iter().rev()).take(shorter).take_while(|(was, is)| was == is).count();
    let (gone, come) = (head..before.len() - tail, &after[head..after.len() - tail]);
    let mut free: Vec<usize> = gone.clone().collect();
    let mut take = |matches: &dyn Fn(usize) -> bool| {
        let found = free.iter().position(|index| matches(*index))?;
        Some(free.remove(found))
    };
    let mut sources: Vec<Option<usize>> = come.iter().map(|value| take(&|index| before[index] == *value)).collect();
    for (source, value) in sources.iter_mut().zip(come) {
        if source.is_none() && identity(value).is_some() {
            *source = take(&|index| identity(&before[index]) == identity(value));
        }
    }
    if gone.len() == come.len() {
        for ((source, value), position) in sources.iter_mut().zip(come).zip(gone) {
            let anonymous = |value| identity(value).is_none();
            if source.is_none() && anonymous(value) && anonymous(&before[position]) {
                *source = take(&|index| index == position);
            }
        }
    }
    let middle = sources.into_iter().zip(come).map(|(source, value)| match source {
        Some(index) => carry(&sent[index], &before[index], value),
        None => value.clone(),
    });
    sent[..head].iter().cloned().chain(middle).chain(sent[sent.len() - tail..].iter().cloned()).collect()
}

fn identity(value: &Value) -> Option<(&str, &Value)> {
    IDENTITIES.iter().find_map(|key| Some((*key, value.get(key)?)))
}

/// Whether a type kept the number and order of a list; one that sorts or drops doubles does not, and then positions mean nothing.
fn all_correspond(sent: &[Value], before: &[Value]) -> bool {
    sent.len() == before.len() && sent.iter().zip(before).all(|(sent, before)| corresponds(sent, before))
}

fn corresponds(sent: &Value, before: &Value) -> bool {
    match (sent, before) {
        (Value::Object(sent), Value::Object(before)) => sent
            .iter()
            .all(|(key, value)| before.get(key).is_none_or(|other| value.is_null() || corresponds(value, other))),
        (Value::Array(sent), Value::Array(before)) => all_correspond(sent, before),
        _ => sent == before,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_handler_left_alone_stays_as_it_was_sent() {
        let table = [
            ("no change", json!({"unknown": 1}), json!({"size": 1}), json!({"size": 1}), json!({"unknown": 1})),
            ("a default that the type adds", json!({}), json!({"size": 1}), json!({"size": 2}), json!({"size": 2})),
            (
                "another field",
                json!({"x": 1, "a": 1}),
                json!({"a": 1, "d": 0}),
                json!({"a": 2, "d": 0}),
                json!({"x": 1, "a": 2}),
            ),
            ("a field goes", json!({"x": 1, "a": 1}), json!({"a": 1}), json!({}), json!({"x": 1})),
            (
                "null is filled",
                json!({"labels": null}),
                json!({}),
                json!({"labels": {"a": "b"}}),
                json!({"labels": {"a": "b"}}),
            ),
            (
                "spelling",
                json!({"cpu": "1000m", "memory": "1Gi"}),
                json!({"cpu": "1", "memory": "1Gi"}),
                json!({"cpu": "1", "memory": "2Gi"}),
                json!({"cpu": "1000m", "memory": "2Gi"}),
            ),
        ];
        for (what, sent, before, after, wanted) in table {
            assert_eq!(carry(&sent, &before, &after), wanted, "{what}");
        }
    }

    #[test]
    fn elements_of_lists_keep_what_the_type_does_not_know() {
        let sent = json!([{"name": "a", "x": 1}, {"name": "b", "x": 2}, {"name": "c", "x": 3}]);
        let before = json!([{"name": "a"}, {"name": "b"}, {"name": "c"}]);
        let table = [
            (
                json!([{"name": "new"}, {"name": "a"}, {"name": "b"}, {"name": "c"}]),
                json!([{"name": "new"}, sent[0], sent[1], sent[2]]),
            ),
            (json!([{"name": "a"}, {"name": "c"}]), json!([sent[0], sent[2]])),
            (json!([{"name": "c"}, {"name": "b"}, {"name": "a"}]), json!([sent[2], sent[1], sent[0]])),
            (
                json!([{"name": "a"}, {"name": "b", "size": 2}, {"name": "c"}]),
                json!([sent[0], {"name": "b", "x": 2, "size": 2}, sent[2]]),
            ),
            (json!([{"name": "a"}, {"name": "other"}, {"name": "c"}]), json!([sent[0], {"name": "other"}, sent[2]])),
            (json!([]), json!([])),
        ];
        for (after, wanted) in table {
            assert_eq!(carry(&sent, &before, &after), wanted, "{after}");
        }
    }

    #[test]
    fn elements_without_a_name_are_told_by_their_place() {
        let sent = json!([{"port": 1, "x": 1}, {"port": 2, "x": 2}]);
        let before = json!([{"port": 1}, {"port": 2}]);
        let after = json!([{"port": 1}, {"port": 3}]);
        assert_eq!(carry(&sent, &before, &after), json!([{"port": 1, "x": 1}, {"port": 3, "x": 2}]));
    }

    #[test]
    fn a_set_that_the_type_sorts_is_taken_as_the_type_writes_it() {
        let (sent, before, after) = (json!(["b", "a"]), json!(["a", "b"]), json!(["a"]));
        assert_eq!(carry(&sent, &before, &after), json!(["a"]));
    }

    #[test]
    fn nothing_to_say_is_no_patch() {
        let sent = json!({"x": 1, "labels": null});
        assert_eq!(between(&sent, &json!({"size": 1}), &json!({"size": 1})), None);
        // The handler asks for what is there already, in the words of the sender.
        assert_eq!(between(&json!({"a": 1}), &json!({}), &json!({"a": 1})), None);
    }

    /// Small alphabets, so that values coincide often.
    fn value() -> impl Strategy<Value = Value> {
        let key = prop::sample::select(vec!["name", "a", "b", "a/b", "m~n", ""]).prop_map(str::to_owned);
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..3_i64).prop_map(Value::from),
            key.clone().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 5, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map(key.clone(), inner, 0..5).prop_map(|map| map.into_iter().collect()),
            ]
        })
    }

    /// The result for a type that knows all fields except `b`, and has a default for `a`.
    fn typed(value: &Value) -> Value {
        match value {
            Value::Object(fields) => {
                let mut known: Map<_, _> = fields
                    .iter()
                    .filter(|(key, _)| *key != "b")
                    .map(|(key, value)| (key.clone(), typed(value)))
                    .collect();
                known.entry("a").or_insert(json!(0));
                Value::Object(known)
            }
            Value::Array(elements) => elements.iter().map(typed).collect(),
            leaf => leaf.clone(),
        }
    }

    proptest! {
        #[test]
        fn the_patch_leads_from_sent_to_wanted(sent in value(), after in value()) {
            let before = typed(&sent);
            let wanted = carry(&sent, &before, &after);
            let mut patched = sent.clone();
            if let Some(patch) = between(&sent, &before, &after) {
                json_patch::patch(&mut patched, &patch).unwrap();
            }
            prop_assert_eq!(patched, wanted);
        }

        #[test]
        fn a_type_that_knows_everything_gets_what_it_wants(sent in value(), after in value()) {
            prop_assert_eq!(carry(&sent, &sent, &after), after);
        }

        #[test]
        fn a_type_reads_back_what_it_wanted(sent in value(), after in value()) {
            let after = typed(&after);
            let wanted = carry(&sent, &typed(&sent), &after);
            prop_assert_eq!(typed(&wanted), after);
        }

        #[test]
        fn no_change_is_no_patch(sent in value()) {
            let before = typed(&sent);
            prop_assert_eq!(between(&sent, &before, &before), None);
        }
    }
}
