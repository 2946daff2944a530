//! A policy in two versions decides which `ConfigMaps` may be created.

use konverge::{
    k8s_openapi::api::core::v1::ConfigMap,
    kube::{Api, api::PostParams},
};
use konverge_recipes::policy::{NamePolicy, operator, v1alpha1};
use konverge_testkit::{ControlPlane, Options, eventually, free_port};

use crate::LIMIT;

#[tokio::test(flavor = "multi_thread")]
async fn names_follow_the_policies_of_their_namespace_in_both_versions() {
    let plane = ControlPlane::start(Options::ours()).await.unwrap();
    let client = plane.admin_client().await.unwrap();
    let home = plane.namespace("operator").await.unwrap();
    let manifest = operator().generate(&home).unwrap().manifest();
    let installed = plane.install("policy-operator", &home, &manifest).await.unwrap();
    let address = format!("127.0.0.1:{}", free_port().unwrap());
    let arguments = ["--lease-namespace", &home, "--webhook-address", &address, "--webhook-drain=0"];
    let program = env!("CARGO_BIN_EXE_policy-operator");
    let _running = installed.start("policy-operator", program, &arguments).await.unwrap();
    plane.route_service(&home, "policy-operator", address.parse().unwrap()).await.unwrap();

    let namespace = plane.namespace("user").await.unwrap();
    let maps = Api::<ConfigMap>::namespaced(client.clone(), &namespace);
    let create = async |name: &str| {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(name.to_owned());
        maps.create(&PostParams { dry_run: true, ..PostParams::default() }, &map).await
    };
    // In the beginning the API server may not have heard of the authority yet.
    eventually(LIMIT, async || create("anything").await.ok()).await.unwrap();

    // Written in the version of the first release, and read in the second.
    let spec = v1alpha1::NamePolicySpec { prefix: "shop-".to_owned() };
    let old = Api::<v1alpha1::NamePolicy>::namespaced(client.clone(), &namespace);
    old.create(&PostParams::default(), &v1alpha1::NamePolicy::new("teams", spec)).await.unwrap();
    let policies = Api::<NamePolicy>::namespaced(client, &namespace);
    assert_eq!(policies.get("teams").await.unwrap().spec.allowed_prefixes, ["shop-"]);

    let refused = eventually(LIMIT, async || create("app").await.err()).await.unwrap().to_string();
    assert!(refused.contains("NamePolicy teams allows names that begin with one of: shop-"), "{refused}");
    create("shop-app").await.unwrap();
}
