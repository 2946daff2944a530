use proptest::prelude::*;
use serde_json::json;

use super::*;

const MANAGER: &str = "ours";

/// An object as the API server shows it, in which our manager has applied `fields`.
fn observed(content: Value, fields: &Value) -> Value {
    let mut object = content;
    object["apiVersion"] = json!("v1");
    object["kind"] = json!("Thing");
    object["metadata"]["name"] = json!("app");
    object["metadata"]["resourceVersion"] = json!("7");
    object["metadata"]["managedFields"] = json!([
        {"manager": "theirs", "operation": "Apply", "apiVersion": "v1", "fieldsV1": {"f:other": {}}},
        {"manager": MANAGER, "operation": "Update", "apiVersion": "v1", "fieldsV1": {"f:other": {}}},
        {"manager": MANAGER, "operation": "Apply", "apiVersion": "v1", "subresource": "status", "fieldsV1": {"f:other": {}}},
        {"manager": MANAGER, "operation": "Apply", "apiVersion": "v1", "fieldsV1": fields},
    ]);
    object
}

fn desired(content: Value) -> Value {
    let mut object = content;
    object["apiVersion"] = json!("v1");
    object["kind"] = json!("Thing");
    object["metadata"]["name"] = json!("app");
    object
}

#[track_caller]
fn check(expected: bool, wanted: Value, seen: Value, fields: &Value) {
    let (wanted, seen) = (desired(wanted), observed(seen, fields));
    assert_eq!(is_in_sync(&wanted, &seen, MANAGER), expected, "{wanted:#}\n{seen:#}");
}

#[test]
fn fields_that_are_owned_and_as_wanted_are_in_sync() {
    let fields = json!({"f:data": {"f:a": {}, "f:b": {}}});
    check(true, json!({"data": {"a": "1", "b": "2"}}), json!({"data": {"a": "1", "b": "2"}}), &fields);
    check(true, json!({"data": {"a": "1", "b": "2"}}), json!({"data": {"a": "1", "b": "2", "theirs": "3"}}), &fields);
    check(false, json!({"data": {"a": "1", "b": "2"}}), json!({"data": {"a": "1", "b": "3"}}), &fields);
    check(false, json!({"data": {"a": "1", "b": "2"}}), json!({"data": {"a": "1"}}), &fields);
}

#[test]
fn a_field_that_is_no_longer_wanted_is_not_in_sync() {
    let fields = json!({"f:data": {"f:a": {}, "f:b": {}}});
    check(false, json!({"data": {"a": "1"}}), json!({"data": {"a": "1", "b": "2"}}), &fields);
    check(false, json!({"data": {"a": "1", "b": null}}), json!({"data": {"a": "1", "b": "2"}}), &fields);
    check(false, json!({}), json!({"data": {"a": "1", "b": "2"}}), &fields);
}

#[test]
fn a_field_that_others_wrote_with_the_wanted_value_is_not_ours_yet() {
    let seen = json!({"data": {"a": "1", "b": "2"}});
    check(false, json!({"data": {"a": "1", "b": "2"}}), seen, &json!({"f:data": {"f:a": {}}}));
}

#[test]
fn without_a_record_of_our_fields_nothing_is_proved() {
    let wanted = desired(json!({"data": {"a": "1"}}));
    let mut seen = observed(json!({"data": {"a": "1"}}), &json!({"f:data": {"f:a": {}}}));
    assert!(is_in_sync(&wanted, &seen, MANAGER));
    assert!(!is_in_sync(&wanted, &seen, "another"));
    let other_version =
        json!({"manager": MANAGER, "operation": "Apply", "apiVersion": "v2", "fieldsV1": {"f:old": {}}});
    seen["metadata"]["managedFields"].as_array_mut().expect("a list").push(other_version);
    assert!(!is_in_sync(&wanted, &seen, MANAGER), "fields in another version may have to go");
    seen["metadata"]["managedFields"] = json!([]);
    assert!(!is_in_sync(&wanted, &seen, MANAGER));
    seen["metadata"].as_object_mut().expect("a map").remove("managedFields");
    assert!(!is_in_sync(&wanted, &seen, MANAGER));
    assert!(!is_in_sync(&json!("?"), &json!(["?"]), MANAGER));
}

