//! The way of a change.

use std::time::Duration;

use konverge_e2e::Stage;

const SOON: Duration = Duration::from_secs(20);

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
