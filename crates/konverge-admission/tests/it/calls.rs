//! Requests and responses, over both versions of HTTP.

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::ConfigMap;
use konverge_admission::{
    Converter, Limits, Mutation, Mutator, OnUndecodable, Operation, Review, Validator, Verdict, Webhook, Webhooks,
    handler,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    FilePair, Running,
    http_client::{Connection, Version, request, tls},
    things::{Shop, Thing, V1, V2},
};

type Map = ConfigMap;

fn webhook(path: &str) -> Webhook {
    Webhook::of::<Map>().name(format!("{}.example.com", path.trim_matches('/').replace('/', "-") + ".test")).path(path)
}

/// Does what the object's `data.do` says.
struct Obedient;

impl Validator<Map> for Obedient {
    type Error = std::io::Error;

    async fn validate(&self, review: &Review<Map>) -> Result<Verdict, Self::Error> {
        let order = review.object.as_ref().and_then(|map| map.data.as_ref()?.get("do").cloned());
        match order.as_deref() {
            Some("deny") => {
                Ok(Verdict::deny("told to").code(422).reason("Invalid").cause("data.do", "is deny").warning("w"))
            }
            Some("fail") => Err(std::io::Error::other("the store is away")),
            Some("panic") => panic!("told to"),
            Some("wait") => std::future::pending().await,
            _ => Ok(Verdict::allow().audit("operation", review.operation.to_string())),
        }
    }
}

struct Labels;

impl Mutator<Map> for Labels {
    type Error = std::convert::Infallible;

    async fn mutate(&self, mut object: Map, review: &Review<Map>) -> Result<Mutation<Map>, Self::Error> {
        assert_eq!(review.object.as_ref(), Some(&object));
        if object.metadata.name.as_deref() == Some("refused") {
            return Ok(Mutation::none(Verdict::deny("not this one")));
        }
        object.metadata.labels.get_or_insert_default().insert("seen".to_owned(), "yes".to_owned());
        Ok(Mutation::to(object).warning("labelled"))
    }
}

fn webhooks() -> Webhooks {
    let data =
        |object: &mut Map| _ = object.data.get_or_insert_default().entry("size".to_owned()).or_insert("1".to_owned());
    let allow = || handler::validator(|_: &Review<Map>| Verdict::allow());
    Webhooks::new()
        .validate(webhook("/validate"), Obedient)
        .validate(webhook("/or-fail").on_undecodable(OnUndecodable::Fail), allow())
        .validate(webhook("/or-admit").on_undecodable(OnUndecodable::Admit), allow())
        .mutate(webhook("/mutate"), Labels)
        .defaults(webhook("/default"), handler::defaulter(data))
        .convert(Converter::<Thing<Shop, V2>>::new().spoke::<Thing<Shop, V1>>())
}

fn review(object: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "7",
            "kind": { "group": "", "version": "v1", "kind": "ConfigMap" },
            "resource": { "group": "", "version": "v1", "resource": "configmaps" },
            "operation": "CREATE",
            "userInfo": {},
            "object": object,
        },
    })
}

fn ordered(order: &str) -> String {
    review(&json!({ "metadata": { "name": "a" }, "data": { "do": order } })).to_string()
}

/// A server and a connection to it for each version of HTTP.
async fn connections(limits: Limits) -> (Running, FilePair, [Connection; 2]) {
    let pair = FilePair::new();
    let running = Running::start(webhooks(), pair.certificates(), limits).await;
    let open = |version| Connection::open(running.address, &pair.certificate, version);
    let both = [open(Version::One).await.unwrap(), open(Version::Two).await.unwrap()];
    (running, pair, both)
}

