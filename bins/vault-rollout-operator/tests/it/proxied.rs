//! The API server behind a proxy.

use std::path::PathBuf;

use konverge_testkit::ConnectProxy;
use serde_json::Value;

use crate::stage::{Running, Stage, operator};

/// An address on which no server listens.
const NOWHERE: &str = "http://127.0.0.1:9";

/// Returns the operator's kubeconfig with another cluster in it.
fn kubeconfig(stage: &Stage, name: &str, change: impl FnOnce(&mut Value)) -> PathBuf {
    let mut config: Value = serde_json::from_slice(&std::fs::read(stage.kubeconfig()).unwrap()).unwrap();
    change(&mut config["clusters"][0]["cluster"]);
    let path = stage.plane.run_directory().path().join(name);
    std::fs::write(&path, config.to_string()).unwrap();
    path
}

fn server(stage: &Stage) -> String {
    let config: Value = serde_json::from_slice(&std::fs::read(stage.kubeconfig()).unwrap()).unwrap();
    let server = config["clusters"][0]["cluster"]["server"].as_str().unwrap();
    server.trim_start_matches("https://").to_owned()
}

async fn starts(stage: &Stage, kubeconfig: PathBuf, variables: &[(&str, &str)]) -> Running {
    let namespace = stage.view("proxied").await.namespace;
    let (mut spec, address) = operator(&kubeconfig, &namespace);
    for (name, value) in variables {
        spec = spec.env(name, value);
    }
    stage.start_as(spec, address).await
}

#[tokio::test]
async fn a_proxy_url_of_the_kubeconfig_is_used() {
    let stage = Stage::shared().await;
    let proxy = ConnectProxy::start().await.unwrap();
    let through = kubeconfig(stage, "proxy-url.json", |cluster| cluster["proxy-url"] = proxy.url().into());
    // NO_PROXY is about the proxy of the environment.
    let _operator = starts(stage, through, &[("HTTPS_PROXY", NOWHERE), ("NO_PROXY", "127.0.0.1")]).await;
    assert!(proxy.tunnels() > 0);
}

#[tokio::test]
async fn a_proxy_of_the_environment_is_used_unless_no_proxy_names_the_server() {
    let stage = Stage::shared().await;
    let proxy = ConnectProxy::start_before(&server(stage)).await.unwrap();
    // Only the proxy knows the address of this name.
    let elsewhere = kubeconfig(stage, "elsewhere.json", |cluster| {
        cluster["server"] = "https://kube.invalid:6443".into();
        cluster["tls-server-name"] = "127.0.0.1".into();
    });
    let _operator = starts(stage, elsewhere, &[("HTTPS_PROXY", &proxy.url())]).await;
    assert!(proxy.tunnels() > 0);
    let named = |cluster: &mut Value| {
        cluster["server"] = cluster["server"].as_str().unwrap().replace("127.0.0.1", "localhost").into();
    };
    for (file, no_proxy) in [("address.json", "10.0.0.0/8,127.0.0.0/8"), ("name.json", "localhost"), ("here.json", "")]
    {
        let direct = kubeconfig(stage, file, |cluster| {
            if file == "name.json" {
                named(cluster);
            }
        });
        let _operator = starts(stage, direct, &[("HTTPS_PROXY", NOWHERE), ("NO_PROXY", no_proxy)]).await;
    }
}
