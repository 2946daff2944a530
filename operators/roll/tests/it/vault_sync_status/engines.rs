//! Engines that are none of KV (r15). The Vault that tests have knows no other, so somebody before it plays them: what is asked of them, and what
//! is mounted there, he answers, and all else reaches Vault.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use konverge_roll::trigger::TriggerKind;
use konverge_testkit_stores::VaultServer;
use konverge_workload::WorkloadKind::Deployment;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
};

use super::world::VaultWorld;

/// Where engines are, and of which type each is.
const ENGINES: [(&str, &str); 2] = [("database", "database"), ("certificates", "pki")];

/// Until the test ends.
struct Engines {
    address: String,
    /// How many passwords were made.
    made: Arc<AtomicUsize>,
}

impl Engines {
    async fn before(vault: &VaultServer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let vault = vault.address().strip_prefix("http://").unwrap().to_owned();
        let made = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&made);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, vault.clone(), Arc::clone(&count)));
            }
        });
        Self { address, made }
    }
}

/// One request, which has no body, and its answer.
async fn serve(mut client: TcpStream, vault: String, made: Arc<AtomicUsize>) {
    let (mut head, mut part) = (Vec::new(), [0; 4096]);
    while !head.ends_with(b"\r\n\r\n") {
        match client.read(&mut part).await {
            Ok(length) if length > 0 => head.extend_from_slice(&part[..length]),
            _ => return,
        }
    }
    let text = String::from_utf8_lossy(&head).into_owned();
    let path = text.split(' ').nth(1).and_then(|path| path.strip_prefix("/v1/")).unwrap_or_default();
    let Some((status, body)) = answer(path, &made) else {
        let mut server = TcpStream::connect(vault).await.unwrap();
        server.write_all(&head[..head.len() - 2]).await.unwrap();
        server.write_all(b"connection: close\r\n\r\n").await.unwrap();
        let _ = copy_bidirectional(&mut client, &mut server).await;
        return;
    };
    let (kind, body) = ("application/json", body.to_string());
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n", body.len());
    let _ = client.write_all(format!("{head}connection: close\r\n\r\n{body}").as_bytes()).await;
    let _ = client.shutdown().await;
}

/// As Vault answers it; nothing if that is not about one of the engines.
fn answer(path: &str, made: &AtomicUsize) -> Option<(&'static str, Value)> {
    let asked = path.strip_prefix("sys/internal/ui/mounts/");
    let beneath = |engine: &str| asked.unwrap_or(path).strip_prefix(engine).is_some_and(|rest| rest.starts_with('/'));
    let (engine, kind) = ENGINES.into_iter().find(|(engine, _)| beneath(engine))?;
    if asked.is_some() {
        return Some(("200 OK", json!({ "data": { "path": format!("{engine}/"), "type": kind, "options": null } })));
    }
    if path == "database/creds/app" {
        let password = format!("password-{}", made.fetch_add(1, Ordering::SeqCst));
        let data = json!({ "username": "app", "password": password });
        return Some(("200 OK", json!({ "lease_id": path, "lease_duration": 3600, "renewable": true, "data": data })));
    }
    Some(("404 Not Found", json!({ "errors": ["1 error occurred:\n\t* unsupported path\n\n"] })))
}

#[tokio::test]
async fn r15_what_is_no_kv_is_told_rolls_nothing_and_makes_nothing() {
    let world = VaultWorld::new().await;
    let engines = Engines::before(&world.vault).await;
    world.write("app", "1").await;
    world.world.workload(Deployment, "web", &[], json!({})).await;
    world.vss("kv", &world.sample()).await;
    // By its data, which are others each time; by its version, and by content, which it has not.
    let wrong = [
        ("v1", "database", "creds/app", json!({ "engineVersion": 1 })),
        ("version", "certificates", "app", json!({})),
        ("content", "certificates", "app", json!({ "mode": "Content" })),
    ];
    for (name, engine, path, more) in &wrong {
        world.world.workload(Deployment, name, &[], json!({})).await;
        let mut spec = world.sample();
        for (field, value) in [("deployName", *name), ("secretEngine", *engine), ("secretPath", *path)] {
            spec[field] = value.into();
        }
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        world.vss(name, &spec).await;
        let mut secret = json!({ "mount": engine, "path": path });
        secret.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let targets = json!([{ "kind": "Deployment", "name": name }]);
        world.rollout(name, &json!({ "vaultSecrets": [secret], "targets": targets })).await;
    }
    let operator = world.operator_at(&engines.address, &[]).await;
    for (name, engine, ..) in &wrong {
        let (_, kind) = ENGINES.into_iter().find(|(known, _)| known == engine).unwrap();
        for trigger in TriggerKind::ALL {
            let told = world.condition(trigger, name, "Ready", "SecretNotFound").await;
            let part = format!("{engine}/ is an engine of type {kind}, not kv; mend the path. Nothing is rolled");
            assert!(told.contains(&part), "{name}: {told}");
        }
        world.is(name, "Error").await;
    }
    // Another engine of the same Vault is followed all the same.
    world.says("kv", "InSync").await;
    world.write("app", "2").await;
    world.world.rolled("web", 1).await;
    world.settled(&operator).await;
    for (name, ..) in wrong {
        assert_eq!(world.world.templates(name).await, 1, "{name}");
        assert_eq!(world.world.record(Deployment, name).await, None, "{name}");
    }
    assert_eq!(engines.made.load(Ordering::SeqCst), 0, "passwords that nobody uses");
}
