//! Changes that are noticed, and the number of requests they cost.

use std::{collections::BTreeMap, time::Duration};

use konverge_core::digest::{DIGEST_KEY_LENGTH, DigestKey};
use konverge_testkit::eventually;
use konverge_testkit_stores::{Fault, HttpFront, VaultServer};
use konverge_vault::{
    Deletion, Expected, Known, KvVersion, Location, Login, Mount, SecretPath, Seen, StateKey, Vault, VaultConfig,
    Watch, Watches,
};
use serde_json::{Value, json};

use crate::{
    double::{Script, serve},
    support::{SOON, administrator, config, content, credential, locate, server},
};

const OFTEN: Duration = Duration::from_millis(100);

fn watches(vault: &Vault) -> Watches {
    Watches::new(vault.clone(), DigestKey::new([7; DIGEST_KEY_LENGTH]))
}

async fn changed(watch: &mut Watch) -> Known {
    tokio::time::timeout(SOON, watch.changed()).await.expect("a change in time")
}

async fn state(watch: &mut Watch) -> StateKey {
    match changed(watch).await {
        Known { seen: Some(Seen::State(state)), failure: None, .. } => state,
        other => panic!("not a state: {other:?}"),
    }
}

/// Waits until it has been asked some more; nothing may change meanwhile.
async fn quiet(watches: &Watches, watch: &mut Watch) {
    let before = watches.questions();
    let asked = eventually(SOON, || std::future::ready((watches.questions() >= before + 4).then_some(())));
    tokio::select! {
        known = watch.changed() => panic!("a change that should not be: {known:?}"),
        asked = asked => asked.unwrap(),
    }
}

async fn mounted() -> (VaultServer, Vault) {
    let server = server().await;
    server.mount_kv("kv", 2).await.unwrap();
    server.mount_kv("old", 1).await.unwrap();
    let vault = administrator(&server);
    (server, vault)
}

#[tokio::test]
async fn every_change_of_a_version_is_told_and_nothing_else() {
    let (_server, vault) = mounted().await;
    let location = locate(&vault, "kv/data/a").await;
    let watches = watches(&vault);
    let mut watch = watches.watch(location.clone(), OFTEN);
    assert_eq!(changed(&mut watch).await.seen, Some(Seen::Absent));
    let write = async |value: &str, expected| {
        vault.write(&location, &content(&[("a", value)]), expected).await.unwrap();
    };
    write("1", Expected::Absent).await;
    assert_eq!(state(&mut watch).await.version, 1);
    write("1", Expected::Version(1)).await;
    let second = state(&mut watch).await;
    assert_eq!((second.version, second.deleted), (2, false));

    // A note beside it is no change.
    vault.annotate(&location, &BTreeMap::from([("note".to_owned(), Some("x".to_owned()))])).await.unwrap();
    quiet(&watches, &mut watch).await;

    vault.delete(&location, Expected::Any, Deletion::Soft).await.unwrap();
    assert!(state(&mut watch).await.deleted);
    vault.undelete(&location, &[2]).await.unwrap();
    assert_eq!(state(&mut watch).await, second);
    vault.destroy(&location, &[2]).await.unwrap();
    assert!(state(&mut watch).await.destroyed);

    // Gone with its metadata and made again in one interval, with the same number.
    vault.delete(&location, Expected::Any, Deletion::Metadata).await.unwrap();
    write("1", Expected::Absent).await;
    write("2", Expected::Version(1)).await;
    let last = eventually(SOON, || {
        std::future::ready(match watch.known().seen {
            Some(Seen::State(state)) if state.version == 2 && !state.destroyed => Some(state),
            _ => None,
        })
    });
    assert_ne!(last.await.unwrap().entry_created, second.entry_created);
}

#[tokio::test]
async fn a_thousand_that_want_one_path_are_one_question_at_a_time() {
    let (_server, vault) = mounted().await;
    let location = locate(&vault, "kv/data/a").await;
    vault.write(&location, &content(&[("a", "1")]), Expected::Absent).await.unwrap();
    let watches = watches(&vault);
    let mut all: Vec<_> = (0..1000).map(|_| watches.watch(location.clone(), Duration::from_mins(1))).collect();
    for watch in &mut all {
        assert_eq!(state(watch).await.version, 1);
    }
    assert_eq!(watches.questions(), 1);
    let mut late = watches.watch(location.clone(), Duration::from_mins(1));
    assert_eq!(state(&mut late).await.version, 1);
    assert_eq!(watches.questions(), 1, "what is known is not asked again");
}

