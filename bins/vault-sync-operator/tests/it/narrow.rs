//! Few files may be open (F32), few threads may work.

use konverge_testkit::{ProcessSpec, http_get, metric};

use crate::{
    crowding::{made, names},
    stage::{Stage, until},
};

/// Fewer than the connections that the workers could use to two servers.
const OPEN_FILES: u32 = 48;
const WORKERS: &str = "64";

/// The number of objects that come at once: enough to occupy all workers.
const OBJECTS: usize = 200;

#[tokio::test(flavor = "multi_thread")]
async fn f32_with_few_open_files_and_many_workers_all_is_in_sync_soon() {
    let stage = Stage::shared().await;
    let namespace = stage.plane.namespace("narrow").await.unwrap();
    let view = stage.view(&namespace).await;
    made(&view, OBJECTS).await;
    let mut operator = stage
        .start(&namespace, |spec| spec.args(["-workers", WORKERS, "-enable-metrics-auth=false"]).open_files(OPEN_FILES))
        .await;
    for name in names(OBJECTS) {
        let path = view.path(&name);
        until(&format!("{name} is in sync"), async || view.is_synced("Secret", &name, &[&path]).await).await;
        assert_eq!(view.versions(&path).await.unwrap(), (1, true), "{path}");
    }
    let scraped = http_get(&operator.metrics, "/metrics").await.unwrap().1;
    assert_eq!(metric(&scraped, "process_max_fds", "").to_string(), OPEN_FILES.to_string());
    let said = operator.process.logged();
    assert!(!said.contains("Too many open files"), "{said}");
    assert_eq!(operator.process.status(), None, "it has not ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn as_many_threads_work_as_the_variable_of_the_originals_manifests_says() {
    let stage = Stage::shared().await;
    let namespace = stage.plane.namespace("threads").await.unwrap();
    for (told, expected) in [("3", "3"), ("1", "1")] {
        let tell = |spec: ProcessSpec| spec.arg("-enable-metrics-auth=false").env("GOMAXPROCS", told);
        let operator = stage.start(&namespace, tell).await;
        let scraped = http_get(&operator.metrics, "/metrics").await.unwrap().1;
        let label = format!(r#"setting="gomaxprocs",value="{expected}""#);
        assert!(metric(&scraped, "vault_sync_operator_runtime_info", &label) > 0.5, "{label}: {scraped}");
    }
    let wrong = stage.start(&namespace, |spec| spec.env("GOMAXPROCS", "many")).await;
    let said = wrong.process.logged();
    assert!(said.lines().any(|line| line.contains("WARN") && line.contains("GOMAXPROCS is \"many\"")), "{said}");
}
