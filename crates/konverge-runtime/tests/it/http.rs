//! Health and metrics over HTTP, as the kubelet and Prometheus ask for them.

use std::time::Duration;

use konverge_runtime::{
    Manager, Metrics,
    client::{self, ClientOptions},
};
use konverge_testkit::http_get;
use tokio::net::TcpStream;

use super::control_plane;

/// Status and body.
pub(crate) async fn get(address: std::net::SocketAddr, path: &str) -> (u16, String) {
    http_get(&address.to_string(), path).await.unwrap()
}

#[tokio::test]
async fn checks_and_metrics_are_served_and_requests_are_counted() {
    let metrics = Metrics::new("test", "1.2.3");
    let plane = control_plane().await;
    let options = ClientOptions::default().with(|options| options.kubeconfig = Some(plane.kubeconfig().to_owned()));
    let client = client::build(&options, metrics.client()).await.unwrap();
    client.apiserver_version().await.unwrap();
    let manager = Manager::bind(([127, 0, 0, 1], 0).into(), metrics).await.unwrap();
    let flag = manager.checks().readiness_flag("cache", "not filled");
    let (address, shutdown) = (manager.address(), manager.shutdown());
    let run = tokio::spawn(manager.run());
    assert_eq!(get(address, "/healthz").await, (200, "ok".to_owned()));
    let (status, body) = get(address, "/readyz").await;
    assert_eq!((status, body.contains("[-]cache failed: not filled")), (503, true), "{body}");
    flag.set(true);
    assert_eq!(get(address, "/readyz").await, (200, "ok".to_owned()));
    let (status, body) = get(address, "/readyz?verbose").await;
    assert_eq!((status, body.contains("[+]cache ok\n")), (200, true), "{body}");
    for (path, expected) in [
        ("/readyz/cache", (200, "ok")),
        ("/readyz/cache?verbose", (200, "[+]cache ok\n")),
        ("/healthz/", (200, "ok")),
        ("/healthz/cache", (404, "there is no check \"cache\"\n")),
        ("/healthz/healthz", (200, "ok")),
        ("/readyz/readyz", (200, "ok")),
        ("/readyz/healthz", (404, "there is no check \"healthz\"\n")),
    ] {
        assert_eq!(get(address, path).await, (expected.0, expected.1.to_owned()), "{path}");
    }
    flag.set(false);
    assert_eq!(get(address, "/readyz/cache").await, (503, "[-]cache failed: not filled\n".to_owned()));
    assert_eq!(get(address, "/readyz/readyz").await.0, 503);
    assert_eq!(get(address, "/readyz/shutdown").await, (200, "ok".to_owned()));
    assert_eq!(get(address, "/readyz?exclude=c%61che").await, (200, "ok".to_owned()));
    let (status, body) = get(address, "/readyz?verbose&exclude=cache&exclude=other").await;
    assert_eq!(status, 200);
    for line in ["[+]cache excluded: ok\n", "[+]shutdown ok\n", "warn: there is no check \"other\" to exclude\n"] {
        assert!(body.contains(line), "{line} is not in {body}");
    }
    let (status, body) = get(address, "/metrics").await;
    assert_eq!(status, 200);
    let host = format!("host=\"{}\"", client_host(&options));
    for part in ["rest_client_requests_total{code=\"200\",method=\"GET\",", &host, "konverge_build_info", "# EOF"] {
        assert!(body.contains(part), "{part} is not in {body}");
    }
    assert_eq!(get(address, "/nothing").await.0, 404);
    shutdown.cancel();
    tokio::time::timeout(Duration::from_secs(20), run).await.unwrap().unwrap().unwrap();
    assert!(TcpStream::connect(address).await.is_err(), "the server is gone");
}

fn client_host(options: &ClientOptions) -> String {
    let kubeconfig = kube::config::Kubeconfig::read_from(options.kubeconfig.as_ref().unwrap()).unwrap();
    let server = kubeconfig.clusters[0].cluster.as_ref().unwrap().server.clone().unwrap();
    server.trim_start_matches("https://").trim_end_matches('/').to_owned()
}

#[tokio::test]
async fn a_client_is_made_without_an_api_server_and_gives_up_in_time() {
    let kubeconfig = std::env::temp_dir().join(format!("konverge-nowhere-{}", std::process::id()));
    // A listener that never answers.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = silent.local_addr().unwrap();
    let text = format!(
        "apiVersion: v1\nkind: Config\nclusters: [{{name: a, cluster: {{server: \"http://{server}\"}}}}]\n\
         contexts: [{{name: a, context: {{cluster: a, user: a}}}}]\ncurrent-context: a\nusers: [{{name: a, user: {{}}}}]\n"
    );
    std::fs::write(&kubeconfig, text).unwrap();
    let options = ClientOptions::default().with(|options| {
        options.kubeconfig = Some(kubeconfig.clone());
        options.call_timeout = Duration::from_millis(200);
    });
    let client = client::build(&options, Metrics::new("test", "0").client()).await.unwrap();
    let error = client.apiserver_version().await.unwrap_err();
    assert!(error.to_string().contains("no answer within 200ms"), "{error}");
    std::fs::remove_file(kubeconfig).unwrap();
}
