//! The token and the setup keys are in their Secrets and in the calls to openZro, and nowhere else (I8, F36): also at the most detailed level of the
//! log, and while calls fail.

use std::{collections::BTreeSet, fs, sync::Mutex, time::Duration};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Event, Secret},
};
use konverge_testkit::{eventually, free_port, http_get};
use konverge_testkit_stores::{Fault, Seen};
use kube::{Api, api::ListParams};
use serde_json::{Value, to_string};

use crate::{
    lives::{Items, Life, Routing, by_hand},
    stage::{LIMIT, Stage, World, resource},
};

/// The first call to each path goes wrong, each in another way. That of a setup key is answered up to a place behind the key.
fn trouble(known: &Mutex<BTreeSet<String>>, seen: &Seen) -> Option<Fault> {
    let mut known = known.lock().unwrap();
    if !known.insert(format!("{} {}", seen.method, seen.path)) {
        return None;
    }
    let headers = vec![("content-type", "application/json".to_owned())];
    let refusal = |status: u16| {
        let body = format!(r#"{{"message":"refused","code":{status}}}"#);
        Fault::Answer { status, headers: headers.clone(), body }
    };
    Some(match known.len() % 5 {
        _ if seen.method == "POST" && seen.path.ends_with("/setup-keys") => Fault::Truncate(330),
        0 => Fault::DropReply,
        1 => refusal(401),
        2 => refusal(500),
        3 => Fault::html_404(),
        _ => Fault::Truncate(9),
    })
}

/// Whether a text has a setup key: the server writes them with capital letters, and all other ids with small ones.
fn has_setup_key(text: &str) -> bool {
    let is_key = |window: &[u8]| {
        let is_in_place = |(place, letter): (usize, &u8)| match place {
            8 | 13 | 18 | 23 => *letter == b'-',
            _ => letter.is_ascii_digit() || (b'A'..=b'F').contains(letter),
        };
        window.iter().enumerate().all(is_in_place) && window.iter().any(u8::is_ascii_uppercase)
    };
    text.as_bytes().windows(36).any(is_key)
}

/// Everything that the operator has written to Kubernetes, but for Secrets.
async fn objects(world: &World) -> String {
    let (all, namespace) = (ListParams::default(), world.namespace.as_str());
    let mut texts = Vec::new();
    for (version, kind) in [
        ("v1", "OZGroup"),
        ("v1", "OZPolicy"),
        ("v1", "OZResource"),
        ("v1", "OZRoutingPeer"),
        ("v1alpha1", "Group"),
        ("v1alpha1", "SetupKey"),
    ] {
        texts.push(to_string(&world.api(&resource(version, kind)).list(&all).await.unwrap().items).unwrap());
    }
    let deployments = Api::<Deployment>::namespaced(world.client(), namespace);
    texts.push(to_string(&deployments.list(&all).await.unwrap().items).unwrap());
    texts.join("\n")
}

/// The first step of a life. Returns the places where secrets could be shown.
async fn places<L: Life>(stage: &Stage, life: L) -> (World, Vec<(&'static str, String)>) {
    let metrics = format!("127.0.0.1:{}", free_port().unwrap());
    let flag = format!("--metrics-bind-address={metrics}");
    let world = stage.world().await.with(|spec| spec.arg(flag).env("RUST_LOG", "trace"));
    by_hand(&world).await;
    let known = Mutex::default();
    world.front.plan(move |seen| trouble(&known, seen));
    let mut operator = stage.start(&world);
    life.change(&world, 0).await;
    let done = eventually(LIMIT, async || life.is_converged(&world, 0).await.then_some(())).await;
    assert!(done.is_ok(), "{:#?}", world.front.journal());
    let (_, shown) = http_get(&metrics, "/metrics").await.unwrap();
    assert!(shown.contains("openzro_requests_total"), "{shown}");
    let events = Api::<Event>::namespaced(world.client(), &world.namespace);
    let events = to_string(&events.list(&ListParams::default()).await.unwrap().items).unwrap();
    let paths: Vec<_> = world.front.journal().into_iter().map(|seen| seen.path).collect();
    let arguments = fs::read_to_string(format!("/proc/{}/cmdline", operator.pid().unwrap())).unwrap();
    let objects = objects(&world).await;
    operator.terminate(Duration::from_secs(20)).await.unwrap();
    let log = operator.logged();
    assert!(log.contains("TRACE") && log.contains("konverge_remote"), "it says all it can");
    let places = vec![
        ("the log", log),
        ("metrics", shown),
        ("events", events),
        ("objects", objects),
        ("addresses", paths.join("\n")),
        ("arguments", arguments),
    ];
    (world, places)
}

/// Each life has a cluster of its own, because the operator works for all namespaces.
async fn shows_no_secret<L: Life>(life: L) {
    let stage = Stage::set().await;
    let (world, places) = places(&stage, life).await;
    let secrets = Api::<Secret>::namespaced(world.client(), &world.namespace);
    let stored: Vec<_> = secrets.list(&ListParams::default()).await.unwrap().items;
    let values = stored.iter().flat_map(|secret| secret.data.iter().flat_map(|data| data.values()));
    let values: Vec<_> = values.map(|value| String::from_utf8(value.0.clone()).unwrap()).collect();
    assert!(!values.is_empty() && values.iter().all(|value| has_setup_key(value)), "each Secret has a setup key");
    for (place, text) in &places {
        assert!(!text.is_empty(), "{place} says nothing at all");
        assert!(!text.contains(&world.token), "{place} shows the token");
        assert!(!has_setup_key(text), "{place} shows a setup key");
        for value in &values {
            let encoded = serde_json::to_value(k8s_openapi::ByteString(value.clone().into_bytes())).unwrap();
            let Value::String(encoded) = encoded else { panic!("base64 is a text") };
            assert!(!text.contains(value) && !text.contains(&encoded), "{place} shows a setup key");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f36_no_token_and_no_setup_key_is_shown() {
    shows_no_secret(Items).await;
    shows_no_secret(Routing).await;
}
