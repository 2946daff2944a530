//! Fetching and watching an environment, and what happens when it changes under the reader.

use std::time::Duration;

use futures::{Stream, StreamExt};
use konverge_zopp_client::{FetchError, Snapshot, WatchEvent};
use konverge_zopp_proto::{
    ResyncRequired, SecretChangeEvent, WatchSecretsResponse, secret_change_event::EventType,
    watch_secrets_response::Response,
};
use tokio::time::timeout;

use crate::server::Server;

fn values(snapshot: &Snapshot) -> Vec<(&str, &[u8])> {
    snapshot.values.iter().map(|(key, value)| (key.as_str(), value.expose())).collect()
}

async fn next(stream: &mut (impl Stream<Item = Result<WatchEvent, FetchError>> + Unpin)) -> WatchEvent {
    timeout(Duration::from_secs(10), stream.next()).await.expect("an event in time").expect("an event").unwrap()
}

#[tokio::test]
async fn all_values_are_read_and_the_key_only_once() {
    let server = Server::start().await;
    server.state().set("A", b"1");
    server.state().set("B", &[0xff, 0x00]);
    let reader = server.reader();
    let snapshot = reader.fetch().await.unwrap();
    assert_eq!(values(&snapshot), [("A", b"1".as_slice()), ("B", &[0xff, 0x00])]);
    assert_eq!((snapshot.environment_id.as_str(), snapshot.version), ("first", 2));
    assert!(snapshot.failed.is_empty());
    assert_eq!(server.take_calls(), ["GetPrincipalExport", "GetEnvironment", "GetWorkspaceKeys", "ListSecrets"]);

    server.state().set("A", b"2");
    assert_eq!(values(&reader.clone().fetch().await.unwrap())[0], ("A", b"2".as_slice()));
    assert_eq!(server.take_calls(), ["ListSecrets"]);
}

#[tokio::test]
async fn more_than_4_mib_arrive_in_one_answer() {
    let server = Server::start().await;
    for key in ["A", "B", "C", "D", "E"] {
        server.state().set(key, &vec![7; 1 << 20]);
    }
    let snapshot = server.reader().fetch().await.unwrap();
    assert_eq!(snapshot.values.values().map(|value| value.expose().len()).sum::<usize>(), 5 << 20);
}

#[tokio::test]
async fn a_damaged_value_is_reported_beside_the_others() {
    let server = Server::start().await;
    server.state().set("GOOD", b"1");
    server.state().set("NONCE", b"2");
    server.state().set("SWAPPED", b"3");
    {
        let mut state = server.state();
        state.secrets.get_mut("NONCE").unwrap().nonce.truncate(1);
        let good = state.secrets["GOOD"].clone();
        let swapped = state.secrets.get_mut("SWAPPED").unwrap();
        (swapped.nonce, swapped.ciphertext) = (good.nonce, good.ciphertext);
    }
    let snapshot = server.reader().fetch().await.unwrap();
    assert_eq!(values(&snapshot), [("GOOD", b"1".as_slice())]);
    assert_eq!(
        snapshot.failed,
        [
            ("NONCE".to_owned(), "nonce is 1 bytes long instead of 24".to_owned()),
            ("SWAPPED".to_owned(), "decryption failed: made with another key, for another name, or altered".to_owned()),
        ]
    );
}

#[tokio::test]
async fn a_recreated_environment_is_read_with_its_new_key() {
    let server = Server::start().await;
    let reader = server.reader();
    for value in [b"1", b"2", b"3"] {
        server.state().set("A", value);
    }
    reader.fetch().await.unwrap();

    // Seen by its values, although its version is higher than the old one's.
    server.state().recreate();
    for value in [b"4", b"5", b"6", b"7"] {
        server.state().set("A", value);
    }
    let snapshot = reader.fetch().await.unwrap();
    assert_eq!(values(&snapshot), [("A", b"7".as_slice())]);
    assert_eq!((snapshot.environment_id.as_str(), snapshot.version), ("second", 4));
}

#[tokio::test]
async fn a_recreated_environment_without_values_is_seen_by_its_version() {
    let server = Server::start().await;
    let reader = server.reader();
    server.state().set("A", b"1");
    reader.fetch().await.unwrap();
    server.state().recreate();
    let snapshot = reader.fetch().await.unwrap();
    assert!(snapshot.values.is_empty());
    assert_eq!(snapshot.environment_id, "second");
}

