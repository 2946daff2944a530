//! Wrong command lines, missing objects, and forbidden ones.

use konverge_testkit::{ConnectProxy, ControlPlane};
use serde_json::json;

use crate::stage::{Ran, Stage, World, ran};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_told_with_what_to_do_instead() {
    let world = Stage::shared().await.world().await;
    for (line, code, says) in [
        ("why pod/web", 2, "the known types are deployment"),
        ("why secret", 2, "which secret? write secret/NAME"),
        ("why secret/", 2, "not a valid name of a secret"),
        ("why", 2, "required"),
        ("status deploy/web -A", 2, "leave out -A"),
        ("sync secret/db --timeout never", 2, "such as 30s"),
        ("dance", 2, "unrecognized subcommand"),
        ("why secret/nobody", 2, "there is no secret/nobody in namespace"),
        ("diff secret/nobody", 2, "there is no secret/nobody in namespace"),
        ("pause deploy/nobody", 2, "there is no deployment/nobody in namespace"),
        ("--context nowhere status", 2, "nowhere"),
        ("--kubeconfig /nowhere/config status", 2, "/nowhere/config"),
        ("status", 0, "has opted in"),
        ("--help", 0, "doctor"),
        ("--version", 0, "konverge"),
    ] {
        world.run(line).await.ends(code).says(&[says]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_away_is_told_at_once() {
    let world = Stage::shared().await.world().await;
    let text = std::fs::read_to_string(world.stage.plane.kubeconfig()).unwrap();
    let mut kubeconfig: kube::config::Kubeconfig = kube::config::Kubeconfig::from_yaml(&text).unwrap();
    for cluster in kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        cluster.server = Some("https://127.0.0.1:1".to_owned());
    }
    let file = world.home.path().join("away");
    std::fs::write(&file, serde_json::to_vec(&kubeconfig).unwrap()).unwrap();
    for verb in ["status", "why secret/db", "doctor"] {
        let mut command = world.plugin();
        command.arg("--kubeconfig").arg(&file).args(verb.split(' '));
        ran(&mut command).await.ends(2).says(&["error: cannot", "kubectl cluster-info"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_behind_a_proxy_is_reached_as_kubectl_does() {
    let world = Stage::shared().await.world().await;
    let text = std::fs::read_to_string(world.stage.plane.kubeconfig()).unwrap();
    let kubeconfig = |change: &dyn Fn(&mut kube::config::Cluster)| {
        let mut kubeconfig = kube::config::Kubeconfig::from_yaml(&text).unwrap();
        kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()).for_each(change);
        let file = world.home.path().join("proxied");
        std::fs::write(&file, serde_json::to_vec(&kubeconfig).unwrap()).unwrap();
        file
    };
    let status = async |file: std::path::PathBuf, proxy: &str, no_proxy: &str| {
        let mut command = world.plugin();
        command.arg("--kubeconfig").arg(file).arg("status").env("HTTPS_PROXY", proxy).env("NO_PROXY", no_proxy);
        ran(&mut command).await
    };
    let nowhere = "http://127.0.0.1:9";
    status(kubeconfig(&|_| {}), nowhere, "10.0.0.0/8,127.0.0.1").await.ends(0);

    let proxy = ConnectProxy::start().await.unwrap();
    let named = kubeconfig(&|cluster| cluster.proxy_url = Some(proxy.url()));
    status(named, nowhere, "127.0.0.1").await.ends(0);
    assert!(proxy.tunnels() > 0);

    let server =
        kube::config::Kubeconfig::from_yaml(&text).unwrap().clusters[0].cluster.clone().unwrap().server.unwrap();
    let proxy = ConnectProxy::start_before(server.trim_start_matches("https://")).await.unwrap();
    let elsewhere = kubeconfig(&|cluster| {
        cluster.server = Some("https://kube.invalid:6443".to_owned());
        cluster.tls_server_name = Some("127.0.0.1".to_owned());
    });
    status(elsewhere, &proxy.url(), "").await.ends(0);
    assert!(proxy.tunnels() > 0);
}

/// A person who may do what these rules say.
async fn as_person(world: &World<'_>, plane: &ControlPlane, rules: &str, line: &str) -> Ran {
    let namespace = &world.namespace;
    let role = format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {{name: person, namespace: {namespace}}}\nrules: {rules}\n---\n\
         apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {{name: person, namespace: {namespace}}}\n\
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: person}}\n\
         subjects: [{{kind: ServiceAccount, name: person, namespace: {namespace}}}]\n"
    );
    plane.apply(&role).await.unwrap();
    let kubeconfig = plane.service_account_kubeconfig(namespace, "person").await.unwrap();
    let mut command = world.plugin();
    command.env("KUBECONFIG", kubeconfig).args(line.split(' '));
    ran(&mut command).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_not_be_seen_hides_nothing_else() {
    let world = Stage::shared().await.world().await;
    let _operator = world.operator(&[]).await;
    world.secret("db", &[("a", "b")], json!({ "vault-sync.io/path": world.path("db") })).await;
    world.until("secret/db", "Synced").await;
    let plane = &world.stage.plane;
    let none = "[]";
    let ran = as_person(&world, plane, none, "status").await.ends(2);
    ran.says(&["you may not list deployments"]);
    as_person(&world, plane, none, "why secret/db").await.ends(2).says(&["you may not get secret/db"]);
    let some = "[{apiGroups: [\"\"], resources: [secrets], verbs: [get, list]}]";
    let ran = as_person(&world, plane, some, "status").await.ends(0);
    ran.says(&["secret/db push Synced", "warning: you may not list deployments"]);
    // Events and the operator's settings are not theirs to see.
    let ran = as_person(&world, plane, some, "why secret/db").await.ends(0);
    ran.says(&[
        "state Synced since",
        "allowed not known: you may not list deployments",
        "events you may not list events",
    ]);
    as_person(&world, plane, some, "pause secret/db").await.ends(2).says(&["you may not annotate secret/db"]);
    let ran = as_person(&world, plane, some, "doctor").await;
    ran.says(&["unknown operator you may not list deployments"]);
}