#[tokio::test]
async fn verdicts_are_answered_as_the_api_server_reads_them() {
    let (running, _pair, both) = connections(Limits::default()).await;
    for mut connection in both {
        let (status, answer) = connection.post("/validate", ordered("nothing")).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(
            answer,
            json!({
                "apiVersion": "admission.k8s.io/v1",
                "kind": "AdmissionReview",
                "response": { "uid": "7", "allowed": true, "auditAnnotations": { "operation": "CREATE" } },
            })
        );
        let (_, answer) = connection.post("/validate", ordered("deny")).await;
        let status = json!({
            "status": "Failure", "code": 422, "message": "told to", "reason": "Invalid",
            "details": { "causes": [{ "reason": "FieldValueInvalid", "message": "is deny", "field": "data.do" }] },
        });
        assert_eq!(answer["response"], json!({ "uid": "7", "allowed": false, "status": status, "warnings": ["w"] }));

        let mut older = review(&Value::Null);
        older["apiVersion"] = "admission.k8s.io/v1beta1".into();
        older["request"]["operation"] = "DELETE".into();
        let (_, answer) = connection.post("/validate?timeout=10s", older.to_string()).await;
        assert_eq!(answer["apiVersion"], "admission.k8s.io/v1beta1");
        assert_eq!(answer["response"]["auditAnnotations"]["operation"], Operation::Delete.to_string());
    }
    assert_eq!((running.ready)(), Ok(()));
    running.assert_metric(r#"controller_runtime_webhook_requests_total{webhook="/validate",code="200"} 6"#);
    running.assert_metric(r#"controller_runtime_webhook_latency_seconds_count{webhook="/validate"} 6"#);
    running.assert_metric(r#"controller_runtime_webhook_requests_in_flight{webhook="/validate"} 0"#);
    running.stop().await;
}

#[tokio::test]
async fn patches_lead_from_what_was_sent_to_what_is_wanted() {
    let (running, _pair, [mut connection, _]) = connections(Limits::default()).await;
    let sent = json!({ "metadata": { "name": "a", "x/y": { "kept": [1] } }, "unknown": true });
    let labelled =
        json!({ "metadata": { "name": "a", "x/y": { "kept": [1] }, "labels": { "seen": "yes" } }, "unknown": true });
    let filled =
        json!({ "metadata": { "name": "a", "x/y": { "kept": [1] } }, "unknown": true, "data": { "size": "1" } });
    let refused = json!({ "metadata": { "name": "refused" } });
    let table = [
        ("/mutate", &sent, true, Some(&labelled)),
        ("/mutate", &labelled, true, None),
        ("/mutate", &refused, false, None),
        ("/mutate", &Value::Null, true, None),
        ("/default", &sent, true, Some(&filled)),
        ("/default", &filled, true, None),
        ("/default", &Value::Null, true, None),
    ];
    for (path, sent, allowed, wanted) in table {
        let (_, answer) = connection.post(path, review(sent).to_string()).await;
        let response = &answer["response"];
        assert_eq!(response["allowed"], allowed);
        assert_eq!(response.get("patch").is_some(), wanted.is_some(), "{path} {sent}: {response}");
        if let Some(wanted) = wanted {
            assert_eq!(response["patchType"], "JSONPatch");
            let patch = STANDARD.decode(response["patch"].as_str().unwrap()).unwrap();
            let mut patched = sent.clone();
            json_patch::patch(&mut patched, &serde_json::from_slice::<json_patch::Patch>(&patch).unwrap()).unwrap();
            assert_eq!(&patched, wanted);
        }
    }
    running.stop().await;
}

#[tokio::test]
async fn what_cannot_be_read_is_answered_by_what_is_wrong_with_it() {
    let limits = Limits::default().with(|limits| limits.admission_body = 4096);
    let (running, _pair, both) = connections(limits).await;
    let object = review(&json!({ "metadata": { "name": "a" }, "data": { "size": 5 } })).to_string();
    let mut without_request = review(&Value::Null);
    without_request["request"] = Value::Null;
    let mut without_operation = review(&Value::Null);
    without_operation["request"].as_object_mut().unwrap().remove("operation");
    let mut other_kind = review(&Value::Null);
    other_kind["kind"] = "ConversionReview".into();
    let (without_request, without_operation) = (without_request.to_string(), without_operation.to_string());
    let exact = "object cannot be read at data.size: invalid type: integer, expected a string";
    let long = "x".repeat(5000);
    for mut connection in both {
        for (body, code, message) in [
            (&object, 400, exact),
            (&without_request, 400, "the review has no request"),
            (&without_operation, 400, "the request cannot be read at .: missing field `operation`"),
        ] {
            let (status, answer) = connection.post("/validate", body.clone()).await;
            let response = &answer["response"];
            assert_eq!((status, &response["allowed"]), (StatusCode::OK, &json!(false)));
            assert_eq!((&response["status"]["code"], &response["status"]["message"]), (&json!(code), &json!(message)));
        }
        let (status, _) = connection.post("/or-fail", object.clone()).await;
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
        let (status, answer) = connection.post("/or-admit", object.clone()).await;
        assert_eq!((status, &answer["response"]["allowed"]), (StatusCode::OK, &json!(true)));
        assert_eq!(answer["response"]["warnings"], json!([format!("not checked: {exact}")]));

        for (body, status, text) in [
            (&object[..object.len() / 2], StatusCode::BAD_REQUEST, "ends too early"),
            ("", StatusCode::BAD_REQUEST, "ends too early"),
            ("hunter2", StatusCode::BAD_REQUEST, "is not the JSON of a review"),
            (&other_kind.to_string(), StatusCode::BAD_REQUEST, "this path takes an AdmissionReview"),
            ("[]", StatusCode::BAD_REQUEST, ""),
        ] {
            let (seen, answer) = connection.post("/validate", body.to_owned()).await;
            assert_eq!(seen, status, "{body}");
            let answer = answer.as_str().unwrap();
            assert!(answer.contains(text) && !answer.contains("hunter2"), "{answer}");
        }
        for (method, path, content_type, status) in [
            (Method::GET, "/validate", "application/json", StatusCode::METHOD_NOT_ALLOWED),
            (Method::POST, "/validate", "text/yaml", StatusCode::UNSUPPORTED_MEDIA_TYPE),
            (Method::POST, "/elsewhere", "application/json", StatusCode::NOT_FOUND),
            (Method::POST, "/validate/", "application/json", StatusCode::NOT_FOUND),
            (Method::GET, "/healthz", "text/plain", StatusCode::OK),
            (Method::GET, "/readyz", "text/plain", StatusCode::OK),
        ] {
            let sent = request(method, path, content_type, object.clone());
            assert_eq!(connection.send(sent).await.unwrap().0, status, "{path} {content_type}");
        }
        let (status, _) = connection.post("/validate", long.clone()).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    }
    running.stop().await;
}

#[tokio::test]
async fn a_body_without_a_length_is_cut_off_at_the_limit() {
    let limits = Limits::default().with(|limits| limits.admission_body = 4096);
    let (running, pair, _) = connections(limits).await;
    let mut stream = tls(running.address, &pair.certificate, Version::One).await.unwrap();
    let head =
        "POST /validate HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(format!("1388\r\n{}\r\n", "x".repeat(5000)).as_bytes()).await.unwrap();
    let mut answer = vec![0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, b"HTTP/1.1 413");
    running.stop().await;
}

#[tokio::test]
async fn a_body_that_breaks_off_is_a_bad_request() {
    let (running, pair, _) = connections(Limits::default()).await;
    let mut stream = tls(running.address, &pair.certificate, Version::One).await.unwrap();
    let head = "POST /validate HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{";
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{answer}");
    konverge_testkit::eventually(crate::SOON, async || {
        let seen = running.metrics().contains(r#"requests_total{webhook="/validate",code="400"} 1"#);
        seen.then_some(())
    })
    .await
    .unwrap();
    running.stop().await;
}

#[tokio::test]
async fn handlers_that_fail_leave_the_decision_to_the_failure_policy() {
    let (running, _pair, both) = connections(Limits::default()).await;
    for mut connection in both {
        for order in ["fail", "panic"] {
            let (status, answer) = connection.post("/validate", ordered(order)).await;
            assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{order}");
            let text = answer.as_str().unwrap();
            assert!(!text.contains("store") && !text.contains("told"), "the text is for the log: {text}");
        }
        let (status, _) = connection.post("/validate?timeout=1s", ordered("wait")).await;
        assert_eq!(status, StatusCode::GATEWAY_TIMEOUT);
        let (status, _) = connection.post("/validate", ordered("nothing")).await;
        assert_eq!(status, StatusCode::OK, "the server goes on");
    }
    running.assert_metric("controller_runtime_webhook_panics_total 2");
    running.assert_metric("controller_runtime_conversion_webhook_panics_total 0");
    running.assert_metric(r#"controller_runtime_webhook_requests_total{webhook="/validate",code="500"} 4"#);
    running.assert_metric(r#"controller_runtime_webhook_requests_total{webhook="/validate",code="504"} 2"#);
    running.stop().await;
}

#[tokio::test]
async fn conversions_answer_with_all_objects_or_name_the_one_in_the_way() {
    let (running, _pair, [_, mut connection]) = connections(Limits::default()).await;
    let path = "/convert-shop-example-com-thing";
    let thing = |name: &str, version: &str, spec: Value| {
        json!({
            "apiVersion": format!("shop.example.com/{version}"), "kind": "Thing",
            "metadata": { "name": name, "namespace": "n", "labels": { "l": "1" }, "generation": 3 }, "spec": spec,
        })
    };
    let asked = |objects: &[Value]| {
        let request = json!({ "uid": "u", "desiredAPIVersion": "shop.example.com/v2", "objects": objects });
        json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request }).to_string()
    };
    let one = thing("one", "v1", json!({ "size": "3 cm" }));
    let two = thing("two", "v2", json!({ "size": 4, "unit": "m" }));
    let (status, answer) = connection.post(path, asked(&[one.clone(), two.clone()])).await;
    assert_eq!(status, StatusCode::OK);
    let converted = thing("one", "v2", json!({ "size": 3, "unit": "cm" }));
    let response = json!({ "uid": "u", "result": { "status": "Success" }, "convertedObjects": [converted, two] });
    assert_eq!(
        answer,
        json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response })
    );

    let (_, answer) = connection.post(path, asked(&[one, thing("three", "v1", json!({ "size": "big" }))])).await;
    let message = "cannot convert Thing n/three from shop.example.com/v1 to shop.example.com/v2: \
                   spec.size: expected a number, a blank and a unit";
    let result = json!({ "status": "Failure", "message": message, "reason": "ConversionFailed" });
    assert_eq!(answer["response"], json!({ "uid": "u", "result": result }));

    let (status, _) = connection.post(path, asked(&[thing("four", "v1", json!({ "size": "panic" }))])).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    running.assert_metric("controller_runtime_conversion_webhook_panics_total 1");
    running.assert_metric("controller_runtime_webhook_panics_total 0");
    let (status, _) = connection.post(path, "{").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    running.stop().await;
}
