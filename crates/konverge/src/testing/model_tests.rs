use super::*;

const MAPS: &str = "/api/v1/namespaces/shop/configmaps";

fn model_request(method: Method, path: &str, query: &[(&str, &str)], content_type: &str, body: &Value) -> ModelRequest {
    ModelRequest {
        method,
        path: path.to_owned(),
        query: query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        content_type: content_type.to_owned(),
        is_metadata_only: false,
        body: if body.is_null() { Vec::new() } else { body.to_string().into_bytes() },
    }
}

#[expect(clippy::needless_pass_by_value, reason = "callers make the value in place")]
fn map(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
}

/// Sends it, and returns the status code and the object or status.
fn send(model: &mut Model, request: &ModelRequest) -> (u16, Value) {
    let (code, body) = model.answer(request);
    (code.as_u16(), body)
}

fn apply(model: &mut Model, manager: &str, body: &Value) -> (u16, Value) {
    let path = format!("{MAPS}/a");
    let query = [("fieldManager", manager), ("force", "true")];
    send(model, &model_request(Method::PATCH, &path, &query, "application/apply-patch+yaml", body))
}

fn get(model: &mut Model, path: &str) -> (u16, Value) {
    send(model, &model_request(Method::GET, path, &[], "", &Value::Null))
}

fn delete(model: &mut Model, options: &Value) -> (u16, Value) {
    send(model, &model_request(Method::DELETE, &format!("{MAPS}/a"), &[], "", options))
}

/// The first object of the model had version 1, so an apply that was to create its object changed another client's.
#[test]
fn an_apply_that_only_creates_changes_no_object_that_is_there() {
    let mut model = Model::default();
    assert_eq!(apply(&mut model, "theirs", &map(json!({"x": "theirs"}))).0, 201);
    let mut body = map(json!({"x": "ours"}));
    body["metadata"]["resourceVersion"] = json!("1");
    assert_eq!(apply(&mut model, "ours", &body).0, 409);
    assert_eq!(get(&mut model, &format!("{MAPS}/a")).1["data"], json!({"x": "theirs"}));
    assert_eq!(delete(&mut model, &json!({})).0, 200);
    assert_eq!(apply(&mut model, "ours", &body).0, 201);
}

#[test]
fn an_object_lives_from_its_creation_to_its_deletion() {
    let mut model = Model::default();
    assert_eq!(get(&mut model, &format!("{MAPS}/a")).0, 404);
    let (code, created) = apply(&mut model, "ours", &map(json!({"x": "1"})));
    assert_eq!((code, &created["metadata"]["namespace"]), (201, &json!("shop")));
    let (code, same) = apply(&mut model, "ours", &map(json!({"x": "1"})));
    assert_eq!((code, &same), (200, &created), "an apply that changes nothing makes no version");
    let (_, changed) = apply(&mut model, "ours", &map(json!({"y": "1"})));
    assert_eq!(changed["data"], json!({"y": "1"}));
    assert_ne!(changed["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"]);
    assert_eq!(changed["metadata"]["uid"], created["metadata"]["uid"]);
    let stale = json!({"preconditions": {"resourceVersion": created["metadata"]["resourceVersion"]}});
    assert_eq!(delete(&mut model, &stale).0, 409);
    let fresh = json!({"preconditions": {"uid": created["metadata"]["uid"]}});
    assert_eq!(delete(&mut model, &fresh).0, 200);
    assert_eq!(delete(&mut model, &fresh).0, 404);
    let texts: Vec<_> = model.writes.iter().map(|write| (write.to_string(), write.code)).collect();
    let (apply, delete) = ("apply ConfigMap shop/a".to_owned(), "delete ConfigMap shop/a".to_owned());
    assert_eq!(texts[..3], [(apply.clone(), 201), (apply.clone(), 200), (apply, 200)]);
    assert_eq!(texts[3..5], [(delete.clone(), 409), (delete, 200)]);
}

#[test]
fn a_finalizer_holds_what_is_deleted() {
    let mut model = Model::default();
    let mut object = map(json!({}));
    object["metadata"]["finalizers"] = json!(["a/b"]);
    apply(&mut model, "ours", &object);
    let (code, terminating) = delete(&mut model, &Value::Null);
    assert_eq!((code, terminating["metadata"]["deletionTimestamp"].is_string()), (200, true));
    let uid = &terminating["metadata"]["uid"];
    let patch = |uid: &Value| json!([{"op": "test", "path": "/metadata/uid", "value": uid}, {"op": "remove", "path": "/metadata/finalizers/0"}]);
    let request =
        |patch: &Value| model_request(Method::PATCH, &format!("{MAPS}/a"), &[], "application/json-patch+json", patch);
    assert_eq!(send(&mut model, &request(&patch(&json!("another")))).0, 422);
    assert_eq!(send(&mut model, &request(&patch(uid))).0, 200);
    assert_eq!(get(&mut model, &format!("{MAPS}/a")).0, 404);
}