#[test]
fn metadata_counts_but_for_what_nobody_owns() {
    let fields = json!({"f:metadata": {"f:labels": {"f:app": {}}}});
    let seen = json!({"metadata": {"labels": {"app": "shop", "theirs": "x"}, "uid": "u", "generation": 3}});
    check(true, json!({"metadata": {"labels": {"app": "shop"}}}), seen.clone(), &fields);
    check(true, json!({"metadata": {"labels": {"app": "shop"}, "uid": "u", "namespace": "n"}}), seen.clone(), &fields);
    check(false, json!({"metadata": {"labels": {"app": "till"}}}), seen.clone(), &fields);
    check(false, json!({"metadata": {"labels": {"app": "shop"}, "annotations": {"a": "b"}}}), seen.clone(), &fields);
    check(false, json!({}), seen, &fields);
    check(true, json!({}), json!({}), &json!({}));
}

#[test]
fn items_are_found_by_their_keys_and_defaults_do_not_count() {
    let fields = json!({"f:ports": {
        r#"k:{"port":80,"protocol":"TCP"}"#: {".": {}, "f:port": {}, "f:name": {}},
        r#"k:{"port":53,"protocol":"UDP"}"#: {".": {}, "f:port": {}, "f:protocol": {}},
    }});
    let seen = json!({"ports": [
        {"port": 1, "protocol": "TCP"},
        {"port": 80, "protocol": "TCP", "name": "web", "targetPort": 80},
        {"port": 53, "protocol": "UDP", "targetPort": 53},
    ]});
    let (web, names) = (json!({"port": 80, "name": "web"}), json!({"port": 53, "protocol": "UDP"}));
    check(true, json!({"ports": [web, names]}), seen.clone(), &fields);
    check(false, json!({"ports": [names, web]}), seen.clone(), &fields);
    check(false, json!({"ports": [web]}), seen.clone(), &fields);
    check(false, json!({"ports": [web, names, {"port": 1}]}), seen.clone(), &fields);
    check(false, json!({"ports": [web, {"port": 53, "protocol": "TCP"}]}), seen.clone(), &fields);
    check(false, json!({"ports": [{"port": 80, "name": "www"}, names]}), seen.clone(), &fields);
    check(false, json!({"ports": [{"port": 80}, names]}), seen, &fields);
}

