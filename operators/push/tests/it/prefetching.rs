//! Many Secrets of a namespace at once are read in pages, where most of them are used, and one by one elsewhere.

use futures::{StreamExt, stream};
use serde_json::json;

use crate::world::{World, until};

/// Far more than the first page and than what comes before it is known how many there are.
const MANY: usize = 300;

/// At the same time, towards the API server or Vault.
const CONCURRENCY: usize = 16;

/// Makes Secrets, of which `used` ask for a push; the others are foreign, and between them by their names.
async fn secrets(world: &World, used: usize, foreign: usize) {
    let of = |number: usize, name: String, asks: bool| async move {
        let path = world.path(&name);
        let annotations = if asks { json!({ "vault-sync.io/path": path }) } else { json!({}) };
        world.secret(&name, &[("key", &number.to_string())], annotations).await;
    };
    let used = (0..used).map(|number| of(number, format!("s{number:03}"), true));
    let foreign = (0..foreign).map(|number| of(number, format!("s{number:03}-foreign"), false));
    let all: Vec<_> = used.chain(foreign).collect();
    stream::iter(all).buffer_unordered(CONCURRENCY).collect::<Vec<()>>().await;
}

/// The Secrets that the operator read one by one, and the number of lists, until all that ask are in Vault with their own values.
async fn asked(world: &World, used: usize) -> (Vec<String>, usize) {
    let asked = Box::pin(world.asked_during(async {
        let operator = world.operator(&["--vault-rate=0"]).await;
        until("all are in sync", async || {
            let synced = operator.metric("konverge_push_bindings", "reason=\"Synced\"");
            if synced.to_string() == used.to_string() { Ok(()) } else { Err(format!("{synced} of {used}")) }
        })
        .await;
        operator.stop().await;
    }));
    let asked = asked.await;
    let held = |number: usize| async move {
        let path = world.path(&format!("s{number:03}"));
        assert_eq!(world.read(&path).await.unwrap()["key"], number.to_string(), "{path}");
        assert_eq!(world.versions(&path).await, 1, "{path}");
    };
    stream::iter(0..used).map(held).buffer_unordered(CONCURRENCY).collect::<Vec<()>>().await;
    let of = |verb: &'static str| {
        let is_read = move |entry: &&konverge_testkit::AuditEntry| {
            entry.verb == verb
                && entry.object_ref.resource == "secrets"
                && entry.object_ref.namespace == world.namespace
        };
        asked.iter().filter(is_read)
    };
    (of("get").map(|entry| entry.object_ref.name.clone()).collect(), of("list").count())
}

#[tokio::test]
async fn a_crowd_is_read_in_pages_where_most_secrets_are_used() {
    let world = World::new().await;
    secrets(&world, MANY, MANY / 10).await;
    let (one_by_one, lists) = asked(&world, MANY).await;
    assert!(one_by_one.len() * 3 < MANY, "{one_by_one:?} were read one by one, with {lists} lists");
    // The watch's own have a hundred in each, and ours thirty-two in the end.
    assert!(lists <= 18, "{lists} lists");
}

#[tokio::test]
async fn where_most_secrets_are_foreign_none_of_them_is_read() {
    let world = World::new().await;
    secrets(&world, MANY / 3, MANY).await;
    let (one_by_one, lists) = asked(&world, MANY / 3).await;
    assert!(!one_by_one.iter().any(|name| name.ends_with("-foreign")), "{one_by_one:?}");
    // Each by itself. On a busy machine, a few are read again after a write that Vault answered late.
    let (fewest, most) = (MANY / 3, MANY / 3 + MANY / 30);
    assert!((fewest..=most).contains(&one_by_one.len()), "{} were read: {one_by_one:?}", one_by_one.len());
    // The watch's own, and once more if it began anew.
    let own = (MANY / 3 + MANY).div_ceil(100);
    assert!((own..=2 * own).contains(&lists), "{lists} lists");
}
