//! Each program reaches its servers through a proxy. No resolver knows their names, so only the proxy can connect.

use std::{path::PathBuf, time::Duration};

use konverge_e2e::{OpenZroAccount, Stage, binary};
use konverge_testkit::{ConnectProxy, ELSEWHERE, Process, ProcessSpec, TlsFront, until_true};
use konverge_testkit_stores::{VaultOptions, VaultServer};
use kube::{
    Api,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_mins(1);

const OPENZRO: &str = include_str!("../../deploy/openzro/crds.yaml");

/// A TLS front of a server, and a proxy that connects to it.
struct Route {
    front: TlsFront,
    proxy: ConnectProxy,
    authority: PathBuf,
}

impl Route {
    async fn to(stage: &Stage, server: &str, is_http_2: bool) -> Self {
        let front = TlsFront::start(server.trim_start_matches("http://"), is_http_2).await.unwrap();
        let proxy = ConnectProxy::start_before(&front.address().to_string()).await.unwrap();
        let authority = stage.control_plane.run_directory().path().join("front.pem");
        std::fs::write(&authority, front.authority()).unwrap();
        Self { front, proxy, authority }
    }

    fn authority(&self) -> &str {
        self.authority.to_str().unwrap()
    }

    /// The proxy as clients of either protocol name it.
    fn proxies(&self) -> [String; 2] {
        [self.proxy.url(), self.proxy.socks_url()]
    }

    /// The ways of a client to the server: through the proxy by either protocol, and past the proxy to a server that `NO_PROXY` names.
    fn ways(&self) -> [Way; 3] {
        let [http, socks] = self.proxies();
        let direct = format!("https://{}", self.front.address());
        [
            Way { name: "http", address: address(), proxy: http.clone(), no_proxy: "", is_proxied: true },
            Way { name: "socks", address: address(), proxy: socks, no_proxy: "", is_proxied: true },
            Way { name: "direct", address: direct, proxy: http, no_proxy: "10.0.0.0/8,127.0.0.1", is_proxied: false },
        ]
    }
}

/// A way to the server.
struct Way {
    name: &'static str,
    address: String,
    proxy: String,
    no_proxy: &'static str,
    is_proxied: bool,
}

/// The address of the server as its clients have it.
fn address() -> String {
    format!("https://{ELSEWHERE}")
}

/// The kubeconfig of the administrator with this proxy.
fn kubeconfig(stage: &Stage, proxy: &str) -> String {
    let mut config: Value = serde_json::from_slice(&std::fs::read(stage.control_plane.kubeconfig()).unwrap()).unwrap();
    config["clusters"][0]["cluster"]["proxy-url"] = proxy.into();
    let path = stage.control_plane.run_directory().path().join("proxied.json");
    std::fs::write(&path, config.to_string()).unwrap();
    format!("--kubeconfig={}", path.display())
}

fn start(stage: &Stage, name: &str, arguments: &[String], variables: &[(&str, &str)]) -> Process {
    let spec = ProcessSpec::new(name, binary(name).unwrap()).args(arguments);
    let spec = variables.iter().fold(spec, |spec, (name, value)| spec.env(name, value));
    Process::start(stage.control_plane.run_directory(), spec).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn zopp_its_operator_and_its_sync_go_through_the_proxy() {
    let stage = Stage::set_on_ours().await.unwrap();
    let namespace = stage.control_plane.namespace("proxied").await.unwrap();
    let environment = stage.environment("proxied").await.unwrap();
    stage.user.set(&environment, "A", b"1").await.unwrap();
    let route = Route::to(&stage, &stage.server.url(), true).await;
    let to_kubernetes = ConnectProxy::start().await.unwrap();
    let kubeconfig = kubeconfig(&stage, &to_kubernetes.url());
    let variables = |proxy: &str| {
        [
            ("ZOPP_SERVER", address()),
            ("HTTPS_PROXY", proxy.to_owned()),
            ("ZOPP_TLS_CA_CERT", route.authority().to_owned()),
        ]
    };
    let place = ["-w", "acme", "-p", "backend", "-e", "proxied"];
    for proxy in route.proxies() {
        let before = route.proxy.tunnels();
        let mut command = stage.user.command(["secret", "get", "A"]).unwrap();
        let output = command.args(place).envs(variables(&proxy)).output().await.unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "1", "{}", String::from_utf8_lossy(&output.stderr));
        assert!(route.proxy.tunnels() > before, "{proxy}");
    }
    // Without the proxy, no name leads to the server.
    let before = route.proxy.tunnels();
    let mut command = stage.user.command(["secret", "get", "A"]).unwrap();
    let command = command.args(place).envs(variables(&route.proxy.url())).env("NO_PROXY", ELSEWHERE);
    let output = command.output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("cannot be reached"), "{said}");
    assert_eq!(route.proxy.tunnels(), before, "NO_PROXY names the server");
    let mut sync = tokio::process::Command::new(binary("zopp-k8s").unwrap());
    sync.args(["sync", "k8s", "--namespace", &namespace, "--secret", "synced", &kubeconfig]).args(place);
    sync.env("HOME", stage.user.home()).current_dir(stage.user.home()).envs(variables(&route.proxy.url()));
    let (zopp, kubernetes) = (route.proxy.tunnels(), to_kubernetes.tunnels());
    let output = sync.output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(route.proxy.tunnels() > zopp && to_kubernetes.tunnels() > kubernetes);

    for (name, proxy) in ["http", "socks"].into_iter().zip(route.proxies()) {
        stage.bind(&namespace, name, &environment).await.unwrap();
        let (zopp, kubernetes) = (route.proxy.tunnels(), to_kubernetes.tunnels());
        let arguments = [
            kubeconfig.clone(),
            format!("--server={}", address()),
            format!("--credentials={}", stage.credentials().display()),
            format!("--tls-ca-cert={}", route.authority()),
            format!("--namespace={namespace}"),
            "--health-addr=127.0.0.1:0".to_owned(),
        ];
        let _operator = start(&stage, "zopp-operator", &arguments, &[("HTTPS_PROXY", &proxy)]);
        stage.watcher(&namespace).holds(name, SOON, &[("A", "1")]).await.unwrap();
        assert!(route.proxy.tunnels() > zopp && to_kubernetes.tunnels() > kubernetes, "{proxy}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn push_goes_through_the_proxy_to_vault_and_to_kubernetes() {
    let stage = Stage::set_on_ours().await.unwrap();
    let vault = VaultServer::start(VaultOptions::default()).await.unwrap();
    vault.mount_kv("secret", 2).await.unwrap();
    let route = Route::to(&stage, vault.address(), false).await;
    let token = stage.control_plane.run_directory().path().join("vault-token");
    std::fs::write(&token, vault.root_token()).unwrap();
    let to_kubernetes = ConnectProxy::start().await.unwrap();
    let kubeconfig = kubeconfig(&stage, &to_kubernetes.url());
    for Way { name, address, proxy, no_proxy, is_proxied } in route.ways() {
        let (vaults, kubernetes) = (route.proxy.tunnels(), to_kubernetes.tunnels());
        let namespace = stage.control_plane.namespace(name).await.unwrap();
        let path = format!("secret/data/{namespace}/a");
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": "a", "namespace": namespace, "annotations": { "vault-sync.io/path": path } },
            "stringData": { "k": name },
        });
        stage.control_plane.apply(&secret.to_string()).await.unwrap();
        let arguments = [
            kubeconfig.clone(),
            format!("--vault-addr={address}"),
            "--vault-auth-method=token".to_owned(),
            format!("--vault-token-file={}", token.display()),
            format!("--namespace={namespace}"),
            "--health-probe-bind-address=0".to_owned(),
            "--metrics-bind-address=0".to_owned(),
        ];
        let variables = [("HTTPS_PROXY", &*proxy), ("NO_PROXY", no_proxy), ("VAULT_CACERT", route.authority())];
        let _operator = start(&stage, "vault-sync-operator", &arguments, &variables);
        until_true("the content is in Vault", async || {
            let answer = vault.request("GET", &path, &Value::Null).await;
            Ok(answer.is_ok_and(|answer| answer["data"]["data"]["k"] == name))
        })
        .await;
        assert_eq!(route.proxy.tunnels() > vaults, is_proxied, "{name}");
        assert!(to_kubernetes.tunnels() > kubernetes, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn manage_goes_through_the_proxy_to_openzro_and_to_kubernetes() {
    let stage = Stage::set_on_ours().await.unwrap();
    stage.control_plane.apply(OPENZRO).await.unwrap();
    let account = OpenZroAccount::on_double().await.unwrap();
    let route = Route::to(&stage, &account.url, false).await;
    let token = stage.control_plane.run_directory().path().join("openzro-token");
    std::fs::write(&token, &account.token).unwrap();
    let to_kubernetes = ConnectProxy::start().await.unwrap();
    let kubeconfig = kubeconfig(&stage, &to_kubernetes.url());
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("openzro.io", "v1", "OZGroup"));
    let groups = Api::<DynamicObject>::namespaced_with(stage.client().clone(), "default", &resource);
    for Way { name, address, proxy, no_proxy, is_proxied } in route.ways() {
        let (openzros, kubernetes) = (route.proxy.tunnels(), to_kubernetes.tunnels());
        let group = json!({
            "apiVersion": "openzro.io/v1", "kind": "OZGroup", "metadata": { "name": name, "namespace": "default" },
            "spec": { "name": format!("default/{name}") },
        });
        stage.control_plane.apply(&group.to_string()).await.unwrap();
        let arguments = [
            kubeconfig.clone(),
            format!("--openzro-management-url={address}"),
            format!("--openzro-api-key-file={}", token.display()),
            format!("--openzro-ca-file={}", route.authority()),
            "--enable-webhooks=false".to_owned(),
            "--runtime-namespace=default".to_owned(),
            "--health-probe-bind-address=0".to_owned(),
            "--metrics-bind-address=0".to_owned(),
        ];
        let _operator =
            start(&stage, "openzro-operator", &arguments, &[("HTTPS_PROXY", &proxy), ("NO_PROXY", no_proxy)]);
        until_true("the group is in openZro", async || {
            let group = groups.get(name).await?;
            let conditions = group.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
            Ok(conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True"))
        })
        .await;
        assert_eq!(route.proxy.tunnels() > openzros, is_proxied, "{name}");
        assert!(to_kubernetes.tunnels() > kubernetes, "{name}");
    }
}
