//! Activity of strangers costs the program neither memory nor connections for long (I14).

use std::collections::BTreeMap;

use futures::{StreamExt, stream};
use k8s_openapi::ByteString;
use konverge_testkit::eventually;
use kube::{
    ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
};
use tokio::{io::AsyncWriteExt, net::TcpStream};

use super::stage::{BadDay, RECOVERED, secret};

/// Secrets of strangers in each storm. They have our label, or the API server would not even tell of them.
const STRANGERS: usize = 100;

/// The content of each of them. A few large ones: their contents, 9.4 MiB together, show in the resident memory beside what the heap keeps for the next small
/// allocations, which is more the more objects there are.
const BYTES: usize = 96 * 1024;

/// Watches that fail in each storm, all four kinds of them.
const BROKEN_WATCHES: u64 = 50;

/// Connections of strangers in each storm, to the port for health and metrics.
const CONNECTIONS: usize = 100;

/// The memory that three storms may leave behind: less than a quarter of their contents.
const MORE_MEMORY: f64 = 6.0 * 1024.0 * 1024.0;

/// The least memory that the contents of a storm show in, as long as they are there: half of them.
const SHOWN: f64 = 4.7 * 1024.0 * 1024.0;

/// One heap for all threads, and most values of Secrets and pages of lists outside it, so that the allocator gives each of them back to the system as it
/// is freed. Then the resident memory shows what the program holds. Otherwise it grows by up to 10 MiB over six storms, and then stays. A value is inside
/// the heap where a free piece of it is large enough.
const GIVES_BACK: [(&str, &str); 2] = [("MALLOC_ARENA_MAX", "1"), ("MALLOC_MMAP_THRESHOLD_", "8192")];

/// A build with debugging symbols and without optimisation, which has had all Secrets of a storm in its cache, stays beneath.
const MEMORY_AT_MOST: f64 = 128.0 * 1024.0 * 1024.0;

/// The metrics of the program.
#[derive(Debug, Clone, Copy)]
struct Footprint {
    memory: f64,
    files: f64,
}

#[tokio::test(flavor = "multi_thread")]
async fn storms_leave_no_memory_and_no_connections_behind() {
    let mut day = BadDay::begin_in("storms", &GIVES_BACK).await;
    // Only what leads to the cache, and not to an owner.
    let mut labels = day.secrets().get("ss-app").await.unwrap().labels().clone();
    labels.retain(|name, _| name == "app.kubernetes.io/managed-by");
    assert_eq!(labels.len(), 1);
    day.caches_all_secrets(&labels).await;
    let files = footprint(&day).await.files;
    // The first ones fill what grows once: pools, tables, the allocator's heaps.
    for round in 0..2 {
        storm(&day, &labels, round).await;
    }
    let memory = footprint(&day).await.memory;
    let before = Footprint { memory, files };
    let mut in_storms = f64::INFINITY;
    for round in 2..5 {
        in_storms = in_storms.min(storm(&day, &labels, round).await.memory);
    }
    let begun = day.proxy.mark();
    day.settles().await;
    let settled = eventually(RECOVERED, || async {
        let after = footprint(&day).await;
        (after.files <= files + 2.0).then_some(after)
    });
    let Ok(after) = settled.await else { panic!("{before:?} before, {:?} after", footprint(&day).await) };
    assert!(in_storms >= before.memory + SHOWN, "{before:?} before, {in_storms} in storms: contents would not show");
    assert!(after.memory <= before.memory + MORE_MEMORY, "{before:?} before, {after:?} after");
    assert!(after.memory <= MEMORY_AT_MOST, "{after:?}");
    assert_eq!(day.writes(begun), [""; 0]);
    day.end().await;
}

async fn footprint(day: &BadDay) -> Footprint {
    let memory = day.metric("process_resident_memory_bytes", "").await;
    let footprint = Footprint { memory, files: day.metric("process_open_fds", "").await };
    assert!(footprint.memory > 0.0 && footprint.files > 0.0, "{footprint:?}");
    footprint
}

/// Watches fail repeatedly, and Secrets and connections of strangers come and go. In the end the program works as before. Returns the metrics while all
/// Secrets are in the cache.
async fn storm(day: &BadDay, labels: &BTreeMap<String, String>, round: usize) -> Footprint {
    day.befalls("- { when: { verbs: [watch] }, then: { error_event: 410 } }");
    day.proxy.end_connections();
    let strangers = stream::iter(0..STRANGERS).for_each_concurrent(16, |number| async move {
        let mut theirs = secret(&format!("stranger-{number}"), "");
        theirs.metadata.labels = Some(labels.clone());
        theirs.data = Some([("value".to_owned(), ByteString(vec![b'x'; BYTES]))].into());
        day.secrets().create(&PostParams::default(), &theirs).await.unwrap();
    });
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut connection = TcpStream::connect(&day.address).await.unwrap();
        // Less than a request.
        connection.write_all(b"GET /metr").await.unwrap();
        connections.push(connection);
    }
    let broken = eventually(RECOVERED, || std::future::ready((day.proxy.fired()[0] >= BROKEN_WATCHES).then_some(())));
    let ((), broken) = tokio::join!(strangers, broken);
    broken.unwrap();
    day.proxy.clear();
    let value = format!("storm {round}");
    day.change_both(&value).await;
    day.converges(&value).await;
    day.caches_all_secrets(labels).await;
    let full = footprint(day).await;
    drop(connections);
    let of_strangers = stream::iter(0..STRANGERS).for_each_concurrent(16, |number| async move {
        day.secrets().delete(&format!("stranger-{number}"), &DeleteParams::default()).await.unwrap();
    });
    of_strangers.await;
    let left = day.secrets().list(&ListParams::default()).await.unwrap().items.len();
    assert!(left <= 4, "{left} secrets are left");
    day.caches_all_secrets(labels).await;
    full
}
