//! Activity of strangers costs the operator neither memory nor connections for long (I14, and F32 in small).

use futures::{StreamExt, stream};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use konverge_testkit::eventually;
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams};
use tokio::{io::AsyncWriteExt, net::TcpStream};

use super::scene::{LIMIT, Scene};
use crate::shared_stage::on_stage;

/// Secrets of strangers, all of them there at once.
const STRANGERS: usize = 2000;

/// The content of each of them: 31 MiB together.
const BYTES: usize = 16 * 1024;

/// Watches that fail in each storm. There is one watch, and a pause of up to a second after each failure.
const BROKEN_WATCHES: u64 = 15;

/// Connections of strangers in each storm, to the port for health and metrics.
const CONNECTIONS: usize = 100;

/// The memory that all of it may leave behind: a quarter of the contents, which the operator never sees.
const MORE_MEMORY: f64 = 8.0 * 1024.0 * 1024.0;

/// One heap for all threads, and pages of lists outside it, so that the allocator gives each of them back to the system as it is freed. Then the resident
/// memory shows what the operator holds, and not what a heap keeps for later.
const GIVES_BACK: [(&str, &str); 2] = [("MALLOC_ARENA_MAX", "1"), ("MALLOC_MMAP_THRESHOLD_", "8192")];

/// A build with debugging symbols and without optimisation stays beneath.
const MEMORY_AT_MOST: f64 = 96.0 * 1024.0 * 1024.0;

/// The metrics of the operator.
#[derive(Debug, Clone, Copy)]
struct Footprint {
    memory: f64,
    files: f64,
}

#[test]
fn storms_leave_no_memory_and_no_connections_behind() {
    on_stage(async |stage| {
        let scene = Scene::set_in(&GIVES_BACK, stage, "storms", &[]).await;
        let files = footprint(&scene).await.files;
        // The first ones, without Secrets, fill what grows once: pools, tables, the allocator's heap.
        for round in 0..2 {
            storm(&scene, &format!("first {round}")).await;
        }
        let memory = footprint(&scene).await.memory;
        let before = Footprint { memory, files };
        let secrets = scene.secrets();
        let strangers = stream::iter(0..STRANGERS).for_each_concurrent(16, async |number| {
            secrets.create(&PostParams::default(), &stranger(number)).await.unwrap();
        });
        strangers.await;
        for round in 0..3 {
            storm(&scene, &format!("storm {round}")).await;
        }
        let begun = scene.proxy.mark();
        scene.settles().await;
        let settled = eventually(LIMIT, || async {
            let after = footprint(&scene).await;
            (after.files <= files + 2.0).then_some(after)
        });
        let Ok(after) = settled.await else { panic!("{before:?} before, {:?} after", footprint(&scene).await) };
        assert!(after.memory <= before.memory + MORE_MEMORY, "{before:?} before, {after:?} after");
        assert!(after.memory <= MEMORY_AT_MOST, "{after:?}");
        assert_eq!(scene.writes(begun), [""; 0]);
        let journal = scene.proxy.journal();
        assert!(!journal.iter().any(|entry| entry.request.name.starts_with("stranger")), "one was even read");
        // Nobody else on the stage is to list them.
        scene
            .secrets()
            .delete_collection(&DeleteParams::default(), &ListParams::default().fields("metadata.name!=foreign"))
            .await
            .unwrap();
        scene.end().await;
    });
}

fn stranger(number: usize) -> Secret {
    let data = [("value".to_owned(), ByteString(vec![b'x'; BYTES]))].into();
    let name = Some(format!("stranger-{number}"));
    Secret { metadata: ObjectMeta { name, ..ObjectMeta::default() }, data: Some(data), ..Secret::default() }
}

async fn footprint(scene: &Scene) -> Footprint {
    let told = async |name| scene.operator.metric(name, "").await.unwrap();
    let footprint =
        Footprint { memory: told("process_resident_memory_bytes").await, files: told("process_open_fds").await };
    assert!(footprint.memory > 0.0 && footprint.files > 0.0, "{footprint:?}");
    footprint
}

/// The watch fails repeatedly, and idle connections come. In the end the operator works as before.
async fn storm(scene: &Scene, value: &str) {
    scene.befalls("- { when: { verbs: [watch] }, then: { error_event: 410 } }");
    scene.proxy.end_connections();
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut connection = TcpStream::connect(scene.operator.address()).await.unwrap();
        // Less than a request.
        connection.write_all(b"GET /metr").await.unwrap();
        connections.push(connection);
    }
    let is_over = || std::future::ready((scene.proxy.fired()[0] >= BROKEN_WATCHES).then_some(()));
    eventually(LIMIT, is_over).await.unwrap();
    scene.proxy.clear();
    scene.set_value(value).await;
    scene.holds("backend", &[("A", value)]).await;
}