#[test]
fn a_set_is_compared_without_the_items_of_others() {
    let fields = json!({"f:metadata": {"f:finalizers": {".": {}, r#"v:"a/b""#: {}}}});
    let seen = |items: Value| json!({"metadata": {"finalizers": items}});
    check(true, seen(json!(["a/b"])), seen(json!(["c/d", "a/b"])), &fields);
    check(false, seen(json!(["a/b"])), seen(json!(["c/d"])), &fields);
    check(false, seen(json!(["a/b", "c/d"])), seen(json!(["c/d", "a/b"])), &fields);
}

#[test]
fn a_list_without_items_owns_nothing() {
    check(true, json!({"ports": []}), json!({}), &json!({}));
    check(true, json!({"ports": []}), json!({"ports": [{"port": 1}]}), &json!({}));
    check(false, json!({"ports": [{"port": 1}]}), json!({"ports": [{"port": 1}]}), &json!({}));
}

#[test]
fn what_is_owned_as_a_whole_has_nothing_else_in_it() {
    let fields = json!({"f:selector": {}, "f:rules": {}});
    let seen = json!({"selector": {"app": "shop"}, "rules": [{"verbs": ["get"]}]});
    check(true, seen.clone(), seen.clone(), &fields);
    let more = json!({"selector": {"app": "shop", "old": ""}, "rules": [{"verbs": ["get"]}]});
    check(false, seen.clone(), more, &fields);
    let more = json!({"selector": {"app": "shop"}, "rules": [{"verbs": ["get"], "was": "filled in"}]});
    check(false, seen.clone(), more, &fields);
    let fewer = json!({"selector": {"app": "shop"}, "rules": []});
    check(false, seen, fewer, &fields);
}

#[test]
fn zeros_that_the_server_does_not_show_are_in_sync() {
    let fields = json!({"f:a": {}, "f:b": {}, "f:c": {}, "f:d": {}, "f:n": {}});
    check(true, json!({"a": 0, "b": false, "c": "", "d": {}, "n": 1}), json!({"n": 1.0}), &fields);
    check(false, json!({"a": 0, "b": true, "c": "", "d": {}, "n": 1}), json!({"n": 1}), &fields);
    let large = json!({"f:n": {}});
    check(false, json!({"n": 9_007_199_254_740_993_i64}), json!({"n": 9_007_199_254_740_992_i64}), &large);
}

/// Objects whose maps are owned member by member and whose lists are owned whole, which is how custom resources are by default.
fn content() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof!["[a-c]{1,3}".prop_map(Value::from), (1..5_i64).prop_map(Value::from), Just(json!(true))];
    let value = leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 1..3).prop_map(Value::from),
            proptest::collection::btree_map("[a-d]", inner, 1..3).prop_map(|members| json!(members)),
        ]
    });
    proptest::collection::btree_map("[a-d]", value, 0..4).prop_map(|members| json!({"spec": members}))
}

/// The fields that an apply of it makes ours.
fn fields_of(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            members.iter().map(|(name, value)| (format!("f:{name}"), fields_of(value))).collect::<Map<_, _>>().into()
        }
        _ => json!({}),
    }
}

/// Adds what others own.
fn with_more(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut members =
                members.iter().map(|(name, value)| (name.clone(), with_more(value))).collect::<Map<_, _>>();
            if !members.is_empty() {
                members.insert("theirs".to_owned(), json!("x"));
            }
            members.into()
        }
        other => other.clone(),
    }
}

proptest! {
    #[test]
    fn what_was_applied_is_in_sync_whatever_others_add(content in content()) {
        let seen = observed(with_more(&content), &fields_of(&content));
        prop_assert!(is_in_sync(&desired(content), &seen, MANAGER));
    }

    #[test]
    fn only_what_was_applied_is_in_sync(applied in content(), wanted in content()) {
        let seen = observed(with_more(&applied), &fields_of(&applied));
        prop_assert_eq!(is_in_sync(&desired(wanted.clone()), &seen, MANAGER), applied == wanted);
    }
}

/// Names and values of the items of a list that is merged by name.
fn items() -> impl Strategy<Value = Vec<(String, i64)>> {
    proptest::collection::btree_map("[a-d]", 0..3_i64, 0..4)
        .prop_map(|items| items.into_iter().collect::<Vec<_>>())
        .prop_shuffle()
}

fn list(items: &[(String, i64)]) -> Vec<Value> {
    items.iter().map(|(name, value)| json!({"name": name, "value": value})).collect()
}

proptest! {
    #[test]
    fn items_are_in_sync_if_they_and_their_order_are_as_applied(applied in items(), wanted in items(), theirs in 0..5_usize) {
        let fields: Map<_, _> = applied
            .iter()
            .map(|(name, _)| (format!("k:{}", json!({"name": name})), json!({".": {}, "f:name": {}, "f:value": {}})))
            .collect();
        let fields = if applied.is_empty() { json!({}) } else { json!({"f:list": fields}) };
        let mut there = list(&applied);
        for item in &mut there {
            item["filledIn"] = json!(true);
        }
        there.insert(theirs.min(there.len()), json!({"name": "theirs", "value": 1}));
        let seen = observed(json!({"list": there}), &fields);
        prop_assert_eq!(is_in_sync(&desired(json!({"list": list(&wanted)})), &seen, MANAGER), applied == wanted);
    }
}
