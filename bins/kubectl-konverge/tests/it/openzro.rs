//! The custom resources of openZro: a real API server, the verified double of the management server, and a person with access to both.

use std::{collections::BTreeSet, process::Stdio};

use clap::Parser;
use konverge_core::SecretValue;
use konverge_manage::{config::Config, metrics::Metrics, program};
use konverge_openzro::{Collection, Credential, OpenZro, OpenZroConfig};
use konverge_openzro_testing::Double;
use konverge_testkit::{ControlPlane, InstalledOperator, Options, client_for, eventually};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};
use tokio::{process::Command, task::JoinHandle};

use crate::stage::{Ran, SOON, ran};

struct Stage {
    plane: ControlPlane,
    client: Client,
    namespace: String,
    home: String,
    double: Double,
    token: String,
    dashboard: OpenZro,
    installed: InstalledOperator,
}

/// An operator that runs until it is dropped.
struct Operator(JoinHandle<()>);

impl Drop for Operator {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn resource(version: &str, kind: &str) -> ApiResource {
    let plural = if kind == "OZPolicy" { "ozpolicies".to_owned() } else { format!("{}s", kind.to_ascii_lowercase()) };
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("openzro.io", version, kind), &plural)
}

impl Stage {
    /// The operator is installed, but does not run.
    async fn set() -> Self {
        let plane = ControlPlane::start(Options::ours()).await.unwrap();
        let client = plane.admin_client().await.unwrap();
        let home = plane.namespace("operator").await.unwrap();
        let config = Config::parse_from([program::PROGRAM, "--openzro-api-key=nobody", "--enable-webhooks=false"]);
        let account = config.account(&Metrics::default()).unwrap();
        let files = program::operator(&config, account, Metrics::default()).generate(&home).unwrap();
        let installed = plane.install(program::PROGRAM, &home, &files.manifest()).await.unwrap();
        let namespace = plane.namespace("user").await.unwrap();
        let double = Double::start().await.unwrap();
        let token = double.account().tokens["admin"].clone();
        let credential = Credential::value(SecretValue::from(token.clone()));
        let dashboard = OpenZro::new(&OpenZroConfig::new(double.url(), credential).unwrap());
        Self { plane, client, namespace, home, double, token, dashboard, installed }
    }

    async fn start(&self) -> Operator {
        self.start_with(&[]).await
    }

    async fn start_with(&self, more: &[&str]) -> Operator {
        let arguments = [
            "--health-probe-bind-address=0",
            "--enable-webhooks=false",
            "--interval=1",
            "--runtime-namespace",
            &self.home,
        ];
        let server = ["--openzro-management-url", self.double.url(), "--openzro-api-key", &self.token];
        let config = Config::parse_from([&[program::PROGRAM][..], &arguments, &server, more].concat());
        let account = config.account(&Metrics::default()).unwrap();
        let client = client_for(self.installed.kubeconfig()).await.unwrap();
        let operator = program::operator(&config, account, Metrics::default());
        let manager = operator.assemble_with(client, config.options()).await.unwrap();
        let checks = manager.checks().clone();
        let running = tokio::spawn(async move { manager.run().await.unwrap() });
        let ready = eventually(SOON, || std::future::ready(checks.ready().passed.then_some(())));
        assert!(ready.await.is_ok(), "{}", checks.ready().text);
        Operator(running)
    }

    /// The plugin with an administrator's access to the cluster and to openZro.
    fn plugin(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-konverge"));
        command
            .env_clear()
            .env("KUBECONFIG", self.plane.kubeconfig())
            .env("OPENZRO_MANAGEMENT_URL", self.double.url())
            .env("OZ_API_KEY", &self.token)
            .stdin(Stdio::null());
        command
    }

    /// `kubectl konverge <line>` in the person's namespace.
    async fn run(&self, line: &str) -> Ran {
        self.run_in(&self.namespace, line).await
    }

