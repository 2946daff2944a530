//! The chart on a control plane: installed, upgraded, rolled back and uninstalled, and an operator under its account.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    time::Duration,
};

use k8s_openapi::{
    api::{
        admissionregistration::v1::MutatingWebhookConfiguration,
        apps::v1::Deployment,
        batch::v1::Job,
        core::v1::{Secret, ServiceAccount},
        rbac::v1::{ClusterRole, PolicyRule, Role},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use konverge_e2e::{binary, followed_deployment};
use konverge_manage::api::v1::{OZGroup, OZGroupSpec};
use konverge_openzro_testing::Double;
use konverge_testkit::{
    AuditLog, ControlPlane, Options, Process, ProcessSpec, RoleUse, client_for, free_port, http_get,
    until_true as until,
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{arguments, chart, object, objects, run, said};

/// Far longer than anything here takes, on a machine that does other things, too.
const SOON: Duration = Duration::from_mins(2);

const VAULT: &str = "push.vault.address=https://vault.example.com:8200";

/// A control plane, and Helm on it.
struct Stage {
    plane: ControlPlane,
    client: Client,
    home: String,
}

impl Stage {
    async fn set() -> Self {
        let plane = ControlPlane::start(Options::ours()).await.unwrap();
        let client = plane.admin_client().await.unwrap();
        let home = plane.namespace("konverge").await.unwrap();
        Self { plane, client, home }
    }

    /// Runs a command of Helm in the operators' namespace.
    fn helm(&self, arguments: &[&str]) -> String {
        let kubeconfig = self.plane.kubeconfig().to_str().unwrap();
        said(&[arguments, &["--kubeconfig", kubeconfig, "--namespace", &self.home]].concat()).unwrap()
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.home)
    }

    async fn deployment(&self, name: &str) -> Option<Value> {
        let found = self.api::<Deployment>().get_opt(name).await.unwrap();
        found.map(|found| serde_json::to_value(found).unwrap())
    }

    /// The definition of `VaultPush`, by its version's schema.
    async fn definition(&self) -> Option<Value> {
        let api = Api::<CustomResourceDefinition>::all(self.client.clone());
        let found = api.get_opt("vaultpushes.konverge.dev").await.unwrap();
        found.map(|found| serde_json::to_value(found).unwrap())
    }
}

/// The chart as an earlier release would have it: another version, a definition that lacks a field, and one value less.
fn previous_chart(folder: &Path) {
    let copy = |from: &Path, to: &Path| {
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(from, to).unwrap();
    };
    let mut folders = vec![chart()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                copy(&path, &folder.join(path.strip_prefix(chart()).unwrap()));
            }
        }
    }
    let about = folder.join("Chart.yaml");
    let mut chart: Value = serde_saphyr::from_str(&fs::read_to_string(&about).unwrap()).unwrap();
    chart["version"] = "0.0.9".into();
    chart["appVersion"] = "0.0.9".into();
    fs::write(about, chart.to_string()).unwrap();
    let file = folder.join("files/crds/vaultpushes.yaml");
    let mut definition: Value = serde_saphyr::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    definition["spec"]["names"]["shortNames"] = json!(["oldname"]);
    fs::write(file, definition.to_string()).unwrap();
}