#[tokio::test]
async fn a_list_of_an_environment_made_anew_after_its_key_was_read_has_the_new_id() {
    let server = Server::start().await;
    server.state().set("A", b"1");
    let reader = server.reader();
    server.state().recreated_before_lists = 1;
    for look in ["first", "later"] {
        let snapshot = reader.fetch().await.unwrap();
        assert_eq!((snapshot.environment_id.as_str(), snapshot.version), ("second", 0), "{look}");
        assert!(snapshot.values.is_empty() && snapshot.failed.is_empty(), "{look}");
    }

    // Also when it happens again while the reader makes sure, and when the reader knew the key.
    for times in 2..=3 {
        server.state().set("A", b"1");
        reader.fetch().await.unwrap();
        server.state().recreated_before_lists = times;
        let snapshot = reader.fetch().await.unwrap();
        assert_eq!(snapshot.environment_id, server.state().environment_id, "{times} times");
        assert!(snapshot.values.is_empty() && snapshot.failed.is_empty(), "{times} times");
    }
}

#[tokio::test]
async fn an_emptied_environment_made_anew_is_not_taken_for_the_old_one_at_the_same_version() {
    let server = Server::start().await;
    server.state().set("A", b"1");
    let reader = server.reader();
    reader.fetch().await.unwrap();
    server.state().recreate();
    server.state().set("A", b"1");
    server.state().secrets.clear();
    let snapshot = reader.fetch().await.unwrap();
    assert_eq!((snapshot.environment_id.as_str(), snapshot.version), ("second", 1));
}

#[tokio::test]
async fn a_server_that_has_another_environment_each_time_is_not_asked_for_ever() {
    let server = Server::start().await;
    let reader = server.reader();
    server.state().recreated_before_lists = usize::MAX;
    let error = reader.fetch().await.err().unwrap();
    assert!(matches!(error, FetchError::Garbage { .. }), "{error:?}");
    assert!(error.to_string().contains("another environment each time"), "{error}");
    assert!(error.to_string().contains("acme/backend/production"), "{error}");
    server.state().recreated_before_lists = 0;
    assert!(reader.fetch().await.unwrap().values.is_empty());
}

#[tokio::test]
async fn a_damaged_value_of_a_server_that_wraps_the_key_anew_each_time_is_reported() {
    let server = Server::start().await;
    server.state().set("A", b"1");
    server.state().secrets.get_mut("A").unwrap().nonce.truncate(1);
    let reader = server.reader();
    for look in ["first", "later"] {
        let snapshot = reader.fetch().await.unwrap();
        assert_eq!((snapshot.environment_id.as_str(), snapshot.failed.len()), ("first", 1), "{look}");
    }
}

#[tokio::test]
async fn a_failed_fetch_spoils_nothing() {
    let server = Server::start().await;
    server.state().set("A", b"1");
    let reader = server.reader();
    server.state().refusal = Some(tonic::Status::unavailable("shutting down"));
    assert!(matches!(reader.fetch().await, Err(FetchError::Unreachable { .. })));
    server.state().refusal = None;
    assert_eq!(values(&reader.fetch().await.unwrap()), [("A", b"1".as_slice())]);
}

#[tokio::test]
async fn a_watch_gives_changes_and_resyncs() {
    let server = Server::start().await;
    let mut stream = Box::pin(server.reader().watch(Some(7)).await.unwrap());
    assert_eq!(server.state().last_watch.as_ref().unwrap().since_version, Some(7));
    let change = |key: &str, version, event_type: EventType| WatchSecretsResponse {
        response: Some(Response::Event(SecretChangeEvent {
            event_type: event_type.into(),
            key: key.to_owned(),
            version,
            timestamp: 0,
        })),
    };
    server.events.send(change("A", 8, EventType::Updated)).unwrap();
    server.events.send(WatchSecretsResponse { response: None }).unwrap();
    server.events.send(change("A", 9, EventType::Deleted)).unwrap();
    let resync = Response::Resync(ResyncRequired { current_version: 12 });
    server.events.send(WatchSecretsResponse { response: Some(resync) }).unwrap();

    let changed = |version, deleted| WatchEvent::Changed { key: "A".to_owned(), version, deleted };
    assert_eq!(next(&mut stream).await, changed(8, false));
    assert_eq!(next(&mut stream).await, changed(9, true), "an empty message is passed over");
    assert_eq!(next(&mut stream).await, WatchEvent::Resync { version: 12 });
}

#[tokio::test]
async fn dropping_a_watch_ends_it_at_the_server() {
    let server = Server::start().await;
    let stream = server.reader().watch(None).await.unwrap();
    assert_eq!(server.events.receiver_count(), 1);
    drop(stream);
    timeout(Duration::from_secs(10), async {
        while server.events.receiver_count() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("the stream ends at the server");
}

/// The server lets a connection carry 200 calls at once, as servers do by default.
#[tokio::test]
async fn no_number_of_watches_keeps_calls_waiting() {
    let server = Server::start().await;
    let reader = server.reader();
    let mut streams = Vec::new();
    for _ in 0..250 {
        streams.push(timeout(Duration::from_secs(10), reader.watch(None)).await.expect("there is room").unwrap());
    }
    assert_eq!(server.events.receiver_count(), 250);
    timeout(Duration::from_secs(10), reader.fetch()).await.expect("and for other calls").unwrap();
}
