//! Many changes at once, by several replicas: each watcher is told the same changes in the same order, and none is left out.

use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::join_all;
use konverge_zopp_proto::{
    self as proto, UpsertSecretRequest, secret_change_event::EventType, watch_secrets_response::Response,
};
use konverge_zopp_testing::postgres_database;
use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{Config, TestRunner},
};
use tokio::time::timeout;
use tonic::{Code, Streaming};

use crate::{
    harness::{DEADLINE, Person, World, upsert},
    replicas::{at, on, start},
};

/// Each case is some dozens of changes on real servers.
const CASES: u32 = 24;

/// A change by a client of one of its own keys.
#[derive(Debug, Clone, Copy)]
enum Act {
    Set(u8),
    Delete(u8),
}

/// One change, as a watcher is told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ReceivedEvent {
    key: String,
    version: i64,
    deleted: bool,
}

/// Clients that act at the same time, each with what it does, one after the other.
fn clients() -> impl Strategy<Value = Vec<Vec<Act>>> {
    let act = (any::<bool>(), 0..3_u8).prop_map(|(sets, key)| if sets { Act::Set(key) } else { Act::Delete(key) });
    vec(vec(act, 1..12), 1..7)
}

/// Acts, and returns the changes that were made: keys, and whether they were deleted.
async fn act(person: &mut Person, name: &str, acts: &[Act]) -> Vec<(String, bool)> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let mut made = Vec::new();
    for act in acts {
        match act {
            Act::Set(key) => {
                let key = format!("{name}_{key}");
                let mut nonce = vec![0; 24];
                nonce[..8].copy_from_slice(&NUMBER.fetch_add(1, Ordering::Relaxed).to_be_bytes());
                let request = person.sign("UpsertSecret", UpsertSecretRequest { nonce, ..upsert(&key) });
                person.client.upsert_secret(request).await.unwrap();
                made.push((key, false));
            }
            Act::Delete(key) => {
                let key = format!("{name}_{key}");
                match person.unset(&key).await {
                    Ok(()) => made.push((key, true)),
                    Err(status) => assert_eq!(status.code(), Code::NotFound, "{status}"),
                }
            }
        }
    }
    made
}

/// The changes that a watcher is told of, up to a version.
async fn received(mut stream: Streaming<proto::WatchSecretsResponse>, from: i64, to: i64) -> Vec<ReceivedEvent> {
    let mut told = Vec::new();
    while from + i64::try_from(told.len()).unwrap() < to {
        let message = timeout(DEADLINE, stream.message()).await.expect("it is told").unwrap();
        let Some(Response::Event(event)) = message.and_then(|message| message.response) else {
            panic!("an event was due after {told:?}");
        };
        let deleted = event.event_type() == EventType::Deleted;
        told.push(ReceivedEvent { key: event.key, version: event.version, deleted });
    }
    told
}

async fn check(replicas: &[World; 2], owner: &mut Person, number: u64, clients: &[Vec<Act>]) {
    let before = owner.list().await.unwrap().version;
    let mut watchers = Vec::new();
    for world in replicas {
        watchers.push(at(world, owner).watch(Some(before)).await.unwrap());
    }
    let names: Vec<String> = (0..clients.len()).map(|client| format!("K{number}_{client}")).collect();
    let mut people: Vec<Person> = (0..clients.len()).map(|client| at(&replicas[client % 2], owner)).collect();
    let acting = people.iter_mut().zip(&names).zip(clients).map(|((person, name), acts)| act(person, name, acts));
    let made = join_all(acting).await;

    let after = owner.list().await.unwrap().version;
    let changes: usize = made.iter().map(Vec::len).sum();
    assert_eq!(before + i64::try_from(changes).unwrap(), after, "each change counts once");
    let watched = join_all(watchers.into_iter().map(|stream| received(stream, before, after))).await;
    assert!(watched[0].iter().map(|told| told.version).eq(before + 1..=after), "{:?}", watched[0]);
    assert_eq!(watched[0], watched[1], "both replicas tell the same");
    for (name, made) in names.iter().zip(made) {
        let own = watched[0].iter().filter(|told| told.key.rsplit_once('_').is_some_and(|(of, _)| of == name));
        let own: Vec<(String, bool)> = own.map(|told| (told.key.clone(), told.deleted)).collect();
        assert_eq!(own, made, "in the order in which a client makes them");
    }
}

#[test]
fn watchers_of_all_replicas_are_told_the_same_order() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (replicas, mut owner) = runtime.block_on(async {
        let address = postgres_database().await;
        let replicas = [start(on(&address)).await, start(on(&address)).await];
        let owner = replicas[0].owner().await;
        (replicas, owner)
    });
    let mut runner = TestRunner::new(Config { cases: CASES, failure_persistence: None, ..Config::default() });
    let (owner, number) = (std::cell::RefCell::new(&mut owner), AtomicU64::new(0));
    let run = runner.run(&clients(), |clients| {
        let number = number.fetch_add(1, Ordering::Relaxed);
        runtime.block_on(check(&replicas, &mut owner.borrow_mut(), number, &clients));
        Ok(())
    });
    run.unwrap();
}