fn image(deployment: &Value) -> &str {
    deployment["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_installed_upgraded_rolled_back_and_uninstalled() {
    let stage = Stage::set().await;
    let folder = tempfile::tempdir().unwrap();
    previous_chart(folder.path());
    let (previous, current) = (folder.path().to_str().unwrap(), chart());
    let current = current.to_str().unwrap();

    let notes = stage.helm(&["install", "release", previous]);
    assert!(notes.contains("roll restarts a workload") && notes.contains("helm test release"), "{notes}");
    let before = stage.deployment("release-konverge-roll").await.unwrap();
    assert_eq!((image(&before), &before["spec"]["replicas"]), ("konverge:0.0.9", &json!(2)));
    assert_eq!(stage.definition().await.unwrap()["spec"]["names"]["shortNames"], json!(["oldname"]));
    assert!(stage.deployment("release-konverge-push").await.is_none());

    stage.helm(&[
        "upgrade",
        "release",
        current,
        "--set",
        "roll.replicaCount=3",
        "--set",
        "push.enabled=true",
        "--set",
        VAULT,
    ]);
    let after = stage.deployment("release-konverge-roll").await.unwrap();
    assert_eq!((image(&after), &after["spec"]["replicas"]), ("konverge:0.1.0", &json!(3)));
    assert_eq!(after["spec"]["selector"], before["spec"]["selector"], "a selector cannot be changed");
    assert!(stage.deployment("release-konverge-push").await.is_some());
    assert_ne!(
        stage.definition().await.unwrap()["spec"]["names"]["shortNames"],
        json!(["oldname"]),
        "an upgrade brings the new definition"
    );

    stage.helm(&["rollback", "release", "1"]);
    let back = stage.deployment("release-konverge-roll").await.unwrap();
    assert_eq!((image(&back), &back["spec"]["replicas"]), ("konverge:0.0.9", &json!(2)));
    assert!(stage.deployment("release-konverge-push").await.is_none(), "what the upgrade added is gone");

    stage.helm(&["uninstall", "release"]);
    assert!(stage.deployment("release-konverge-roll").await.is_none());
    assert!(stage.api::<ServiceAccount>().get_opt("release-konverge-roll").await.unwrap().is_none());
    let ours = ListParams::default().labels("app.kubernetes.io/part-of=konverge");
    assert!(Api::<ClusterRole>::all(stage.client.clone()).list(&ours).await.unwrap().items.is_empty());
    assert!(stage.api::<Role>().list(&ours).await.unwrap().items.is_empty());
    assert!(stage.definition().await.is_some(), "and with the definition all objects of its kind");

    stage.helm(&["install", "release", current]);
    assert!(stage.definition().await.is_some(), "a release of that name takes it over again");
    let kubeconfig = stage.plane.kubeconfig().to_str().unwrap();
    let again = run(&["install", "release", current, "--kubeconfig", kubeconfig, "--namespace", &stage.home]);
    assert!(!again.status.success(), "a name is in use once");
}

/// The rules of the release's roles for a part.
async fn rules(stage: &Stage, part: &str) -> Vec<PolicyRule> {
    let of_part = ListParams::default().labels(&format!("app.kubernetes.io/component={part}"));
    let cluster = Api::<ClusterRole>::all(stage.client.clone()).list(&of_part).await.unwrap();
    let home = stage.api::<Role>().list(&of_part).await.unwrap();
    let cluster = cluster.items.into_iter().flat_map(|role| role.rules.unwrap_or_default());
    cluster.chain(home.items.into_iter().flat_map(|role| role.rules.unwrap_or_default())).collect()
}

/// The operator of a part as the chart's container starts it: with its arguments, and the token of its account. Only the ports and the folder of its
/// mounted files are others.
async fn start(stage: &Stage, part: &str, files: &Path) -> (Process, String) {
    let account = format!("release-konverge-{part}");
    let deployment = stage.deployment(&account).await.unwrap();
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["serviceAccountName"], account);
    let container = &pod["containers"][0];
    let program = container["command"][0].as_str().unwrap().strip_prefix("/usr/bin/").unwrap();
    let address = format!("127.0.0.1:{}", free_port().unwrap());
    let given: Vec<String> = arguments(container)
        .into_iter()
        .map(|argument| {
            let mounted = container["volumeMounts"][0]["mountPath"].as_str();
            let argument = mounted.map_or(argument.clone(), |path| argument.replace(path, files.to_str().unwrap()));
            match argument.split_once("-bind-address=:") {
                Some(("--health-probe", _)) => format!("--health-probe-bind-address={address}"),
                Some((name, _)) => format!("{name}-bind-address=127.0.0.1:{}", free_port().unwrap()),
                None => argument,
            }
        })
        .collect();
    let kubeconfig = stage.plane.service_account_kubeconfig(&stage.home, &account).await.unwrap();
    let spec = ProcessSpec::new(program, binary(program).unwrap()).args(&given).arg("--kubeconfig").arg(kubeconfig);
    let mut process = Process::start(stage.plane.run_directory(), spec).unwrap();
    let is_ready = || async { http_get(&address, "/readyz").await.is_ok_and(|(code, _)| code == 200) };
    process.ready("become ready", SOON, is_ready).await.unwrap();
    (process, address)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_works_under_the_account_and_the_roles_of_its_release() {
    let stage = Stage::set().await;
    let current = chart();
    stage.helm(&["install", "release", current.to_str().unwrap(), "--set", "roll.extraArgs={--min-interval=0s}"]);
    let log = stage.plane.audit_log().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (mut process, address) = start(&stage, "roll", folder.path()).await;

    let shop = stage.plane.namespace("shop").await.unwrap();
    let (secrets, deployments) = (
        Api::<Secret>::namespaced(stage.client.clone(), &shop),
        Api::<Deployment>::namespaced(stage.client.clone(), &shop),
    );
    let fill = async |value: &str| {
        let secret =
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "db" }, "stringData": { "k": value } });
        secrets.patch("db", &PatchParams::apply("user"), &Patch::Apply(secret)).await.unwrap();
    };
    fill("one").await;
    let deployment = followed_deployment("web", "db");
    deployments.patch("web", &PatchParams::apply("user"), &Patch::Apply(deployment)).await.unwrap();
    let annotations = async || deployments.get("web").await.unwrap().metadata.annotations.unwrap_or_default();
    until("its baseline is recorded", async || Ok(annotations().await.contains_key("roll.konverge.dev/record"))).await;
    fill("two").await;
    let stamped = async || {
        let spec = deployments.get("web").await?.spec.unwrap_or_default();
        let stamps: BTreeMap<_, _> =
            spec.template.metadata.and_then(|metadata| metadata.annotations).unwrap_or_default();
        Ok(stamps.contains_key("roll.konverge.dev/content"))
    };
    until("it is rolled", stamped).await;

    assert_eq!(helm_test(&stage, &address, "60"), (Some(0), format!("http://{address}/readyz is ready\n")));
    process.terminate(SOON).await.unwrap();
    let (code, said) = helm_test(&stage, &address, "1");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.starts_with(&format!("http://{address}/readyz is not ready: ")), "{said}");
    nothing_was_refused(&stage, &log, "roll").await;
}

