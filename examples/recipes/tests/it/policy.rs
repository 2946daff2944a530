//! A policy in two versions decides which `ConfigMaps` may be created.

use std::collections::BTreeSet;

use konverge::{
    k8s_openapi::api::core::v1::ConfigMap,
    kube::{Api, ResourceExt, api::PostParams},
};
use konverge_recipes::policy::{NamePolicy, NamePolicySpec, operator, v1alpha1};
use konverge_testkit::{ControlPlane, Options, RoleUse, eventually, free_port};

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
    let mut running = installed.start("policy-operator", program, &arguments).await.unwrap();
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
    let policies = Api::<NamePolicy>::namespaced(client.clone(), &namespace);
    assert_eq!(policies.get("teams").await.unwrap().spec.allowed_prefixes, ["shop-"]);

    let refused = eventually(LIMIT, async || create("app").await.err()).await.unwrap().to_string();
    assert!(refused.contains("NamePolicy teams allows names that begin with one of: shop-"), "{refused}");
    create("shop-app").await.unwrap();

    // Written in the version of the second release, and read in the first, which keeps what it has no field for.
    let spec = NamePolicySpec { allowed_prefixes: ["shop-", "team-"].map(ToOwned::to_owned).into() };
    policies.create(&PostParams::default(), &NamePolicy::new("both", spec.clone())).await.unwrap();
    let mut both = old.get("both").await.unwrap();
    assert_eq!(both.spec.prefix, "shop-");
    // An operator of the first release writes it back as it read it, but for what it knows of.
    both.labels_mut().insert("team".to_owned(), "web".to_owned());
    old.replace("both", &PostParams::default(), &both).await.unwrap();
    let both = policies.get("both").await.unwrap();
    assert_eq!(both.spec.allowed_prefixes, spec.allowed_prefixes);
    assert_eq!((both.labels()["team"].as_str(), both.annotations().len()), ("web", 0));

    running.terminate(LIMIT).await.unwrap();
    let rules = operator().grant(&home).everywhere;
    let log = plane.audit_log().unwrap();
    log.catch_up(&client).await.unwrap();
    let requests = installed.requests(&log).unwrap();
    let RoleUse { refused, unused } = RoleUse::of(&requests, &rules);
    assert!(refused.is_empty(), "{refused:?}");
    // Nothing failed, and no object was stored in the former version, so nothing was told and nothing migrated.
    let told = ["create events.k8s.io/events", "patch events.k8s.io/events"];
    let migrated = ["patch apiextensions.k8s.io/customresourcedefinitions/status", "patch example.io/namepolicies"];
    let expected: BTreeSet<_> = told.into_iter().chain(migrated).map(ToOwned::to_owned).collect();
    assert_eq!(unused, expected, "no other verb is spare");
}
