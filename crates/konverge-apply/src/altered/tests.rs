use serde_json::json;

use super::*;

fn stored(content: Value, fields: &Value) -> Value {
    let mut object = content;
    object["apiVersion"] = json!("v1");
    object["metadata"]["resourceVersion"] = json!("7");
    object["metadata"]["managedFields"] = json!([
        {"manager": "ours", "operation": "Apply", "apiVersion": "v1", "fieldsV1": fields},
        {"manager": "theirs", "operation": "Update", "apiVersion": "v1", "fieldsV1": {"f:data": {"f:b": {}}, "f:spec": {"f:whole": {}}}},
    ]);
    object
}

fn found(wanted: &Value, content: Value, fields: &Value) -> Vec<String> {
    let mut wanted = wanted.clone();
    wanted["apiVersion"] = json!("v1");
    altered(&wanted, &stored(content, fields), "ours").iter().map(ToString::to_string).collect()
}

#[test]
fn a_changed_value_is_named_with_its_other_managers() {
    let fields = json!({"f:data": {"f:a": {}, "f:b": {}, "f:c": {}}, "f:metadata": {"f:labels": {"f:l.x/y": {}}}});
    let wanted = json!({"data": {"a": "1", "b": "2", "c": "3"}, "metadata": {"name": "n", "labels": {"l.x/y": "1"}}});
    assert!(found(&wanted, wanted.clone(), &fields).is_empty());
    let content = json!({"data": {"a": "x", "b": "y", "more": "z"}, "metadata": {"labels": {"l.x/y": "0"}}});
    assert_eq!(
        found(&wanted, content, &fields),
        [".data.a", ".data.b (also managed by theirs)", ".data.c", r#".metadata.labels["l.x/y"]"#]
    );
}

#[test]
fn defaults_zeros_and_spelling_are_no_change() {
    let fields = json!({"f:spec": {"f:cpu": {}, "f:off": {}, "f:none": {}, "f:items": {}, "f:map": {}, "f:text": {}}});
    let wanted = json!({"spec": {"cpu": 1, "off": false, "none": {}, "items": [{"a": 1}], "map": {"x": {"y": "60m"}}, "text": ""}});
    let content =
        json!({"spec": {"cpu": "1", "items": [{"a": 1, "filled": true}], "map": {"x": {"y": "1h0m0s"}}, "default": 1}});
    assert!(found(&wanted, content, &fields).is_empty());
}

#[test]
fn items_are_found_by_their_keys_and_lists_that_are_owned_whole_by_place() {
    let fields = json!({"f:spec": {
        "f:ports": {r#"k:{"port":80,"protocol":"TCP"}"#: {".": {}, "f:port": {}, "f:name": {}}},
        "f:set": {r#"v:"a""#: {}},
        "f:whole": {},
    }});
    let wanted = json!({"spec": {"ports": [{"port": 80, "name": "web"}], "set": ["a"], "whole": ["x", "y"]}});
    let ports = |name: &str| json!([{"port": 1, "protocol": "TCP"}, {"port": 80, "protocol": "TCP", "name": name}]);
    let content = json!({"spec": {"ports": ports("web"), "set": ["b", "a"], "whole": ["x", "y"]}});
    assert!(found(&wanted, content, &fields).is_empty());
    let content = json!({"spec": {"ports": ports("www"), "set": ["b"], "whole": ["x", "z"]}});
    assert_eq!(
        found(&wanted, content, &fields),
        [".spec.ports[0].name", ".spec.set[0]", ".spec.whole[1] (also managed by theirs)"]
    );
    let content = json!({"spec": {"ports": [], "set": ["a"], "whole": ["x", "y", "z"]}});
    assert_eq!(found(&wanted, content, &fields), [".spec.ports[0]", ".spec.whole (also managed by theirs)"]);
}

#[test]
fn without_a_record_of_our_fields_nothing_is_told() {
    let (wanted, answer) = (json!({"apiVersion": "v1", "data": {"a": "1"}}), json!({"data": {"a": "2"}}));
    assert!(altered(&wanted, &answer, "ours").is_empty());
}
