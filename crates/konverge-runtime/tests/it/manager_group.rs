//! Several jobs as one process, over HTTP.

use std::{net::SocketAddr, time::Duration};

use konverge_runtime::{
    Manager, ManagerGroup, Metrics,
    client::{self, ClientOptions},
    http_server::{Authentication, Listen, MetricsServer},
};

use super::{control_plane, http::get};

/// A job that can be asked nowhere but among others.
async fn job(program: &str) -> Manager {
    Manager::listen(Listen::Nowhere, Metrics::new(program, "1.2.3")).await.unwrap()
}

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

#[tokio::test]
async fn health_is_that_of_all_and_metrics_are_those_of_each() {
    let (pull, push) = (job("zopp-operator").await, job("vault-sync-operator").await);
    let cache = pull.checks().readiness_flag("cache", "not filled");
    let vault = push.checks().readiness_flag("vault", "away");
    push.checks().liveness("push", || Err("stuck".to_owned()));
    let stop = push.shutdown();
    // This one serves by itself.
    let mut roll = Manager::bind(ANY, Metrics::new("vault-rollout-operator", "1.2.3")).await.unwrap();
    roll.metrics_server(ANY.into()).await.unwrap();
    let own = roll.address();
    let mut group = ManagerGroup::listen(ANY.into()).await.unwrap();
    let address = group.address();
    for (name, manager) in [("pull", pull), ("push", push), ("roll", roll)] {
        group.job(name, manager);
    }
    let run = tokio::spawn(group.run());

    // The server answers before the last of them says that it is up.
    let (status, body) =
        ready_but_for(address, &["[-]pull/cache failed: not filled", "[-]push/vault failed: away"]).await;
    assert_eq!(status, 503, "{body}");
    cache.set(true);
    let (status, body) = get(address, "/readyz").await;
    assert_eq!((status, body.contains("[+]pull/cache ok\n")), (503, true), "{body}");
    assert_eq!(get(address, "/readyz/pull").await, (200, "ok".to_owned()));
    assert_eq!(get(address, "/readyz/push/vault").await, (503, "[-]push/vault failed: away\n".to_owned()));
    vault.set(true);
    assert_eq!(get(address, "/readyz").await, (200, "ok".to_owned()));
    let (status, body) = get(address, "/healthz").await;
    assert_eq!((status, &*body), (503, "[-]push/push failed: stuck\nhealthz check failed\n"));
    assert_eq!(get(own, "/readyz").await, (200, "ok".to_owned()), "its own goes on");

    for (name, program) in [("pull", "zopp-operator"), ("push", "vault-sync-operator")] {
        let (status, body) = get(address, &format!("/metrics/{name}")).await;
        let build = format!("konverge_build_info{{program=\"{program}\",version=\"1.2.3\"}} 1");
        assert_eq!((status, body.contains(&build)), (200, true), "{body}");
        assert_eq!(body.matches("\nkonverge_build_info{").count(), 1, "{body}");
    }
    assert!(!get(address, "/metrics/pull").await.1.contains("check=\"vault\""), "its own checks alone");
    for path in ["/metrics", "/metrics/", "/metrics/roll", "/metrics/else"] {
        let (status, body) = get(address, path).await;
        assert_eq!((status, body.contains("\n/metrics/pull\n/metrics/push\n")), (404, true), "{path}: {body}");
        assert!(!body.contains("/metrics/roll"), "{body}");
    }
    stop.cancel();
    tokio::time::timeout(Duration::from_secs(20), run).await.unwrap().unwrap().unwrap();
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "the server is gone");
}

/// Returns the body of `/readyz` once nothing else is unready.
async fn ready_but_for(address: SocketAddr, wrong: &[&str]) -> (u16, String) {
    let seen = konverge_testkit::eventually(Duration::from_secs(30), || async {
        let (status, body) = get(address, "/readyz").await;
        let failed: Vec<_> = body.lines().filter(|line| line.starts_with("[-]")).collect();
        (failed == wrong).then_some((status, body))
    });
    seen.await.unwrap()
}

#[tokio::test]
async fn who_may_not_read_the_metrics_of_a_job_may_not_do_so_here() {
    let mut push = job("vault-sync-operator").await;
    let plane = control_plane().await;
    let options = ClientOptions::default().with(|options| options.kubeconfig = Some(plane.kubeconfig().to_owned()));
    let client = client::build(&options, push.metrics().client()).await.unwrap();
    let nowhere =
        MetricsServer::from(Listen::Nowhere).with(|server| server.authentication = Some(Authentication::new(client)));
    push.metrics_server(nowhere).await.unwrap();
    let stop = push.shutdown();
    let mut group = ManagerGroup::listen(ANY.into()).await.unwrap();
    group.job("push", push);
    group.job("pull", job("zopp-operator").await);
    let address = group.address();
    let run = tokio::spawn(group.run());
    let (status, body) = get(address, "/metrics/push").await;
    assert_eq!((status, &*body), (401, "needs a bearer token that the API server knows\n"));
    assert_eq!(get(address, "/metrics/pull").await.0, 200);
    stop.cancel();
    run.await.unwrap().unwrap();
}