    async fn run_in(&self, namespace: &str, line: &str) -> Ran {
        let mut command = self.plugin();
        command.args(["-n", namespace]).args(line.split(' '));
        let ran = ran(&mut command).await;
        assert!(!ran.out.contains(&self.token) && !ran.err.contains(&self.token), "the token is shown: {ran:?}");
        ran
    }

    /// Waits until the plugin shows this state of the object.
    async fn until(&self, object: &str, state: &str) {
        let found = eventually(SOON, async || {
            let ran = self.run(&format!("status {object} -o json")).await;
            let shown = serde_json::from_str::<Value>(&ran.out).ok()?;
            (shown["objects"][0]["state"] == state).then_some(())
        });
        let found = found.await;
        assert!(found.is_ok(), "{object} is not {state}: {:?}", self.run(&format!("why {object}")).await);
    }

    fn api(&self, resource: &ApiResource) -> Api<DynamicObject> {
        if resource.kind == "OZPolicy" {
            Api::all_with(self.client.clone(), resource)
        } else {
            Api::namespaced_with(self.client.clone(), &self.namespace, resource)
        }
    }

    async fn create(&self, resource: &ApiResource, name: &str, spec: Value) -> DynamicObject {
        let object = DynamicObject::new(name, resource).data(json!({ "spec": spec }));
        self.api(resource).create(&PostParams::default(), &object).await.unwrap()
    }

    async fn delete(&self, resource: &ApiResource, name: &str) {
        let api = self.api(resource);
        api.delete(name, &DeleteParams::default()).await.unwrap();
        let gone = eventually(SOON, async || api.get_opt(name).await.unwrap().is_none().then_some(())).await;
        assert!(gone.is_ok(), "{name} stays: {:?}", api.get(name).await);
    }

    /// Creates an item as a person does, and returns its id.
    async fn by_hand(&self, collection: &Collection, fields: Value) -> String {
        let Value::Object(fields) = fields else { panic!("fields of an item") };
        self.dashboard.create(collection, &fields).await.unwrap().object.id().to_owned()
    }

    async fn network(&self, name: &str, description: &str) -> String {
        self.by_hand(&Collection::Networks, json!({ "name": name, "description": description })).await
    }

    /// Returns the name of each item that can be left over, and of each group, and the id of each router.
    async fn names(&self) -> BTreeSet<String> {
        let collections = [
            Collection::Groups,
            Collection::Policies,
            Collection::SetupKeys,
            Collection::Networks,
            Collection::AllResources,
            Collection::AllRouters,
        ];
        let mut names = BTreeSet::new();
        for collection in collections {
            for item in self.dashboard.list(&collection).await.unwrap() {
                let name = item.raw().get("name").or_else(|| item.raw().get("id")).unwrap().to_string();
                names.insert(format!("{collection:?} {}", name.trim_matches('"')));
            }
        }
        names
    }
}

/// Waits until the plugin ends so: the API server serves new definitions after a moment.
///
/// The plugin wraps its lines, so the words of `says` may stand on two lines.
async fn ends(code: i32, says: &str, run: impl AsyncFn() -> Ran) {
    let found = eventually(SOON, async || {
        let ran = run().await;
        let said = format!("{} {}", ran.out, ran.err).split_whitespace().collect::<Vec<_>>().join(" ");
        (ran.code == code && said.contains(says)).then_some(())
    });
    assert!(found.await.is_ok(), "{says}: {:?}", run().await);
}

fn fields(name: &str, description: &str, rest: &Value) -> Value {
    let mut fields = json!({ "name": name, "description": description });
    fields.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    fields
}

