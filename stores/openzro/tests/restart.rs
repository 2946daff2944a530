//! The real server, killed while it writes (I5 of the contract). A test program of its own, because all tests of a process share the server.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use konverge_core::SecretValue;
use konverge_openzro::{Collection, Credential, Fields, Limits, OpenZro, OpenZroConfig, types::Policy};
use konverge_testkit::eventually;
use konverge_testkit_stores::OpenZroServer;
use serde_json::{Value, json};

const SOON: Duration = Duration::from_mins(1);

fn client(token: &str) -> OpenZro {
    let token = Credential::value(SecretValue::from(token.to_owned()));
    let limits = Limits::default().with(|limits| {
        limits.rate = None;
        limits.deadline = Duration::from_secs(5);
    });
    OpenZro::new(&OpenZroConfig::new(OpenZroServer::URL, token).unwrap().limits(limits))
}

fn fields(value: Value) -> Fields {
    let Value::Object(fields) = value else { panic!("an object") };
    fields
}

/// The items of a collection by name. After a restart, the client waits for the end of its own pause.
async fn named(openzro: &OpenZro, collection: &Collection) -> BTreeMap<String, Value> {
    let listed = eventually(SOON, async || openzro.list(collection).await.ok()).await.unwrap();
    let mut items = BTreeMap::new();
    for item in listed {
        let raw = Value::Object(item.raw().clone());
        let name = raw["name"].as_str().unwrap().to_owned();
        assert!(items.insert(name.clone(), raw).is_none(), "{name} is there twice");
    }
    items
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_kill_in_the_middle_of_posts_each_item_is_whole_or_absent() {
    let Some(server) = OpenZroServer::shared().await.unwrap() else {
        eprintln!("contract of openZro, I5: not on the server, because this machine has none");
        return;
    };
    let account = server.account();
    let token = account.tokens["admin"].clone();
    let openzro = client(&token);
    let all = named(&openzro, &Collection::Groups).await["All"]["id"].clone();
    let (mut certain, mut in_doubt) = (0, 0);
    for round in 0..10 {
        let written = Arc::new(AtomicUsize::new(0));
        let writer = {
            let (token, all, written) = (token.clone(), all.clone(), Arc::clone(&written));
            tokio::spawn(async move {
                let openzro = client(&token);
                let (mut answered, mut failed) = (Vec::new(), Vec::new());
                for number in 0.. {
                    let name = format!("{round}-{number}");
                    let rule = json!({ "name": name, "enabled": true, "action": "accept", "protocol": "tcp", "ports": ["443"],
                        "sources": [all], "destinations": [all] });
                    let policy = json!({ "name": name, "enabled": true, "rules": [rule] });
                    for (collection, body) in
                        [(Collection::Groups, json!({ "name": name })), (Collection::Policies, policy)]
                    {
                        match openzro.create(&collection, &fields(body)).await {
                            Ok(_) => {
                                answered.push((collection, name.clone()));
                                written.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(_) => failed.push((collection, name.clone())),
                        }
                    }
                    if !failed.is_empty() {
                        break;
                    }
                }
                (answered, failed)
            })
        };
        // After a group in one round, after a policy in the next, and while the following item is on its way.
        let enough = async || (written.load(Ordering::Relaxed) > round).then_some(());
        eventually(SOON, enough).await.unwrap();
        server.restart().await.unwrap();
        let (answered, failed) = writer.await.unwrap();
        let (groups, policies) =
            (named(&openzro, &Collection::Groups).await, named(&openzro, &Collection::Policies).await);
        let has = |(collection, name): &(Collection, String)| {
            if *collection == Collection::Groups { groups.contains_key(name) } else { policies.contains_key(name) }
        };
        let lost: Vec<_> = answered.iter().filter(|item| !has(item)).collect();
        assert!(lost.is_empty(), "items that were answered are gone: {lost:?}");
        certain += answered.len();
        in_doubt += failed.iter().filter(|item| has(item)).count();
        for (name, policy) in &policies {
            let policy: Policy = serde_json::from_value(policy.clone()).unwrap();
            let is_whole = policy.rules.len() == 1
                && policy.rules[0].sources.len() == 1
                && policy.rules[0].destinations.len() == 1
                && policy.rules[0].ports == ["443"];
            assert!(is_whole, "{name}: {policy:?}");
        }
    }
    assert!(certain >= 55, "each round writes one item more than the one before, and has written {certain} in all");
    eprintln!(
        "contract of openZro, I5: on the server; {certain} answered items and {in_doubt} whose answer was lost are there"
    );
}
