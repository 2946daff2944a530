use konverge_external::{
    Change, Memory,
    http::HttpSource,
    memory::{FileMemory, InProcess},
    watch,
};

use crate::{
    next, options, quiet_until,
    server::{Server, answer},
};

#[tokio::test]
async fn row_25_after_a_restart_only_what_changed_meanwhile_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("remembered.json");
    let server = Server::start(|_| answer(200, &[("etag", "\"1\"")], "hunter2")).await;
    let start = || watch(HttpSource::new("document", server.endpoint()), options().memory(FileMemory::new(&path)));

    let (mut changes, _) = start();
    assert!(matches!(next(&mut changes).await, Change::Added(_)));
    quiet_until(&mut changes, server.times(2)).await;
    drop(changes);

    let (mut changes, health) = start();
    quiet_until(&mut changes, || health.ready().is_ok()).await;
    quiet_until(&mut changes, server.times(2)).await;
    drop(changes);

    server.answers(|_| answer(200, &[("etag", "\"2\"")], "hunter3"));
    let (mut changes, _) = start();
    assert!(matches!(next(&mut changes).await, Change::Modified(_)));
    quiet_until(&mut changes, server.times(2)).await;
    drop(changes);

    server.answers(|_| answer(410, &[], ""));
    let (mut changes, _) = start();
    assert!(matches!(next(&mut changes).await, Change::Removed(_)));
    quiet_until(&mut changes, server.times(2)).await;
    drop(changes);

    let text = std::fs::read_to_string(&path).unwrap();
    assert!(!text.contains("hunter"), "{text}");
    let (mut changes, _) = start();
    quiet_until(&mut changes, server.times(2)).await;
}

/// The same document under two keys: nobody who reads the entries can compare them with fingerprints of a guess.
#[tokio::test]
async fn fingerprints_of_two_memories_differ() {
    let server = Server::start(|_| answer(200, &[], "hunter2")).await;
    let mut entries = Vec::new();
    for _ in 0..2 {
        let memory = InProcess::default();
        let (mut changes, _) = watch(HttpSource::new("document", server.endpoint()), options().memory(memory.clone()));
        next(&mut changes).await;
        quiet_until(&mut changes, server.times(2)).await;
        entries.push(memory.clone().load().await.unwrap().entries);
    }
    assert_eq!(entries[0].len(), entries[1].len());
    assert_ne!(entries[0], entries[1]);
}