#[tokio::test]
async fn the_least_that_is_allowed_is_enough() {
    let (server, vault) = mounted().await;
    let location = locate(&vault, "kv/data/a").await;
    vault.write(&location, &content(&[("a", "1")]), Expected::Absent).await.unwrap();
    for (number, route) in ["metadata", "subkeys", "data"].into_iter().enumerate() {
        let name = format!("only-{route}");
        server.policy(&name, &format!(r#"path "kv/{route}/a" {{ capabilities = ["read"] }}"#)).await.unwrap();
        let token = server.token(&[&name, "default"], json!({})).await.unwrap();
        let vault = Vault::new(&config(&server, Login::Token(credential(&token))));
        let watches = watches(&vault);
        let mut watch = watches.watch(location.clone(), OFTEN);
        let first = state(&mut watch).await;
        assert_eq!(first.entry_created.is_some(), route == "metadata");
        let asked = watches.questions();
        assert_eq!(asked, number as u64 + 1, "{route}");
        quiet(&watches, &mut watch).await;
        assert!(watches.questions() <= asked + 5, "the way that was allowed is remembered");
    }
    let token = server.token(&["default"], json!({})).await.unwrap();
    let vault = Vault::new(&config(&server, Login::Token(credential(&token))));
    let watches = watches(&vault);
    let mut watch = watches.watch(location, OFTEN);
    let known = changed(&mut watch).await;
    let error = known.failure.unwrap().to_string();
    assert!(known.seen.is_none() && error.contains("kv/data/a") && error.contains("policy"), "{error}");
}

/// A token that may read nothing but metadata, as the original's documentation asks for, and a gateway that answers in Vault's place.
#[tokio::test]
async fn no_answer_of_a_gateway_changes_what_is_asked_for_later() {
    let (server, vault) = mounted().await;
    let location = locate(&vault, "kv/data/a").await;
    vault.write(&location, &content(&[("a", "1")]), Expected::Absent).await.unwrap();
    server.policy("metadata", r#"path "+/metadata/*" { capabilities = ["read", "list"] }"#).await.unwrap();
    let token = server.token(&["metadata", "default"], json!({})).await.unwrap();
    let front = HttpFront::start(server.address()).await.unwrap();
    let reader = Vault::new(&VaultConfig::new(&front.url(), Login::Token(credential(&token))).unwrap());
    let watches = watches(&reader);
    let mut watch = watches.watch(location.clone(), OFTEN);
    let before = state(&mut watch).await;
    let json = |status, body: &str| Fault::Answer {
        status,
        headers: vec![("content-type", "application/json".to_owned())],
        body: body.to_owned(),
    };
    for fault in [
        json(404, r#"{"errors":["not found"]}"#),
        json(404, r#"{"errors":["no handler for route \"kv/metadata/a\". route entry not found."]}"#),
        json(400, r#"{"errors":["bad request"]}"#),
        json(403, r#"{"errors":["permission denied"]}"#),
        json(403, r#"{"message":"forbidden"}"#),
        Fault::html_404(),
    ] {
        let answer = fault.clone();
        front.plan(move |_| Some(answer.clone()));
        let known = changed(&mut watch).await;
        assert!(known.failure.is_some() && known.seen == Some(Seen::State(before.clone())), "{fault:?}: {known:?}");
        front.plan(|_| None);
        let known = changed(&mut watch).await;
        assert!(known.failure.is_none() && known.seen == Some(Seen::State(before.clone())), "{fault:?}: {known:?}");
    }
}

#[tokio::test]
async fn version_one_is_compared_by_content() {
    let (_server, vault) = mounted().await;
    let location = locate(&vault, "old/a").await;
    let watches = watches(&vault);
    let mut watch = watches.watch(location.clone(), OFTEN);
    assert_eq!(changed(&mut watch).await.seen, Some(Seen::Absent));
    let write = async |value| vault.write(&location, &content(&[("a", value)]), Expected::Any).await.unwrap();
    write("1").await;
    let first = changed(&mut watch).await.seen;
    write("1").await;
    quiet(&watches, &mut watch).await;
    write("2").await;
    assert_ne!(changed(&mut watch).await.seen, first);
    vault.delete(&location, Expected::Any, Deletion::Soft).await.unwrap();
    assert_eq!(changed(&mut watch).await.seen, Some(Seen::Absent));
}

#[tokio::test]
async fn a_sealed_vault_changes_nothing_of_what_was_seen() {
    let (server, vault) = mounted().await;
    let location = locate(&vault, "kv/data/a").await;
    vault.write(&location, &content(&[("a", "1")]), Expected::Absent).await.unwrap();
    let watches = watches(&vault);
    let mut watch = watches.watch(location.clone(), OFTEN);
    let before = state(&mut watch).await;
    server.seal().await.unwrap();
    let known = changed(&mut watch).await;
    assert!(known.failure.is_some() && known.seen == Some(Seen::State(before.clone())), "{known:?}");
    server.unseal().await.unwrap();
    let known = changed(&mut watch).await;
    assert!(known.failure.is_none() && known.seen == Some(Seen::State(before)), "{known:?}");
}

#[tokio::test]
async fn a_folder_is_one_question_where_the_server_lists_metadata() {
    let script = Script::default();
    script.then(
        200,
        &[],
        r#"{"data":{"keys":["a","b","c","d"],"key_info":{
            "a":{"current_version":1,"created_time":"x","versions":{"1":{"created_time":"x"}}},
            "b":{"current_version":2,"created_time":"x","versions":{"2":{"created_time":"y"}}},
            "c":{"current_version":3,"created_time":"x","versions":{"3":{"created_time":"z"}}},
            "d":{"current_version":4,"created_time":"x","versions":{"4":{"created_time":"z"}}}}}}"#,
    );
    let (_, vault) = serve(&script).await;
    let watches = watches(&vault);
    let mount = Mount::new("kv", KvVersion::Two);
    let at = |name: &str| -> Location {
        mount.location(&SecretPath::parse(&format!("kv/data/team/{name}")).unwrap()).unwrap()
    };
    let mut all: Vec<_> = ["a", "b", "c", "d"].map(|name| watches.watch(at(name), Duration::from_mins(1))).into();
    for (watch, version) in all.iter_mut().zip(1..) {
        assert_eq!(state(watch).await.version, version);
    }
    assert_eq!(script.requests(), ["GET /v1/kv/detailed-metadata/team/?list=true"]);
}

#[tokio::test]
async fn a_folder_of_a_real_server_is_listed_if_it_can_be_and_each_change_in_it_is_told() {
    let (server, vault) = mounted().await;
    let mut locations = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        let location = locate(&vault, &format!("kv/data/team/{name}")).await;
        vault.write(&location, &content(&[("a", "1")]), Expected::Absent).await.unwrap();
        locations.push(location);
    }
    // OpenBao has this route, Vault has not.
    let lists = server.request("GET", "kv/detailed-metadata/team/?list=true", &Value::Null).await.is_ok();
    let rare = watches(&vault);
    let all = |watches: &Watches, interval| -> Vec<Watch> {
        locations.iter().map(|location| watches.watch(location.clone(), interval)).collect()
    };
    for watch in &mut all(&rare, Duration::from_mins(1)) {
        assert_eq!(state(watch).await.version, 1);
    }
    let asked = rare.questions();
    assert!(if lists { asked == 1 } else { asked <= 6 }, "each of five, and the listing once at most: {asked}");

    let often = watches(&vault);
    let mut all = all(&often, OFTEN);
    for watch in &mut all {
        assert_eq!(state(watch).await.version, 1);
    }
    vault.annotate(&locations[0], &BTreeMap::from([("note".to_owned(), Some("x".to_owned()))])).await.unwrap();
    quiet(&often, &mut all[0]).await;
    vault.write(&locations[0], &content(&[("a", "2")]), Expected::Version(1)).await.unwrap();
    assert_eq!(state(&mut all[0]).await.version, 2);
    vault.delete(&locations[1], Expected::Any, Deletion::Soft).await.unwrap();
    assert!(state(&mut all[1]).await.deleted);
    vault.delete(&locations[2], Expected::Any, Deletion::Metadata).await.unwrap();
    assert_eq!(changed(&mut all[2]).await.seen, Some(Seen::Absent), "what a listing leaves out is asked for by itself");
    quiet(&often, &mut all[3]).await;
}