#[tokio::test(flavor = "multi_thread")]
async fn deletions_that_manage_has_stopped_go_on_when_a_person_approves_them() {
    let stage = Stage::set().await;
    let _operator = stage.start().await;
    let resource = resource("v1alpha1", "Group");
    let names: Vec<_> = (0..8).map(|number| format!("g-{number}")).collect();
    for name in &names {
        stage.create(&resource, name, json!({ "name": name })).await;
    }
    for name in &names {
        stage.until(&format!("group/{name}"), "Reconciled").await;
    }
    stage.run("approve").await.ends(0).says(&["no operator has stopped deletions"]);
    // One mistake: a release without its objects.
    let api = stage.api(&resource);
    api.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    ends(1, "allowed without approval", async || stage.run("doctor").await).await;
    stage.run("doctor").await.says(&[
        "WRONG deletions",
        "5 of 8 are",
        "konverge.dev/deletion=orphan",
        "kubectl konverge approve",
    ]);
    let left = api.list(&ListParams::default()).await.unwrap().items;
    assert!(left.len() >= 3, "{left:?}");
    for object in &left {
        stage.until(&format!("group/{}", object.name_any()), "DeletionsStopped").await;
        assert!(stage.names().await.contains(&format!("Groups {}", object.name_any())));
    }
    stage.run("approve --as nobody").await.ends(2).says(&["configmaps"]);
    stage.run_in(&stage.home, "approve").await.ends(0).says(&["manage: approved: ", "allowed without approval"]);
    let gone = async || api.list(&ListParams::default()).await.unwrap().items.is_empty().then_some(());
    assert!(eventually(SOON, gone).await.is_ok());
    assert_eq!(stage.names().await, BTreeSet::from(["Groups All".to_owned()]));
    ends(0, "no operator has stopped deletions", async || stage.run_in(&stage.home, "approve").await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leftovers_have_the_mark_of_an_object_of_this_cluster_that_does_not_exist_and_nothing_else_is_deleted() {
    let stage = Stage::set().await;
    let namespaces = Api::<k8s_openapi::api::core::v1::Namespace>::all(stage.client.clone());
    let cluster = namespaces.get("kube-system").await.unwrap().uid().unwrap();
    let all = stage.dashboard.list(&Collection::Groups).await.unwrap()[0].id().to_owned();
    let gone = format!("konverge={cluster}/gone");

    let mentioned = stage.network("mentioned by an object", &gone).await;
    let spec = json!({ "name": "live", "networkID": mentioned, "address": "10.0.0.1", "groups": ["All"] });
    let live = stage.create(&resource("v1", "OZResource"), "live", spec).await.uid().unwrap();
    let empty = stage.network("left", &format!("Created by openzro-operator {gone}")).await;
    let used = stage.network("left but in use", &gone).await;
    let crossed = stage.network("left but routed by a person", &gone).await;
    let alike = stage.network("left but routed by a person in our way", &gone).await;
    for (name, description) in [
        ("without a mark", "Created by openzro-operator".to_owned()),
        ("of an object that exists", format!("konverge={cluster}/{live}")),
        ("of another cluster", "konverge=another/gone".to_owned()),
        ("adopted", format!("{gone};stays")),
    ] {
        stage.network(name, &description).await;
    }
    let in_network = |id: &str| Collection::Resources { network: id.to_owned() };
    let of_resource = |address: &str| json!({ "address": address, "enabled": true, "groups": [all] });
    stage.by_hand(&in_network(&empty), fields("left db", &gone, &of_resource("10.0.1.1"))).await;
    let theirs = stage.by_hand(&in_network(&used), fields("db of a person", "", &of_resource("10.0.1.2"))).await;
    let router = |metric: u32| json!({ "enabled": true, "masquerade": true, "metric": metric, "peer": "", "peer_groups": [all] });
    // The operator's router has the group of its setup key. A person's router can have the same settings.
    let peers = stage.by_hand(&Collection::Groups, json!({ "name": "left" })).await;
    let of_operator =
        json!({ "enabled": true, "masquerade": true, "metric": 9999, "peer": "", "peer_groups": [peers] });
    let of_operator = stage.by_hand(&Collection::Routers { network: empty.clone() }, of_operator).await;
    let mut by_person = Vec::new();
    for (network, metric) in [(&crossed, 100), (&alike, 9999)] {
        let routers = Collection::Routers { network: network.clone() };
        by_person.push(routers.place(stage.by_hand(&routers, router(metric)).await));
    }
    let policy = |description: &str| {
        let rule = json!({ "enabled": true, "action": "accept", "protocol": "tcp", "bidirectional": true, "ports": ["80"],
            "sources": [all], "destinations": [all] });
        json!({ "enabled": true, "rules": [fields("rule", description, &rule)] })
    };
    let left_policy = stage.by_hand(&Collection::Policies, fields("left", "", &policy(&gone))).await;
    stage.by_hand(&Collection::Policies, fields("of a person", "", &policy(""))).await;
    let key = |name: &str, groups: &[&String]| json!({ "name": name, "type": "reusable", "expires_in": 0, "auto_groups": groups, "usage_limit": 0 });
    stage.by_hand(&Collection::SetupKeys, key(&format!("left {gone}/next"), &[&peers])).await;
    stage.by_hand(&Collection::SetupKeys, key("of a person", &[])).await;
    stage.by_hand(&Collection::Groups, json!({ "name": gone })).await;

    // Without --delete, and after each refusal, openZro is as before.
    let before = stage.names().await;
    let listed = stage.run("leftovers -o json").await.ends(1).json();
    let listed = listed["jobs"]["manage"].as_array().unwrap();
    assert!(listed.iter().all(|leftover| leftover["isDeleted"] == false), "{listed:?}");
    let name = |leftover: &Value| leftover["item"].as_str().unwrap().split(" (").next().unwrap().to_owned();
    let listed: BTreeSet<_> = listed.iter().map(name).collect();
    let expected = [
        "network left",
        "network left but in use",
        "network left but routed by a person",
        "network left but routed by a person in our way",
        "network resource left db",
        "policy left",
        "setup key left",
    ];
    assert_eq!(listed.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    stage.run("leftovers").await.ends(1).says(&["Nothing was changed; kubectl konverge leftovers --delete deletes"]);
    stage.run(&format!("leftovers {mentioned} --delete")).await.ends(2).says(&["there is no leftover with the id"]);
    stage.run("leftovers --delete --as nobody").await.ends(2).says(&["you may not"]);
    let mut without_token = stage.plugin();
    ran(without_token.env_remove("OZ_API_KEY").args(["leftovers", "--delete"]))
        .await
        .ends(2)
        .says(&["set OZ_API_KEY_FILE"]);
    let mut wrong_token = stage.plugin();
    ran(wrong_token.env("OZ_API_KEY", "wrong").args(["leftovers", "--delete"])).await.ends(2).says(&["cannot list"]);
    assert_eq!(stage.names().await, before);

    // One of them.
    stage.run(&format!("leftovers {left_policy} --delete")).await.ends(0).says(&["policy left", "deleted"]);
    let missing = |now: &BTreeSet<String>| before.difference(now).cloned().collect::<Vec<_>>();
    assert_eq!(missing(&stage.names().await), ["Policies left"]);

    // All of them, but for those in use.
    let ran = stage.run("leftovers --delete").await.ends(1);
    ran.says(&[
        "network left but in use",
        "kept: it has 1 resources and 0 routers",
        "kept: it has 0 resources and 1 routers",
    ]);
    let deleted = [
        "AllResources left db".to_owned(),
        format!("AllRouters {of_operator}"),
        "Networks left".to_owned(),
        "Policies left".to_owned(),
        format!("SetupKeys left {gone}/next"),
    ];
    assert_eq!(missing(&stage.names().await), deleted);
    stage.dashboard.delete(&in_network(&used).place(theirs)).await.unwrap();
    for router in &by_person {
        stage.dashboard.delete(router).await.unwrap();
    }
    stage.run("leftovers --delete").await.ends(0);
    stage.run("leftovers").await.ends(0).says(&["manage: nothing is left over"]);
    let left: Vec<_> = stage.names().await.into_iter().filter(|name| name.starts_with("Networks")).collect();
    let expected =
        ["adopted", "mentioned by an object", "of an object that exists", "of another cluster", "without a mark"];
    assert_eq!(left, expected.map(|name| format!("Networks {name}")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_explained_adopted_and_released() {
    let stage = Stage::set().await;
    let _operator = stage.start().await;
    let groups = resource("v1alpha1", "Group");
    let theirs = stage.by_hand(&Collection::Groups, json!({ "name": "devs" })).await;
    stage.create(&groups, "devs", json!({ "name": "devs" })).await;
    stage.until("group/devs", "NameTaken").await;
    stage.run("why group/devs").await.ends(1).says(&["NameTaken"]);
    stage.run("diff group/devs").await.ends(1).says(&["group devs would stay as it is", "is there already"]);

    stage.run("adopt group/devs --id nonsense").await.ends(0);
    stage.until("group/devs", "NotFound").await;
    stage.run("adopt group/devs").await.ends(0).says(&["the only item of its name"]);
    stage.until("group/devs", "Reconciled").await;
    let adopted = stage.api(&groups).get("devs").await.unwrap();
    assert_eq!(adopted.data["status"]["groupID"], theirs);
    // The operator writes the event after the status.
    eventually(SOON, async || stage.run("why group/devs").await.out.contains("Adopted").then_some(())).await.unwrap();
    stage.run("why group/devs").await.ends(0).says(&[&format!("group devs ({theirs}), adopted")]);
    stage.run("diff group/devs").await.ends(0).says(&["is in sync"]);
    stage.delete(&groups, "devs").await;

    // A group that was made for its object stays after a release.
    stage.create(&groups, "ops", json!({ "name": "ops" })).await;
    stage.until("group/ops", "Reconciled").await;
    stage.run("release group/ops").await.ends(0);
    stage.run("why group/ops").await.says(&["stay in openZro, by its annotation"]);
    stage.delete(&groups, "ops").await;
    let names = stage.names().await;
    assert!(names.contains("Groups devs") && names.contains("Groups ops"), "{names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_shows_the_plan_of_its_items() {
    let stage = Stage::set().await;
    let all = stage.dashboard.list(&Collection::Groups).await.unwrap()[0].id().to_owned();
    let zone = json!({ "name": "prod", "domain": "prod.example", "enabled": true, "enable_search_domain": false, "distribution_groups": [all] });
    stage.by_hand(&Collection::Zones, zone).await;
    let network = stage.network("n", "").await;
    let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web" }, "spec": { "ports": [{ "port": 80 }] } });
    let services = Api::<k8s_openapi::api::core::v1::Service>::namespaced(stage.client.clone(), &stage.namespace);
    services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
    let (db, key) = (resource("v1", "OZResource"), resource("v1alpha1", "SetupKey"));
    stage
        .create(&db, "db", json!({ "name": "db", "networkID": network, "address": "10.0.0.1", "groups": ["All"] }))
        .await;
    stage.create(&key, "pods", json!({ "name": "pods", "ephemeral": true })).await;
    stage.create(&resource("v1", "OZSetupKey"), "ci", json!({ "name": "ci" })).await;
    let mine = json!({ "secretKeyRef": { "name": "mine", "key": "k" } });
    stage.create(&resource("v1", "OZSetupKey"), "mine", mine).await;
    stage.create(&resource("v1", "OZRoutingPeer"), "router", json!({ "replicas": 1, "routes": ["10.1.0.0/16"] })).await;
    stage
        .create(&resource("v1alpha1", "NetworkRouter"), "edge", json!({ "dnsZoneRef": { "name": "prod.example" } }))
        .await;
    let spec = json!({ "networkRouterRef": { "name": "edge", "namespace": stage.namespace }, "serviceRef": { "name": "web" } });
    stage.create(&resource("v1alpha1", "NetworkResource"), "web", spec).await;

    // Nothing is there yet.
    let ends = async |object: &str, code: i32, says: &str| {
        ends(code, says, async || stage.run(&format!("diff {object}")).await).await;
    };
    ends("ozresource/db", 1, "network resource db would be created").await;
    ends("setupkey/pods", 1, "setup key pods would be created").await;
    ends("ozsetupkey/ci", 1, "setup key ci would be created").await;
    ends("networkrouter/edge", 1, "network edge would be created").await;
    ends("ozroutingpeer/router", 2, "waits for its OZGroup").await;
    ends("networkresource/web", 2, "waits for NetworkRouter").await;

    // All is in sync.
    let operator = stage.start().await;
    let settled = async |object: &str, items: &[&str]| {
        let found = eventually(SOON, async || {
            let ran = stage.run(&format!("diff {object}")).await;
            let kept: Vec<_> = ran.out.lines().filter_map(|line| line.strip_suffix(" is in sync")).collect();
            let is_all = items.iter().all(|item| kept.iter().any(|kept| kept.starts_with(item)));
            (ran.code == 0 && is_all).then_some(())
        });
        assert!(found.await.is_ok(), "{object}: {:?}", stage.run(&format!("diff {object}")).await);
    };
    settled("ozresource/db", &["network resource db"]).await;
    settled("setupkey/pods", &["setup key pods"]).await;
    settled("ozsetupkey/ci", &["setup key ci"]).await;
    settled("ozsetupkey/mine", &[]).await;
    let route = format!("network resource kubernetes {}/router 10.1.0.0/16", stage.namespace);
    settled("ozroutingpeer/router", &["network kubernetes", "setup key kubernetes", "network router", &route]).await;
    settled("networkrouter/edge", &["network edge", "network router"]).await;
    let record = format!("DNS record web.{}.prod.example A", stage.namespace);
    let web = stage.run("diff networkresource/web").await;
    assert!(web.out.contains(&record) || web.code != 0, "{web:?}");
    settled("networkresource/web", &["network resource"]).await;

    // The operator is away, and there is something to do.
    drop(operator);
    let edit = async |resource: &ApiResource, name: &str, spec: Value| {
        let patch = Patch::Merge(json!({ "spec": spec }));
        stage.api(resource).patch(name, &PatchParams::default(), &patch).await.unwrap();
    };
    edit(&db, "db", json!({ "address": "10.0.0.2" })).await;
    stage.run("diff ozresource/db").await.ends(1).says(&["network resource db would be changed", "~ address changed"]);
    edit(&key, "pods", json!({ "allowExtraDNSLabels": true })).await;
    stage.run("diff setupkey/pods").await.ends(1).says(&["would replace the setup key pods"]);
    edit(&resource("v1", "OZRoutingPeer"), "router", json!({ "routes": ["10.2.0.0/16"] })).await;
    let other = format!("network resource kubernetes {}/router 10.2.0.0/16 would be created", stage.namespace);
    stage.run("diff ozroutingpeer/router").await.ends(1).says(&[&other, &format!("{route} would be cleared")]);
    stage.api(&db).delete("db", &DeleteParams::default()).await.unwrap();
    stage.run("diff ozresource/db").await.ends(1).says(&["network resource db would be cleared"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_is_compared_paused_and_synced() {
    let stage = Stage::set().await;
    let _operator = stage.start().await;
    let policies = resource("v1", "OZPolicy");
    let spec = json!({ "name": "web", "sourceGroups": ["All"], "destinationGroups": ["All"], "protocols": ["tcp"], "ports": [80] });
    stage.create(&policies, "web", spec).await;
    stage.until("ozpolicy/web", "Reconciled").await;
    stage.run("diff ozpolicy/web").await.ends(0).says(&["policy web TCP is in sync"]);

    // Nothing is done while it is paused, and the plan shows what would be.
    stage.run("pause ozpolicy/web").await.ends(0);
    let patch = Patch::Merge(json!({ "spec": { "ports": [443] } }));
    stage.api(&policies).patch("web", &PatchParams::default(), &patch).await.unwrap();
    stage.run("status ozpolicy/web").await.ends(1).says(&["Paused"]);
    stage.run("diff ozpolicy/web").await.ends(1).says(&["policy web TCP would be changed", "~ ports changed"]);
    stage.run("resume ozpolicy/web").await.ends(0);
    stage.until("ozpolicy/web", "Reconciled").await;
    stage.run("diff ozpolicy/web").await.ends(0);

    stage.run("sync ozpolicy/web").await.ends(0);
    let synced = stage.api(&policies).get("web").await.unwrap();
    assert!(synced.annotations().contains_key("konverge.dev/reconcile-at"));

    // Code 2: the plugin could not do it.
    stage.run("sync ozpolicy/web --wait").await.ends(2).says(&["leave --wait out"]);
    stage.run("diff ozpolicy/nobody").await.ends(2).says(&["there is no ozpolicy/nobody"]);
    stage.run("convert ozpolicy/web").await.ends(2).says(&["v1alpha1 has no kind for policies"]);
    let mut without_token = stage.plugin();
    ran(without_token.env_remove("OZ_API_KEY").args(["diff", "ozpolicy/web"])).await.ends(2).says(&["OZ_API_KEY"]);
    let spec = json!({ "name": "db", "networkID": "n", "address": "10.0.0.1", "groups": ["All"] });
    stage.create(&resource("v1", "OZResource"), "db", spec).await;
    stage.run("diff ozresource/db").await.ends(2).says(&["waits for the network n"]);
    stage
        .run("doctor")
        .await
        .says(&["note operator there is no Deployment labelled app.kubernetes.io/name=openzro-operator"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_converted_group_takes_over_the_item_of_the_old_object() {
    let stage = Stage::set().await;
    let _operator = stage.start().await;
    let (old, new) = (resource("v1", "OZGroup"), resource("v1alpha1", "Group"));
    stage.create(&old, "devs", json!({ "name": "Developers" })).await;
    stage.until("ozgroup/devs", "Reconciled").await;
    let id = stage.api(&old).get("devs").await.unwrap().data["status"]["groupID"].clone();
    let converted = stage.run("convert ozgroup/devs").await.ends(0);
    let release = format!("kubectl konverge release ozgroup/devs -n {}", stage.namespace);
    converted.says(&[&release]);
    stage.run("release ozgroup/devs").await.ends(0);
    stage.delete(&old, "devs").await;
    stage.plane.apply(&converted.out).await.unwrap();
    stage.until("group/devs", "Reconciled").await;
    assert_eq!(stage.api(&new).get("devs").await.unwrap().data["status"]["groupID"], id);
    // The new object adopted the group, so only the platform team can allow that it goes with the object.
    stage.delete(&new, "devs").await;
    assert!(stage.names().await.contains("Groups Developers"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_objects_of_a_tenant_are_compared_with_its_own_account() {
    let mut stage = Stage::set().await;
    let (token, tenant) = (stage.double.account().tokens["admin"].clone(), stage.namespace.clone());
    let file = stage.plane.run_directory().path().join("tenant");
    std::fs::write(&file, &token).unwrap();
    let account = format!("--account={tenant}={},{}", file.display(), stage.double.url());
    let _operator = stage.start_with(&[&account]).await;
    // The plugin takes the address of the tenant's server from the operator's Deployment.
    let labels = json!({ "app.kubernetes.io/name": program::PROGRAM });
    let arguments =
        ["--openzro-management-url=https://openzro.example.com", "--openzro-api-key-file=/etc/openzro/token", &account];
    let container = json!({ "name": "manager", "image": "example.com/operator", "args": arguments });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "own", "namespace": stage.home, "labels": labels },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": { "containers": [container] } },
        },
    });
    stage.plane.apply(&deployment.to_string()).await.unwrap();
    let (groups, policies) = (resource("v1", "OZGroup"), resource("v1", "OZPolicy"));
    stage.create(&groups, "devs", json!({ "name": "Developers" })).await;
    stage.until("ozgroup/devs", "Reconciled").await;
    let whose = format!("in the account of namespace {tenant}");
    stage.run("why ozgroup/devs").await.ends(0).says(&["the group Developers", &whose]);
    stage.run("doctor").await.says(&[&format!("namespace {tenant} has an account of its own at")]);

    // The person has the token of the tenant.
    stage.token = token;
    let run = async |line: &str| {
        let mut command = stage.plugin();
        ran(command.env_remove("OPENZRO_MANAGEMENT_URL").args(["-n", &tenant]).args(line.split(' '))).await
    };
    let asked = format!("{} is asked as the account of namespace {tenant}", stage.double.url());
    run("diff ozgroup/devs").await.ends(0).says(&[&asked, "group Developers is in sync"]);
    let spec = json!({ "name": "web", "sourceGroups": ["Developers"], "destinationGroups": ["All"], "protocols": ["tcp"], "ports": [80] });
    let policy = stage.create(&policies, "web", spec).await;
    let annotation = Patch::Merge(json!({ "metadata": { "annotations": { "konverge.dev/account": tenant } } }));
    stage.api(&policies).patch(&policy.name_any(), &PatchParams::default(), &annotation).await.unwrap();
    stage.until("ozpolicy/web", "Reconciled").await;
    run("diff ozpolicy/web").await.ends(0).says(&[&asked, "policy web TCP is in sync"]);

    // Leftovers are those of the account of the namespace.
    let namespaces = Api::<k8s_openapi::api::core::v1::Namespace>::all(stage.client.clone());
    let cluster = namespaces.get("kube-system").await.unwrap().uid().unwrap();
    let credential = Credential::value(SecretValue::from(stage.token.clone()));
    let account = OpenZro::new(&OpenZroConfig::new(stage.double.url(), credential).unwrap());
    let Value::Object(left) = fields("left", &format!("konverge={cluster}/gone"), &json!({})) else { unreachable!() };
    account.create(&Collection::Networks, &left).await.unwrap();
    run("leftovers").await.ends(1).says(&[&asked, "network left"]);
    run("leftovers --delete").await.ends(0).says(&["network left", "deleted"]);
    assert!(account.list(&Collection::Networks).await.unwrap().is_empty());
    assert_eq!(account.list(&Collection::Policies).await.unwrap().len(), 1, "that of the object");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_who_may_not_list_policies_sees_the_plan_of_a_resource_that_names_none() {
    let stage = Stage::set().await;
    let network = stage.network("n", "").await;
    for (name, policy) in [("plain", ""), ("guarded", "db-access")] {
        let spec = json!({ "name": name, "networkID": network, "address": "10.0.0.1", "groups": ["All"], "policyName": policy });
        stage.create(&resource("v1", "OZResource"), name, spec).await;
    }
    let namespace = &stage.namespace;
    let role = format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{ name: person }}\nrules:\n\
         - {{ apiGroups: [\"\"], resources: [namespaces], verbs: [get] }}\n\
         - {{ apiGroups: [openzro.io], resources: [ozresources, ozroutingpeers, ozgroups], verbs: [get, list] }}\n---\n\
         apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {{ name: person }}\n\
         roleRef: {{ apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: person }}\n\
         subjects: [{{ kind: ServiceAccount, name: person, namespace: {namespace} }}]\n",
    );
    stage.plane.apply(&role).await.unwrap();
    let person = stage.plane.service_account_kubeconfig(namespace, "person").await.unwrap();
    let diff = async |object: &str| {
        let mut command = stage.plugin();
        command.env("KUBECONFIG", &person).args(["-n", namespace, "diff", object]);
        ran(&mut command).await
    };
    ends(1, "network resource plain would be created", async || diff("ozresource/plain").await).await;
    ends(2, "you may not list ozpolicies", async || diff("ozresource/guarded").await).await;
}
