//! Secrets as large and as odd as the API lets them be (F31; I5, I9).

use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use konverge_workload::WorkloadKind::Deployment;
use kube::{Api, api::PostParams};
use serde_json::json;

use crate::world::{ALL, World};

/// The most that a Secret may hold.
const MOST: usize = 1024 * 1024;

const KEYS: usize = 10_000;

/// Keys with values.
type Content = Vec<(String, Vec<u8>)>;

/// The content of each Secret; `last` is its last byte, or the last value.
fn contents(last: u8) -> [(&'static str, Content); 4] {
    let mut large = vec![b'x'; MOST];
    large[MOST - 1] = last;
    let many = (0..KEYS).map(|number| (format!("key-{number:05}"), vec![if number + 1 == KEYS { last } else { 0 }]));
    // Not a letter of any alphabet, and cut off in the middle of one.
    let no_text = vec![0, 0xff, 0xfe, 0xc3, 0x28, b'\r', b'\n', 0xf0, 0x9f, last];
    let odd = [".a", "-", "_", "A.b-C_d"].map(|key| (key.to_owned(), vec![last]));
    [
        ("large", vec![("k".to_owned(), large)]),
        ("many", many.collect()),
        ("no-text", vec![("k".to_owned(), no_text)]),
        ("odd", odd.to_vec()),
    ]
}

#[tokio::test]
async fn f31_hostile_secrets_are_rolled_for_once_and_nothing_is_lost() {
    let world = World::new().await;
    let api: Api<Secret> = Api::namespaced(world.client.clone(), &world.namespace);
    let secret = |name: &str, content: Content| Secret {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some(content.into_iter().map(|(key, value)| (key, ByteString(value))).collect()),
        ..Secret::default()
    };
    let write = async |last: u8| {
        for (name, content) in contents(last) {
            api.replace(name, &PostParams::default(), &secret(name, content)).await.unwrap();
        }
    };
    let names = contents(0).map(|(name, _)| name);
    for (name, content) in contents(0) {
        api.create(&PostParams::default(), &secret(name, content)).await.unwrap();
        world.workload(Deployment, name, &[name], json!({ ALL: "true" })).await;
    }
    world.secret("small", "1").await;
    world.workload(Deployment, "small", &["small"], json!({ ALL: "true" })).await;
    let operator = world.operator(&["--min-interval", "0s"]).await;
    for name in names.into_iter().chain(["small"]) {
        world.noted(Deployment, name).await;
        world.ready(name).await;
        assert_eq!(world.templates(name).await, 1, "{name}: first sight");
    }
    for (times, last) in [(1, 1), (1, 1), (2, 0xff)] {
        write(last).await;
        world.secret("small", &last.to_string()).await;
        for name in names {
            world.rolled(name, times).await;
            world.ready(name).await;
        }
        world.settled(&operator).await;
        for name in names {
            assert_eq!(world.templates(name).await, times + 1, "{name} after {last}");
        }
    }
    world.rolled("small", 1).await;
}