/// Runs the command of the pod of `helm test`, with the address of the operator in place of its Service and with this timeout, as the pod does: without
/// a token. Returns its exit code and its output.
fn helm_test(stage: &Stage, address: &str, timeout: &str) -> (Option<i32>, String) {
    let hooks = objects(&stage.helm(&["get", "hooks", "release"]));
    let pod = &object(&hooks, "Pod", "release-konverge-test")["spec"];
    assert_eq!(pod["automountServiceAccountToken"], false);
    let container = &pod["containers"][0];
    assert_eq!(container["command"], json!(["/usr/bin/konverge"]));
    let service = format!("release-konverge-roll.{}.svc:8080", stage.home);
    let here = |argument: String| argument.replace(&service, address).replace("=60", &format!("={timeout}"));
    let given: Vec<_> = arguments(container).into_iter().map(here).collect();
    assert_eq!(given.last().unwrap(), &format!("http://{address}/readyz"));
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_konverge"));
    let output = command.env_clear().args(&given).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

/// Checks that the account of a part has sent requests, and says which of them its roles did not allow.
async fn refused(stage: &Stage, log: &AuditLog, part: &str) -> BTreeSet<String> {
    log.catch_up(&stage.client).await.unwrap();
    let account = format!("system:serviceaccount:{}:release-konverge-{part}", stage.home);
    let asked = log.entries_of(&account).unwrap();
    assert!(!asked.is_empty());
    RoleUse::of(&asked, &rules(stage, part).await).refused
}

async fn nothing_was_refused(stage: &Stage, log: &AuditLog, part: &str) {
    assert_eq!(refused(stage, log, part).await, BTreeSet::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_account_of_pull_may_write_only_secrets_that_request_something_of_it() {
    let stage = Stage::set().await;
    let current = chart();
    let settings = "pull.enabled=true,pull.secretSourcesOnly=true,roll.enabled=false";
    stage.helm(&["install", "release", current.to_str().unwrap(), "--set", settings]);
    let shop = stage.plane.namespace("shop").await.unwrap();
    let of_user = Api::<Secret>::namespaced(stage.client.clone(), &shop);
    let kubeconfig = stage.plane.service_account_kubeconfig(&stage.home, "release-konverge-operator").await.unwrap();
    let of_pull = Api::<Secret>::namespaced(client_for(&kubeconfig).await.unwrap(), &shop);
    let secret = |name: &str, annotations: &Value| json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "annotations": annotations } });
    let write = async |name: &str, annotations: &Value| {
        let mut secret = secret(name, annotations);
        secret["stringData"] = json!({ "k": "v" });
        of_pull.patch(name, &PatchParams::apply("zopp-operator").force(), &Patch::Apply(secret)).await
    };
    let record = json!({ "pull.konverge.dev/record": "{}" });
    let is_refused = |error: kube::Error| {
        let text = error.to_string();
        assert!(text.contains("pull may write only Secrets that it has made"), "{text}");
    };
    // The API server heeds a policy a moment after it was made.
    until("the policy holds", async || Ok(write("new", &json!({})).await.is_err())).await;
    is_refused(write("new", &json!({ "pull.konverge.dev/from": "vault://secret/db" })).await.unwrap_err());
    write("made", &record).await.unwrap();
    write("made", &json!({})).await.unwrap();

    for (name, annotations, is_allowed) in [
        ("none", json!({}), false),
        ("off", json!({ "zopp.dev/sync": "false" }), false),
        ("sync", json!({ "zopp.dev/sync": "true" }), true),
        ("from", json!({ "pull.konverge.dev/from": "vault://secret/db" }), true),
        ("adopt", json!({ "pull.konverge.dev/adopt": "true" }), true),
        ("original", json!({ "zopp.dev/managed": "true" }), true),
    ] {
        let user = Patch::Apply(secret(name, &annotations));
        of_user.patch(name, &PatchParams::apply("user"), &user).await.unwrap();
        // An annotation of its own does not help it.
        match write(name, &record).await {
            Ok(_) => assert!(is_allowed, "{name}"),
            Err(error) => {
                assert!(!is_allowed, "{name}: {error}");
                is_refused(error);
                is_refused(of_pull.delete(name, &DeleteParams::default()).await.unwrap_err());
            }
        }
    }
    of_pull.delete("original", &DeleteParams::default()).await.unwrap();
    is_refused(of_pull.delete("made", &DeleteParams::default()).await.unwrap_err());
    of_user.delete("none", &DeleteParams::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn manage_works_under_the_account_and_the_roles_of_its_release() {
    let stage = Stage::set().await;
    let openzro = Double::start().await.unwrap();
    let url = format!("manage.managementURL={}", openzro.url());
    // The address of the webhooks is fixed in a pod.
    let flags = format!("manage.extraArgs={{--webhook-bind-address=127.0.0.1:{},--interval=1}}", free_port().unwrap());
    let current = chart();
    let sets = ["roll.enabled=false", "manage.enabled=true", &url, &flags];
    let sets = sets.iter().flat_map(|set| ["--set", set]);
    let install: Vec<_> = ["install", "release", current.to_str().unwrap()].into_iter().chain(sets).collect();
    stage.helm(&install);
    let log = stage.plane.audit_log().unwrap();
    let mounted = tempfile::tempdir().unwrap();
    fs::write(mounted.path().join("OZ_API_KEY"), &openzro.account().tokens["admin"]).unwrap();
    let (mut process, _) = start(&stage, "manage", mounted.path()).await;

    let shop = stage.plane.namespace("shop").await.unwrap();
    let groups = Api::<OZGroup>::namespaced(stage.client.clone(), &shop);
    let group = OZGroup::new("servers", OZGroupSpec { name: format!("{shop}/servers") });
    groups.create(&PostParams::default(), &group).await.unwrap();
    let has_id = async || Ok(groups.get("servers").await?.status.is_some_and(|status| status.group_id.is_some()));
    until("the group is in openZro", has_id).await;
    let configurations = Api::<MutatingWebhookConfiguration>::all(stage.client.clone());
    let has_authority = async || {
        let webhooks = configurations.get("openzro-operator").await?.webhooks.unwrap_or_default();
        Ok(!webhooks.is_empty() && webhooks.iter().all(|webhook| webhook.client_config.ca_bundle.is_some()))
    };
    until("the API server trusts the webhooks", has_authority).await;
    groups.delete("servers", &DeleteParams::default()).await.unwrap();
    until("the group is gone", async || Ok(groups.get_opt("servers").await?.is_none())).await;
    process.terminate(SOON).await.unwrap();
    nothing_was_refused(&stage, &log, "manage").await;
}

/// An uninstall begins with this: the chart scales the operator down and adds a Job. The test runs the Job as its container would be run.
#[tokio::test(flavor = "multi_thread")]
async fn the_drain_job_of_manage_releases_all_objects_and_leaves_openzro_as_it_is() {
    let stage = Stage::set().await;
    let openzro = Double::start().await.unwrap();
    let url = format!("manage.managementURL={}", openzro.url());
    let flags = format!("manage.extraArgs={{--webhook-bind-address=127.0.0.1:{},--interval=1}}", free_port().unwrap());
    let current = chart();
    let helm = |verb: &str, more: &[&str]| {
        let sets = ["roll.enabled=false", "manage.enabled=true", &url, &flags];
        let sets = sets.iter().chain(more).flat_map(|set| ["--set", set]);
        let command: Vec<_> = [verb, "release", current.to_str().unwrap()].into_iter().chain(sets).collect();
        stage.helm(&command);
    };
    helm("install", &[]);
    let mounted = tempfile::tempdir().unwrap();
    let account = openzro.account();
    fs::write(mounted.path().join("OZ_API_KEY"), &account.tokens["admin"]).unwrap();
    let (mut process, _) = start(&stage, "manage", mounted.path()).await;
    let shop = stage.plane.namespace("shop").await.unwrap();
    let groups = Api::<OZGroup>::namespaced(stage.client.clone(), &shop);
    for name in ["kept", "going"] {
        groups
            .create(&PostParams::default(), &OZGroup::new(name, OZGroupSpec { name: format!("{shop}/{name}") }))
            .await
            .unwrap();
        let is_held = async || Ok(!groups.get(name).await?.metadata.finalizers.unwrap_or_default().is_empty());
        until("the group has a finalizer", is_held).await;
        let has_id = async || Ok(groups.get(name).await?.status.is_some_and(|status| status.group_id.is_some()));
        until("the group is in openZro", has_id).await;
    }
    process.terminate(SOON).await.unwrap();
    groups.delete("going", &DeleteParams::default()).await.unwrap();
    assert!(groups.get_opt("going").await.unwrap().is_some(), "nobody releases it");

    helm("upgrade", &["manage.drain=true"]);
    let name = "release-konverge-manage";
    assert_eq!(stage.deployment(name).await.unwrap()["spec"]["replicas"], 0);
    let job = serde_json::to_value(stage.api::<Job>().get(&format!("{name}-drain-2")).await.unwrap()).unwrap();
    let pod = &job["spec"]["template"]["spec"];
    assert_eq!(pod["serviceAccountName"], name);
    let container = &pod["containers"][0];
    let program = container["command"][0].as_str().unwrap().strip_prefix("/usr/bin/").unwrap();
    let log = stage.plane.audit_log().unwrap().from_now().unwrap();
    let kubeconfig = stage.plane.service_account_kubeconfig(&stage.home, name).await.unwrap();
    let spec = ProcessSpec::new("drain", binary(program).unwrap()).args(arguments(container)).arg("--kubeconfig");
    let mut drain = Process::start(stage.plane.run_directory(), spec.arg(kubeconfig)).unwrap();
    let status = drain.ended(SOON).await.unwrap();
    assert!(status.success(), "{status}: {}", drain.logged());

    until("the deleted group is gone", async || Ok(groups.get_opt("going").await?.is_none())).await;
    let kept = groups.get("kept").await.unwrap().metadata;
    assert_eq!(kept.finalizers.unwrap_or_default(), Vec::<String>::new());
    assert!(
        kept.annotations.unwrap().contains_key("konverge.dev/remote"),
        "an operator that comes back goes on with its item"
    );
    // Without the Gateway API in the values, its kinds are asked for and left out.
    assert_eq!(
        refused(&stage, &log, "manage").await.iter().find(|asked| !asked.contains(" gateway.networking.k8s.io/")),
        None
    );
    let token = konverge_openzro::Credential::value(account.tokens["admin"].clone().into());
    let dashboard =
        konverge_openzro::OpenZro::new(&konverge_openzro::OpenZroConfig::new(openzro.url(), token).unwrap());
    let left = dashboard.list(&konverge_openzro::Collection::Groups).await.unwrap();
    let left: Vec<_> = left.iter().filter_map(|group| group.raw()["name"].as_str()).collect();
    assert_eq!(left, ["All".to_owned(), format!("{shop}/kept"), format!("{shop}/going")]);
    stage.helm(&["uninstall", "release"]);
}
