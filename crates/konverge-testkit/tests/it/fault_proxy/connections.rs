use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::StreamExt;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::ConfigMap;
use konverge_testkit::{
    ControlPlane, Options, client_for, eventually,
    fault_proxy::{FaultProxy, Reached},
};
use kube::{
    Api, Client, Config,
    api::{ListParams, PostParams, WatchParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, ServerName},
    },
};

use super::{Rig, SOON, code, control_plane, map};

#[tokio::test]
async fn an_outage_ends_what_is_open_and_refuses_what_is_new() {
    let rig = Rig::new().await;
    let mut events = rig.proxied.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    rig.proxy.down_until_cleared();
    while timeout(SOON, events.next()).await.unwrap().is_some_and(|event| event.is_ok()) {}
    rig.proxied.list(&ListParams::default()).await.unwrap_err();
    rig.proxy.clear();
    rig.proxied.list(&ListParams::default()).await.unwrap();

    rig.plan("- { when: { verbs: [create] }, then: { down: 1500ms } }");
    rig.proxied.create(&PostParams::default(), &map("a")).await.unwrap_err();
    rig.proxied.list(&ListParams::default()).await.unwrap_err();
    let back = || async { rig.proxied.list(&ListParams::default()).await.ok() };
    assert!(eventually(SOON, back).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn what_the_api_server_does_not_answer_is_not_answered() {
    let mut control_plane = ControlPlane::start(Options::ours()).await.unwrap();
    let proxy = FaultProxy::start(control_plane.run_directory(), control_plane.kubeconfig()).await.unwrap();
    let maps = Api::<ConfigMap>::default_namespaced(client_for(proxy.kubeconfig()).await.unwrap());
    maps.list(&ListParams::default()).await.unwrap();

    control_plane.kill_api_server().unwrap();
    let lost = maps.create(&PostParams::default(), &map("a")).await.unwrap_err();
    assert_eq!(code(&lost), None, "{lost:?}");
    let entry = proxy.journal().pop().unwrap();
    assert_eq!((entry.reached, entry.code, entry.client_code), (Reached::Server, None, None));
    assert!(!entry.is_committed());

    control_plane.start_api_server().await.unwrap().unwrap();
    maps.create(&PostParams::default(), &map("a")).await.unwrap();
}

#[tokio::test]
async fn connections_end_once() {
    let rig = Rig::new().await;
    let mut events = rig.proxied.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    rig.proxy.end_connections();
    while timeout(SOON, events.next()).await.unwrap().is_some_and(|event| event.is_ok()) {}
    rig.proxied.list(&ListParams::default()).await.unwrap();
}

#[tokio::test]
async fn frozen_connections_stay_open_and_silent_until_they_are_released() {
    let rig = Rig::new().await;
    let mut events = rig.proxied.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    rig.proxied.list(&ListParams::default()).await.unwrap();
    rig.proxy.freeze_connections();
    rig.create("a").await;
    let fresh = client_for(rig.proxy.kubeconfig()).await.unwrap();
    let seen = Api::<ConfigMap>::namespaced(fresh, &rig.namespace).list(&ListParams::default()).await.unwrap();
    assert!(seen.items.iter().any(|map| map.metadata.name.as_deref() == Some("a")), "new connections are served");
    let moment = Duration::from_millis(300);
    assert!(timeout(moment, rig.proxied.list(&ListParams::default())).await.is_err(), "the idle one has not answered");
    while let Ok(event) = timeout(moment, events.next()).await {
        let event = event.expect("an open connection").unwrap();
        assert!(!format!("{event:?}").contains("name: Some(\"a\")"), "{event:?}");
    }
    rig.proxy.release();
    while timeout(SOON, events.next()).await.unwrap().is_some_and(|event| event.is_ok()) {}
    rig.proxied.list(&ListParams::default()).await.unwrap();
}

#[tokio::test]
async fn it_asks_as_the_user_that_it_was_made_for() {
    let control_plane = control_plane().await;
    let namespace = control_plane.namespace("identity").await.unwrap();
    let kubeconfig = control_plane.service_account_kubeconfig(&namespace, "nobody").await.unwrap();
    let proxy = FaultProxy::start(control_plane.run_directory(), &kubeconfig).await.unwrap();
    let client = client_for(proxy.kubeconfig()).await.unwrap();
    assert_eq!(client.default_namespace(), namespace);
    let refused = Api::<ConfigMap>::namespaced(client, &namespace).list(&ListParams::default()).await.unwrap_err();
    let kube::Error::Api(status) = refused else { panic!("{refused:?}") };
    assert!(status.message.contains(&format!("system:serviceaccount:{namespace}:nobody")), "{status:?}");
}

#[tokio::test]
async fn who_has_not_read_the_kubeconfig_is_refused() {
    let rig = Rig::new().await;
    let mut config = config(&rig.proxy).await;
    config.auth_info = kube::config::AuthInfo::default();
    let stranger = Client::try_from(config).unwrap();
    let refused = Api::<ConfigMap>::namespaced(stranger, &rig.namespace).list(&ListParams::default()).await;
    assert_eq!(code(&refused.unwrap_err()), Some(401));
    assert!(rig.proxy.journal().is_empty());
}

#[tokio::test]
async fn what_is_no_kubeconfig_is_named() {
    let run = control_plane().await.run_directory();
    let Err(error) = FaultProxy::start(run, "/nowhere/kubeconfig".as_ref()).await else { panic!("it started") };
    assert!(error.to_string().contains("/nowhere/kubeconfig"), "{error}");
}

#[tokio::test]
async fn over_http_2_a_fault_ends_the_request_and_not_the_connection() {
    let rig = Rig::new().await;
    let config = config(&rig.proxy).await;
    let mut roots = RootCertStore::empty();
    for certificate in config.root_cert.unwrap() {
        roots.add(CertificateDer::from(certificate)).unwrap();
    }
    let mut tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let stream = TcpStream::connect(("127.0.0.1", config.cluster_url.port_u16().unwrap())).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let stream = TlsConnector::from(Arc::new(tls)).connect(name, stream).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);

    let kubeconfig = std::fs::read_to_string(rig.proxy.kubeconfig()).unwrap();
    let kubeconfig: serde_json::Value = serde_json::from_str(&kubeconfig).unwrap();
    let token = kubeconfig["users"][0]["user"]["token"].as_str().unwrap();
    let request = |path: &str| {
        let request = Request::get(format!("{}{}", config.cluster_url.to_string().trim_end_matches('/'), path));
        request.header("authorization", format!("Bearer {token}")).body(Empty::<Bytes>::new()).unwrap()
    };
    rig.plan("- { when: { nth: 1 }, then: drop }\n- { when: { phase: body, verbs: [list], nth: 1 }, then: truncate }");
    sender.send_request(request("/version")).await.unwrap_err();
    let version = sender.send_request(request("/version")).await.unwrap();
    assert_eq!(version.status(), 200);
    let body = version.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&body).contains("gitVersion"));
    let list = sender.send_request(request("/api/v1/namespaces")).await.unwrap();
    list.into_body().collect().await.unwrap_err();
    assert_eq!(sender.send_request(request("/version")).await.unwrap().status(), 200);
}

async fn config(proxy: &FaultProxy) -> Config {
    let content = Kubeconfig::read_from(proxy.kubeconfig()).unwrap();
    Config::from_custom_kubeconfig(content, &KubeConfigOptions::default()).await.unwrap()
}
