//! Workloads that are annotated as Reloader's documentation shows it, on a real API server.

use konverge_workload::WorkloadKind::Deployment;
use serde_json::{Value, json};

use crate::world::World;

/// Each workload uses the Secret `db`, which has `reloader.stakater.com/match`. Whether a change of it restarts the workload.
fn cases() -> [(&'static str, Value, bool); 10] {
    [
        ("auto", json!({ "reloader.stakater.com/auto": "true" }), true),
        ("secret-auto", json!({ "secret.reloader.stakater.com/auto": "true" }), true),
        ("configmap-auto", json!({ "configmap.reloader.stakater.com/auto": "true" }), false),
        ("named", json!({ "secret.reloader.stakater.com/reload": "other,db" }), true),
        ("named-other", json!({ "secret.reloader.stakater.com/reload": "other" }), false),
        ("named-map", json!({ "configmap.reloader.stakater.com/reload": "db" }), false),
        ("search", json!({ "reloader.stakater.com/search": "true" }), true),
        (
            "excluded",
            json!({ "reloader.stakater.com/auto": "true", "secrets.exclude.reloader.stakater.com/reload": "db" }),
            false,
        ),
        ("off", json!({ "reloader.stakater.com/auto": "false" }), false),
        ("silent", json!({}), false),
    ]
}

#[tokio::test]
async fn the_annotations_of_reloaders_documentation_restart_what_reloader_restarts() {
    let world = World::new().await;
    let matching = json!({ "reloader.stakater.com/match": "true" });
    world.secret_with("db", &json!({ "k": "1" }), &matching).await;
    for (name, annotations, _) in cases() {
        world.workload(Deployment, name, &["db"], annotations).await;
    }
    let operator = world.operator(&["--min-interval", "0s", "--reloader-annotations"]).await;
    for (name, _, _) in cases().into_iter().filter(|(_, _, restarts)| *restarts) {
        world.noted(Deployment, name).await;
    }
    world.secret_with("db", &json!({ "k": "2" }), &matching).await;
    for (name, _, _) in cases().into_iter().filter(|(_, _, restarts)| *restarts) {
        world.rolled(name, 1).await;
    }
    world.settled(&operator).await;
    for (name, _, _) in cases().into_iter().filter(|(_, _, restarts)| !*restarts) {
        assert_eq!(world.templates(name).await, 1, "{name} is left alone");
    }
    world.secret_with("db", &json!({ "k": "3" }), &json!({ "reloader.stakater.com/ignore": "true" })).await;
    world.settled(&operator).await;
    for (name, _, restarts) in cases() {
        assert_eq!(world.templates(name).await, 1 + usize::from(restarts), "{name}: an ignored source restarts nobody");
    }
}

#[tokio::test]
async fn with_reloaders_flags_other_names_count_and_everybody_has_opted_in() {
    let world = World::new().await;
    world.secret("db", "1").await;
    world.workload(Deployment, "silent", &["db"], json!({})).await;
    world.workload(Deployment, "off", &["db"], json!({ "example.com/auto": "false" })).await;
    // Under its standard name, the annotation means nothing here.
    world.workload(Deployment, "standard", &["db"], json!({ "reloader.stakater.com/auto": "false" })).await;
    let renamed = "--reloader-annotation=reloader.stakater.com/auto=example.com/auto";
    let flags = ["--min-interval", "0s", "--reloader-annotations", "--reloader-auto-reload-all", renamed];
    let operator = world.operator(&flags).await;
    for name in ["silent", "standard"] {
        world.noted(Deployment, name).await;
    }
    world.secret("db", "2").await;
    for name in ["silent", "standard"] {
        world.rolled(name, 1).await;
    }
    world.settled(&operator).await;
    assert_eq!(world.templates("off").await, 1);
}
