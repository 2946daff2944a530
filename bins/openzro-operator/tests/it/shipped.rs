//! `deploy/openzro-operator.yaml` and the files beside it, applied as its comment says, and the operator run as its container would.

use std::{fs, time::Duration};

use k8s_openapi::api::{
    admissionregistration::v1::MutatingWebhookConfiguration,
    apps::v1::Deployment,
    coordination::v1::Lease,
    rbac::v1::{ClusterRole, Role},
};
use konverge_openzro_testing::Double;
use konverge_testkit::{ControlPlane, Options, Process, ProcessSpec, RoleUse, eventually, free_port, http_get};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, PostParams},
};
use serde_json::json;

use crate::stage::{LIMIT, resource};

/// The files, in the order of the comment.
const FILES: [&str; 4] = [
    include_str!("../../../../deploy/openzro/crds.yaml"),
    include_str!("../../../../deploy/openzro/role.yaml"),
    include_str!("../../../../deploy/openzro/webhooks.yaml"),
    include_str!("../../../../deploy/openzro-operator.yaml"),
];

const HOME: &str = "openzro";
const NAME: &str = "openzro-operator";

/// The arguments of the container, with the ports and the token of this machine.
fn arguments(deployment: &Deployment, server: &str, token: &str, address: &str) -> Vec<String> {
    let pod = deployment.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
    assert_eq!(pod.service_account_name.as_deref(), Some(NAME));
    let container = &pod.containers[0];
    let mount = &container.volume_mounts.as_ref().unwrap()[0].mount_path;
    let given = container.args.clone().unwrap();
    assert!(
        given.iter().any(|argument| argument == &format!("--openzro-api-key-file={mount}/OZ_API_KEY")),
        "{given:?}"
    );
    let local = given.into_iter().map(|argument| match argument.split_once('=') {
        Some((flag @ "--openzro-api-key-file", _)) => format!("{flag}={token}"),
        // Users change the address, as the comment says.
        Some((flag @ "--openzro-management-url", _)) => format!("{flag}={server}"),
        Some((flag @ "--health-probe-bind-address", _)) => format!("{flag}={address}"),
        Some((flag, _)) if flag.ends_with("-bind-address") => format!("{flag}=127.0.0.1:{}", free_port().unwrap()),
        _ => argument,
    });
    // This one is not in the file: the port of the webhooks is that of the container.
    local.chain([format!("--webhook-bind-address=127.0.0.1:{}", free_port().unwrap())]).collect()
}

async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let found = eventually(LIMIT, async || holds().await.then_some(())).await;
    assert!(found.is_ok(), "not in time: {what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shipped_manifests_install_an_operator_that_works() {
    let plane = ControlPlane::start(Options::ours()).await.unwrap();
    let client = plane.admin_client().await.unwrap();
    let openzro = Double::start().await.unwrap();
    let token = plane.run_directory().path().join("token");
    fs::write(&token, &openzro.account().tokens["admin"]).unwrap();
    plane.apply(&format!("apiVersion: v1\nkind: Namespace\nmetadata: {{ name: {HOME} }}")).await.unwrap();
    for file in FILES {
        plane.apply(file).await.unwrap();
    }
    let log = plane.audit_log().unwrap().from_now().unwrap();
    let deployment = Api::<Deployment>::namespaced(client.clone(), HOME).get(NAME).await.unwrap();
    let address = format!("127.0.0.1:{}", free_port().unwrap());
    let arguments = arguments(&deployment, openzro.url(), token.to_str().unwrap(), &address);
    let kubeconfig = plane.service_account_kubeconfig(HOME, NAME).await.unwrap();
    let spec = ProcessSpec::new(NAME, env!("CARGO_BIN_EXE_openzro-operator")).args(&arguments).arg("--kubeconfig");
    let mut operator = Process::start(plane.run_directory(), spec.arg(kubeconfig)).unwrap();
    let is_ready = || async { http_get(&address, "/readyz").await.is_ok_and(|(code, _)| code == 200) };
    operator.ready("become ready", LIMIT, is_ready).await.unwrap();

    // It leads under the lease of the original, and the API server trusts its webhooks.
    let leases = Api::<Lease>::namespaced(client.clone(), HOME);
    until("it leads", async || leases.get_opt("operator.openzro.io").await.unwrap().is_some()).await;
    let configurations = Api::<MutatingWebhookConfiguration>::all(client.clone());
    until("the API server trusts the webhooks", async || {
        let webhooks = configurations.get(NAME).await.unwrap().webhooks.unwrap_or_default();
        !webhooks.is_empty() && webhooks.iter().all(|webhook| webhook.client_config.ca_bundle.is_some())
    })
    .await;
    let namespace = plane.namespace("shop").await.unwrap();
    let group = resource("v1", "OZGroup");
    let groups = Api::<DynamicObject>::namespaced_with(client.clone(), &namespace, &group);
    let servers =
        DynamicObject::new("servers", &group).data(json!({ "spec": { "name": format!("{namespace}/servers") } }));
    groups.create(&PostParams::default(), &servers).await.unwrap();
    until("the group is in openZro", async || {
        groups.get("servers").await.unwrap().data["status"]["groupID"].is_string()
    })
    .await;
    groups.delete("servers", &DeleteParams::default()).await.unwrap();
    until("the group is gone", async || groups.get_opt("servers").await.unwrap().is_none()).await;
    operator.terminate(Duration::from_mins(1)).await.unwrap();

    log.catch_up(&client).await.unwrap();
    let asked = log.entries_of(&format!("system:serviceaccount:{HOME}:{NAME}")).unwrap();
    let role = Api::<ClusterRole>::all(client.clone()).get(NAME).await.unwrap();
    let at_home = Api::<Role>::namespaced(client.clone(), HOME).get(NAME).await.unwrap();
    let rules: Vec<_> = [role.rules, at_home.rules].into_iter().flatten().flatten().collect();
    let used = RoleUse::of(&asked, &rules);
    assert!(!asked.is_empty() && used.refused.is_empty(), "{:?}", used.refused);
}
