//! The way of a change.

use std::time::Duration;

use konverge_e2e::Stage;

const SOON: Duration = Duration::from_mins(1);

#[tokio::test]
async fn a_secret_follows_its_environment() {
    let stage = Stage::set().await.unwrap();
    let namespace = stage.control_plane.namespace("path").await.unwrap();
    let environment = stage.environment("production").await.unwrap();
    let _operator = stage.operator("zopp-operator", &namespace).await.unwrap();
    let watcher = stage.watcher(&namespace);
    stage.bind(&namespace, "backend", &environment).await.unwrap();
    for (key, value, expected) in
        [("A", "1", &[("A", "1")][..]), ("B", "2", &[("A", "1"), ("B", "2")]), ("A", "3", &[("A", "3"), ("B", "2")])]
    {
        stage.user.set(&environment, key, value.as_bytes()).await.unwrap();
        watcher.holds("backend", SOON, expected).await.unwrap();
    }
    stage.user.delete(&environment, "B").await.unwrap();
    watcher.holds("backend", SOON, &[("A", "3")]).await.unwrap();
    stage.user.delete(&environment, "A").await.unwrap();
    watcher.holds("backend", SOON, &[]).await.unwrap();
}

#[tokio::test]
async fn a_value_arrives_byte_for_byte() {
    let stage = Stage::set().await.unwrap();
    let namespace = stage.control_plane.namespace("bytes").await.unwrap();
    let environment = stage.environment("production").await.unwrap();
    let _operator = stage.operator("zopp-operator", &namespace).await.unwrap();
    let watcher = stage.watcher(&namespace);
    stage.bind(&namespace, "backend", &environment).await.unwrap();
    let every_byte: Vec<u8> = (0..=255).collect();
    assert!(std::str::from_utf8(&every_byte).is_err(), "no text");
    stage.user.set(&environment, "KEYSTORE", &every_byte).await.unwrap();
    stage.user.set(&environment, "EMPTY", b"").await.unwrap();
    let whole = |seen: &konverge_e2e::Seen| {
        seen.data.get("KEYSTORE") == Some(&every_byte) && seen.data.get("EMPTY").is_some_and(Vec::is_empty)
    };
    watcher.until("backend", SOON, whole).await.unwrap();
}
