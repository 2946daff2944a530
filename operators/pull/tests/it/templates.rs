//! Secrets whose keys are made of those of the sources.

use konverge_pull::objects::secret_pull::SecretPull;
use serde_json::json;
use tonic::Status;

use crate::{
    objects::{apply, from, is_told, pull, ready, secret},
    world::QUIET,
};

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_made_of_two_sources_and_follow_both() {
    let (world, first, operator) = ready().await;
    let second = world.server.create("shared");
    second.set("host", "db");
    let spec = json!({
        "sources": [{ "from": from(&first) }, { "from": from(&second), "rename": { "prefix": "DB_", "upper": true } }],
        "template": {
            "data": { "URL": "postgres://app:${A}@${DB_HOST}/$$" },
            "files": [
                { "key": ".env", "format": "Dotenv", "keys": ["DB_*", "A"] },
                { "key": "config.json", "format": "JSON" },
                { "key": "app.properties", "format": "Properties", "keys": ["A"] },
            ],
        },
    });
    pull(&world, "web", spec.clone()).await;
    // The two values of A are that beside the second source's key, and that by itself.
    let holds = async |beside: &str, alone: &str| {
        let expected = [
            ("URL", &*format!("postgres://app:{beside}@db/$")),
            (".env", &format!("DB_HOST=db\nA={beside}")),
            ("config.json", &format!(r#"{{"A":"{beside}","DB_HOST":"db"}}"#)),
            ("app.properties", &format!("A={alone}\n")),
        ];
        world.holds("web", &expected).await;
    };
    holds("1", "1").await;
    is_told(&world, "web", "Synced").await;

    second.refuse(Some(Status::permission_denied("no")));
    drop(operator);
    // The Secret has the second source's key only within other keys. These stay, and the key that does not need it follows.
    let operator = world.restarted(&[]).await;
    first.set("A", "2");
    holds("1", "2").await;
    is_told(&world, "web", "PermissionDenied").await;
    second.refuse(None);
    drop(operator);
    let _operator = world.restarted(&[]).await;
    holds("2", "2").await;

    let mut beside = spec;
    beside["template"] = json!({ "data": { "URL": "${A}" }, "keepSourceKeys": true });
    pull(&world, "web", beside).await;
    world.holds("web", &[("URL", "2"), ("A", "2"), ("DB_HOST", "db")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_of_a_registry_are_a_secret_that_pods_pull_images_with() {
    let (world, scene, _operator) = ready().await;
    scene.set("token", "p\"w");
    let spec = json!({
        "target": { "type": "kubernetes.io/dockerconfigjson" },
        "sources": [{ "from": from(&scene) }],
        "template": { "registries": [{ "server": "ghcr.io", "username": "bot", "password": "${token}" }] },
    });
    pull(&world, "web", spec).await;
    let config = r#"{"auths":{"ghcr.io":{"username":"bot","password":"p\"w","auth":"Ym90OnAidw=="}}}"#;
    world.holds("web", &[(".dockerconfigjson", config)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_not_made_before_its_template_can_be_filled() {
    let (world, scene, _operator) = ready().await;
    let spec = json!({
        "sources": [{ "from": from(&scene) }],
        "template": { "data": { "URL": "${user}:${A}", "OTHER": "${A}" } },
    });
    pull(&world, "web", spec).await;
    let text = is_told(&world, "web", "TemplateFailed").await;
    assert!(text.contains(r#"cannot make "URL": no source has the key "user""#), "{text}");
    tokio::time::sleep(QUIET).await;
    assert_eq!(secret(&world, "web").await, None);
    scene.set("user", "me");
    world.holds("web", &[("URL", "me:1"), ("OTHER", "1")]).await;
    is_told(&world, "web", "Synced").await;
    scene.remove("user");
    scene.set("A", "2");
    world.holds("web", &[("URL", "me:1"), ("OTHER", "2")]).await;
    is_told(&world, "web", "TemplateFailed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_template_is_refused_with_a_sentence() {
    let (world, scene, _operator) = ready().await;
    let spec = |template| json!({ "sources": [{ "from": from(&scene) }], "template": template });
    let file = |key: &str| json!({ "key": key, "format": "JSON" });
    let registry = json!({ "server": "ghcr.io", "username": "u", "password": "p" });
    for (template, part) in [
        (json!({}), "give data, files or registries"),
        (json!({ "data": { "a": "$a" } }), "template.data.a"),
        (json!({ "data": { "a": "${other/a}" } }), "template.data.a"),
        (json!({ "files": [{ "key": "a b", "format": "JSON" }] }), "template.files[0].key"),
        (json!({ "files": [{ "key": "a", "format": "YAML" }] }), "supported values"),
        (json!({ "files": [file("a"), file("a")] }), "duplicate entries for key"),
        (json!({ "data": { "a": "x" }, "files": [file("a")] }), "a key is in data and in files"),
        (json!({ "registries": [registry], "files": [file(".dockerconfigjson")] }), "make the key .dockerconfigjson"),
    ] {
        let error = apply::<SecretPull>(&world, "web", spec(template.clone())).await.unwrap_err().to_string();
        assert!(error.contains(part), "{template}: {error}");
    }
    pull(&world, "web", spec(json!({ "data": { "a/b": "x" } }))).await;
    let text = is_told(&world, "web", "InvalidSpec").await;
    assert!(text.contains(r#"spec.template.data: no Secret can have the key "a/b""#), "{text}");
}