#[test]
fn the_status_is_written_through_its_subresource_only() {
    let mut model = Model::default();
    let mut object = map(json!({"x": "1"}));
    object["status"] = json!({"ready": true});
    let created = send(&mut model, &model_request(Method::POST, MAPS, &[], "", &object)).1;
    assert_eq!(created.get("status"), None);
    let status = format!("{MAPS}/a/status");
    let merge = |path: &str| {
        model_request(
            Method::PATCH,
            path,
            &[],
            "application/merge-patch+json",
            &json!({"data": {"x": "2"}, "status": {"ready": true}}),
        )
    };
    let written = send(&mut model, &merge(&status)).1;
    assert_eq!((&written["data"]["x"], &written["status"]), (&json!("1"), &json!({"ready": true})));
    let written = send(&mut model, &merge(&format!("{MAPS}/a"))).1;
    assert_eq!(written["data"]["x"], "2");
}

#[test]
fn lists_and_watches_are_narrowed_by_place_and_labels() {
    let mut model = Model::default();
    for (namespace, name, team) in [("shop", "a", "x"), ("shop", "b", "y"), ("till", "c", "x")] {
        let mut object = map(json!({}));
        object["metadata"] = json!({"name": name, "labels": {"team": team}});
        send(
            &mut model,
            &model_request(Method::POST, &format!("/api/v1/namespaces/{namespace}/configmaps"), &[], "", &object),
        );
    }
    let request = |path: &str| model_request(Method::GET, path, &[("labelSelector", "team=x")], "", &Value::Null);
    let names = |list: &Value| {
        let items = list["items"].as_array().unwrap().iter();
        items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&send(&mut model, &request("/api/v1/configmaps")).1), ["a", "c"]);
    assert_eq!(names(&send(&mut model, &request(MAPS)).1), ["a"]);
    let relabelled = json!({"metadata": {"labels": {"team": "y"}}});
    send(
        &mut model,
        &model_request(Method::PATCH, &format!("{MAPS}/a"), &[], "application/merge-patch+json", &relabelled),
    );
    let (events, version) = model.watched(&Place::parse(MAPS).unwrap(), &request(MAPS), 2);
    assert_eq!(events.iter().map(|event| event["type"].as_str().unwrap()).collect::<Vec<_>>(), ["DELETED"]);
    assert_eq!(version, 5);
}

#[test]
fn a_dry_run_keeps_nothing_and_is_no_write() {
    let mut model = Model::default();
    let query = [("dryRun", "All"), ("fieldManager", "ours")];
    let request = model_request(
        Method::PATCH,
        &format!("{MAPS}/a"),
        &query,
        "application/apply-patch+yaml",
        &map(json!({"x": "1"})),
    );
    let (code, object) = send(&mut model, &request);
    assert_eq!((code, &object["data"]["x"]), (201, &json!("1")));
    assert_eq!(get(&mut model, &format!("{MAPS}/a")).0, 404);
    assert!(model.writes.is_empty());
}

#[test]
fn a_generation_counts_changes_of_what_is_asked_for() {
    let mut model = Model::default();
    let path = "/apis/example.io/v1/namespaces/shop/things";
    let object = json!({"apiVersion": "example.io/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"x": 1}});
    let generation = |object: &Value| object["metadata"]["generation"].as_i64();
    assert_eq!(generation(&send(&mut model, &model_request(Method::POST, path, &[], "", &object)).1), Some(1));
    let mut merge = |patch: Value| {
        let request = model_request(Method::PATCH, &format!("{path}/a"), &[], "application/merge-patch+json", &patch);
        generation(&send(&mut model, &request).1)
    };
    assert_eq!(merge(json!({"metadata": {"labels": {"a": "b"}}})), Some(1));
    assert_eq!(merge(json!({"spec": {"x": 2}})), Some(2));
}

#[test]
fn a_kind_without_definition_is_not_found() {
    let mut model = Model::default();
    let place = Place::parse(MAPS).unwrap();
    model.forget_kind(place.resource.clone());
    assert!(!model.knows(&place.resource));
    assert_eq!([get(&mut model, MAPS).0, apply(&mut model, "ours", &map(json!({}))).0], [404, 404]);
}
