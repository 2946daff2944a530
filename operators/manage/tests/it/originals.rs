//! The image swapped and nothing else: the definitions and the role of openzro-operator stay, and so do the objects that it wrote.
//!
//! Its definitions are made of ours here: section 1 of its specification lists the fields, and ours have all of them. Its roles and the configurations
//! of its webhooks are those of its chart.

use std::collections::BTreeSet;

use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        apps::v1::Deployment,
        coordination::v1::Lease,
        core::v1::{Pod, Secret, ServiceAccount},
    },
};
use konverge::kube::{
    Api, Client, Resource,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use konverge_manage::{
    api::{
        definitions,
        v1::{OZGroup, OZPolicy, OZResource, OZRoutingPeer, OZSetupKey},
        v1alpha1::{Group, SetupKey, SidecarProfile},
    },
    program::PROGRAM,
};
use konverge_openzro::Collection;
use konverge_testkit::free_port;
use serde_json::{Value, from_value, json};

use crate::stage::Stage;

/// Fields of our definitions that the original's lack, by kind: in the spec, and in the status.
const ADDED: [(&str, &[&str], &[&str]); 5] = [
    ("OZPolicy", &["enabled", "rules"], &["rulePolicyIDs"]),
    ("OZResource", &["networkRef", "description", "type"], &[]),
    ("OZRoutingPeer", &["routes", "groups"], &["routeResourceIDs"]),
    (
        "OZSetupKey",
        &["name", "type", "expiresIn", "usageLimit", "autoGroups", "ephemeral", "allowExtraDNSLabels"],
        &["setupKeyID"],
    ),
    ("SetupKey", &["allowExtraDNSLabels"], &[]),
];

fn remove(value: &mut Value, names: &[&str]) {
    let fields = value.as_object_mut().unwrap();
    for name in names {
        assert!(fields.remove(*name).is_some(), "our definition has no {name}");
    }
}

/// The definitions of the original.
fn of_original() -> Vec<Value> {
    let mut all: Vec<Value> = definitions().iter().map(|crd| serde_json::to_value(crd).unwrap()).collect();
    for definition in &mut all {
        let kind = definition["spec"]["names"]["kind"].as_str().unwrap().to_owned();
        let version = &mut definition["spec"]["versions"][0];
        let is_v1 = version["name"] == "v1";
        if is_v1 {
            remove(version, &["additionalPrinterColumns"]);
        }
        let fields = &mut version["schema"]["openAPIV3Schema"]["properties"];
        if let Some((_, of_spec, of_status)) = ADDED.iter().find(|(of, ..)| *of == kind) {
            remove(&mut fields["spec"]["properties"], of_spec);
            remove(&mut fields["status"]["properties"], of_status);
        }
        match kind.as_str() {
            "OZResource" => fields["spec"]["required"].as_array_mut().unwrap().push(json!("networkID")),
            "OZSetupKey" => {
                remove(&mut fields["spec"], &["x-kubernetes-validations"]);
                fields["spec"]["required"] = json!(["secretKeyRef"]);
            }
            _ => {}
        }
        if is_v1 {
            let status = &mut fields["status"]["properties"];
            remove(status, &["observedGeneration"]);
            // A list without keys: a client that writes one condition writes all.
            remove(&mut status["conditions"], &["x-kubernetes-list-type", "x-kubernetes-list-map-keys"]);
            remove(&mut status["conditions"]["items"]["properties"], &["observedGeneration"]);
        }
    }
    all
}

/// The roles of the original's chart, with a PAT Secret and without the Gateway API.
fn roles(namespace: &str) -> Vec<Value> {
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({ "apiGroups": [group], "resources": resources, "verbs": verbs });
    let kinds = [
        "ozgroups",
        "ozresources",
        "ozroutingpeers",
        "ozpolicies",
        "setupkeys",
        "groups",
        "networkrouters",
        "networkresources",
        "sidecarprofiles",
    ];
    let (read, status) = (["get", "list", "watch"], ["get", "patch", "update"]);
    let all = ["get", "patch", "update", "list", "watch", "create", "delete"];
    let below = |part: &str| kinds.iter().map(|kind| format!("{kind}/{part}")).collect::<Vec<_>>();
    let of_cluster = json!([
        rule("openzro.io", &["ozsetupkeys"], &read),
        rule("openzro.io", &["ozsetupkeys/finalizers"], &["update"]),
        rule("openzro.io", &["ozsetupkeys/status"], &status),
        rule("openzro.io", &kinds, &all),
        { "apiGroups": ["openzro.io"], "resources": below("status"), "verbs": status },
        { "apiGroups": ["openzro.io"], "resources": below("finalizers"), "verbs": ["update"] },
        rule("", &["services"], &["get", "list", "watch", "update", "patch"]),
        rule("", &["services/finalizers"], &["update"]),
        rule("", &["namespaces", "pods"], &read),
        rule("apps", &["deployments"], &all),
        rule("", &["secrets"], &all),
    ]);
    let of_namespace = json!([
        rule("", &["configmaps"], &all),
        rule("coordination.k8s.io", &["leases"], &all),
        rule("", &["events"], &["create", "patch"]),
    ]);
    let subjects = json!([{ "kind": "ServiceAccount", "name": PROGRAM, "namespace": namespace }]);
    let object = |kind: &str, more: Value| {
        let mut object =
            json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": { "name": PROGRAM } });
        object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        if !kind.starts_with("Cluster") {
            object["metadata"]["namespace"] = json!(namespace);
        }
        object
    };
    let of = |kind: &str| json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": PROGRAM });
    vec![
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": PROGRAM, "namespace": namespace } }),
        object("ClusterRole", json!({ "rules": of_cluster })),
        object("ClusterRoleBinding", json!({ "roleRef": of("ClusterRole"), "subjects": subjects })),
        object("Role", json!({ "rules": of_namespace })),
        object("RoleBinding", json!({ "roleRef": of("Role"), "subjects": subjects })),
    ]
}

/// The definitions and roles of the original, as one manifest.
fn manifest(namespace: &str) -> String {
    let all: Vec<_> = of_original().into_iter().chain(roles(namespace)).map(|object| object.to_string()).collect();
    all.join("\n---\n")
}

/// The objects of a kind as they are stored, in this namespace if it is given.
fn stored<K: Resource<DynamicType = ()>>(client: &Client, namespace: Option<&str>) -> Api<DynamicObject> {
    let resource = ApiResource::erase::<K>(&());
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// Waits until an object as stored says so in a condition, and returns its status.
async fn says(stage: &Stage, api: &Api<DynamicObject>, name: &str, expected: (&str, &str, &str)) -> Value {
    let found = async || {
        let object = api.get(name).await.unwrap();
        let conditions = object.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let fields = |condition: &Value| {
            ["type", "status", "reason"].map(|field| condition[field].as_str().unwrap_or_default().to_owned())
        };
        conditions.iter().any(|condition| fields(condition) == [expected.0, expected.1, expected.2])
    };
    stage.until(&format!("{name} says {expected:?}"), found).await;
    api.get(name).await.unwrap().data["status"].clone()
}

/// The names of the fields of a status and of its conditions.
fn names(status: &Value) -> (BTreeSet<&str>, BTreeSet<&str>) {
    let fields = status.as_object().unwrap().keys().map(String::as_str).collect();
    let conditions = status["conditions"].as_array().unwrap();
    let of_conditions =
        conditions.iter().flat_map(|condition| condition.as_object().unwrap().keys().map(String::as_str)).collect();
    (fields, of_conditions)
}

#[tokio::test(flavor = "multi_thread")]
async fn under_the_definitions_and_the_role_of_openzro_operator_each_status_has_its_fields() {
    let stage = Stage::with(manifest).await;
    let group_id = stage.by_hand(&Collection::Groups, json!({ "name": "old" })).await;
    let condition = json!({ "type": "Ready", "status": "True", "lastProbeTime": "2026-01-02T03:04:05Z",
        "lastTransitionTime": "2026-01-02T03:04:05Z" });
    let groups = stage.api::<OZGroup>();
    let object =
        json!({ "metadata": { "name": "old", "finalizers": ["openzro.io/group-cleanup"] }, "spec": { "name": "old" } });
    let status = json!({ "groupID": group_id, "conditions": [condition] });
    stage.create(&groups, &from_value(object).unwrap()).await;
    let by_original = PatchParams { field_manager: Some("manager".to_owned()), ..PatchParams::default() };
    groups.patch_status("old", &by_original, &Patch::Merge(json!({ "status": status }))).await.unwrap();

    let operator = stage.start(&["--cluster-name=prod"]).await;
    let namespaced = Some(stage.namespace.as_str());
    let (groups_stored, policies) =
        (stored::<OZGroup>(&stage.client, namespaced), Api::<OZPolicy>::all(stage.client.clone()));
    let ready = ("Ready", "True", "Reconciled");
    let standard: BTreeSet<_> = ["type", "status", "reason", "message", "lastTransitionTime"].into();
    let status = says(&stage, &groups_stored, "old", ready).await;
    assert_eq!(names(&status), (["conditions", "groupID"].into(), standard.clone()), "{status}");
    assert_eq!(status["groupID"], *group_id);

    // A fault is said there, too, and its message is replaced as a whole once the fault is mended.
    let policy = json!({ "metadata": { "name": stage.namespace }, "spec": { "name": "web", "sourceGroups": ["old"], "ports": [443] } });
    stage.create(&policies, &from_value(policy).unwrap()).await;
    let policies_stored = stored::<OZPolicy>(&stage.client, None);
    let status = says(&stage, &policies_stored, &stage.namespace, ("Ready", "False", "Incomplete")).await;
    assert!(status.to_string().contains("destinationGroups"), "{status}");
    stage.patch(&policies, &stage.namespace, json!({ "spec": { "destinationGroups": ["old"] } })).await;
    let status = says(&stage, &policies_stored, &stage.namespace, ready).await;
    assert_eq!(status["conditions"].as_array().unwrap().len(), 1, "{status}");
    assert_eq!(names(&status).0, ["conditions", "tcpPolicyID", "udpPolicyID"].into());

    // A routing peer with all its parts, without the budget that the role does not allow.
    stage
        .create(&stage.api::<OZRoutingPeer>(), &from_value(json!({ "metadata": { "name": "router" } })).unwrap())
        .await;
    let peers = stored::<OZRoutingPeer>(&stage.client, namespaced);
    let status = says(&stage, &peers, "router", ("Ready", "False", "WaitingForPods")).await;
    assert!(stage.api::<Deployment>().get_opt("router").await.unwrap().is_some());
    assert_eq!(names(&status).0, ["conditions", "networkID", "routerID", "setupKeyID"].into());
    let spec =
        json!({ "name": "db", "networkID": status["networkID"], "address": "10.0.0.1", "groups": ["Databases"] });
    let resource = json!({ "metadata": { "name": "db" }, "spec": spec });
    stage.create(&stage.api::<OZResource>(), &from_value(resource).unwrap()).await;
    let status = says(&stage, &stored::<OZResource>(&stage.client, namespaced), "db", ready).await;
    assert_eq!(names(&status).0, ["conditions", "groups", "networkResourceID"].into());

    let mut secret = Secret::default();
    secret.metadata.name = Some("mine".to_owned());
    secret.string_data = Some([("k".to_owned(), "A2C8E62B-38F5-4553-B31E-DD66C696CEBB".to_owned())].into());
    stage.create(&stage.api::<Secret>(), &secret).await;
    let key = json!({ "metadata": { "name": "mine" }, "spec": { "secretKeyRef": { "name": "mine", "key": "k" } } });
    stage.create(&stage.api::<OZSetupKey>(), &from_value(key).unwrap()).await;
    says(&stage, &stored::<OZSetupKey>(&stage.client, namespaced), "mine", ready).await;

    // The newer kinds have the standard fields.
    stage
        .create(
            &stage.api::<Group>(),
            &from_value(json!({ "metadata": { "name": "g" }, "spec": { "name": "g" } })).unwrap(),
        )
        .await;
    let key = json!({ "metadata": { "name": "k" }, "spec": { "name": "k", "ephemeral": true } });
    stage.create(&stage.api::<SetupKey>(), &from_value(key).unwrap()).await;
    says(&stage, &stored::<SetupKey>(&stage.client, namespaced), "k", ready).await;
    let status = says(&stage, &stored::<Group>(&stage.client, namespaced), "g", ready).await;
    assert_eq!((&status["observedGeneration"], &status["conditions"][0]["observedGeneration"]), (&json!(1), &json!(1)));

    // Statuses that lack fields of ours are in sync: intervals at rest write nothing.
    let version = async |name: &str| groups_stored.get(name).await.unwrap().metadata.resource_version;
    let before = version("old").await;
    stage.settled(&operator).await;
    assert_eq!(version("old").await, before);

    // Deleted objects go, with what was made for them.
    stage.delete(&policies, &stage.namespace).await;
    stage.gone(&policies, &stage.namespace).await;
    stage.delete(&groups, "old").await;
    stage.gone(&groups, "old").await;
    assert!(stage.on_server(&Collection::Policies).await.is_empty());
    assert_eq!(stage.on_server(&Collection::Groups).await["old"]["id"], *group_id, "an adopted group stays");
}

/// The configurations of the original's chart, which lead to an operator on this machine. They send all pods and each deletion of an `OZGroup`.
async fn ask_for_decisions(stage: &Stage, port: u16, authority: &str) {
    let webhook = |name: &str, path: &str, more: Value| {
        let config = json!({ "url": format!("https://127.0.0.1:{port}{path}"), "caBundle": ByteString(authority.as_bytes().to_vec()) });
        let mut webhook = json!({ "name": name, "clientConfig": config, "failurePolicy": "Fail", "sideEffects": "None",
            "admissionReviewVersions": ["v1"] });
        webhook.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!([webhook])
    };
    let not_ours =
        json!({ "matchExpressions": [{ "key": "app.kubernetes.io/name", "operator": "NotIn", "values": [PROGRAM] }] });
    let pods = json!([{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"] }]);
    let pods = webhook("mpod-v1.openzro.io", "/mutate--v1-pod", json!({ "rules": pods, "objectSelector": not_ours }));
    let configuration = json!({ "metadata": { "name": "openzro-operator-mpod-webhook" }, "webhooks": pods });
    let mutating = Api::<MutatingWebhookConfiguration>::all(stage.client.clone());
    mutating.create(&PostParams::default(), &from_value(configuration).unwrap()).await.unwrap();
    let groups = json!([{ "apiGroups": ["openzro.io"], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["ozgroups"] }]);
    let groups = webhook("vozgroup-v1.openzro.io", "/validate-openzro-io-v1-ozgroup", json!({ "rules": groups }));
    let configuration = json!({ "metadata": { "name": "openzro-operator-vnbgroup-webhook" }, "webhooks": groups });
    let validating = Api::<ValidatingWebhookConfiguration>::all(stage.client.clone());
    validating.create(&PostParams::default(), &from_value(configuration).unwrap()).await.unwrap();
}

/// Creates a pod and does not keep it. Returns the names of its containers, or why it is refused.
async fn pod(stage: &Stage, annotations: Value) -> Result<Vec<String>, String> {
    let pod = json!({
        "metadata": { "name": "web", "labels": { "app": "web" }, "annotations": annotations },
        "spec": { "containers": [{ "name": "web", "image": "web:1" }], "automountServiceAccountToken": false },
    });
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let created = stage.api::<Pod>().create(&dry_run, &from_value(pod).unwrap()).await;
    let spec = created.map_err(|error| error.to_string())?.spec.unwrap();
    Ok(spec.init_containers.into_iter().flatten().chain(spec.containers).map(|container| container.name).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn under_the_arguments_and_the_webhooks_of_openzro_operator_pods_get_their_sidecars() {
    let stage = Stage::with(manifest).await;
    // The content that cert-manager puts into the Secret that the original's Deployment mounts.
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
    let file = stage.write("tls.crt", &certificate.pem());
    stage.write("tls.key", &key.serialize_pem());
    let folder = file.strip_suffix("/tls.crt").unwrap();
    let (port, metrics) = (free_port().unwrap(), free_port().unwrap());
    // The arguments of its Deployment, but for the ports of this machine.
    let arguments = [
        format!("--metrics-bind-address=:{metrics}"),
        "--leader-elect".to_owned(),
        format!("--webhook-cert-path={folder}"),
        "--cluster-name=prod".to_owned(),
        "--cluster-dns=svc.cluster.local".to_owned(),
        "--allow-automatic-policy-creation".to_owned(),
        "--default-labels=\"team=net, tier=infra\"".to_owned(),
        "--enable-webhooks=true".to_owned(),
        format!("--webhook-bind-address=127.0.0.1:{port}"),
    ];
    let _operator = stage.start(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let account = json!({ "metadata": { "name": "default" } });
    drop(stage.api::<ServiceAccount>().create(&PostParams::default(), &from_value(account).unwrap()).await);
    ask_for_decisions(&stage, port, &certificate.pem()).await;

    // The API server heeds a configuration after a moment.
    let annotated = || json!({ "openzro.io/setup-key": "mine" });
    let is_refused = async || pod(&stage, annotated()).await.is_err_and(|why| why.contains("names OZSetupKey mine"));
    stage.until("a pod that cannot be served is refused", is_refused).await;
    assert_eq!(pod(&stage, json!({})).await.unwrap(), ["web"]);
    let mut secret = Secret::default();
    secret.metadata.name = Some("mine".to_owned());
    secret.string_data = Some([("k".to_owned(), "A2C8E62B-38F5-4553-B31E-DD66C696CEBB".to_owned())].into());
    stage.create(&stage.api::<Secret>(), &secret).await;
    let key = json!({ "metadata": { "name": "mine" }, "spec": { "secretKeyRef": { "name": "mine", "key": "k" } } });
    stage.create(&stage.api::<OZSetupKey>(), &from_value(key).unwrap()).await;
    stage
        .until("an annotated pod gets its sidecar", async || {
            pod(&stage, annotated()).await == Ok(names_of(&["web", "openzro"]))
        })
        .await;

    // The one webhook of the original's configuration applies profiles, too.
    let key = json!({ "metadata": { "name": "k" }, "spec": { "name": "k", "ephemeral": true } });
    stage.create(&stage.api::<SetupKey>(), &from_value(key).unwrap()).await;
    let selector = json!({ "matchLabels": { "app": "web" } });
    let profile =
        json!({ "metadata": { "name": "p" }, "spec": { "setupKeyRef": { "name": "k" }, "podSelector": selector } });
    stage.create(&stage.api::<SidecarProfile>(), &from_value(profile).unwrap()).await;
    stage
        .until("a pod gets the sidecar of its profile", async || {
            pod(&stage, json!({})).await == Ok(names_of(&["openzro", "web"]))
        })
        .await;

    // A group that a resource has made stays as long as the resource.
    let network = stage.by_hand(&Collection::Networks, json!({ "name": "n", "description": "" })).await;
    let spec = json!({ "name": "db", "networkID": network, "address": "10.0.0.1", "groups": ["databases"] });
    let (groups, resources) = (stage.api::<OZGroup>(), stage.api::<OZResource>());
    stage.create(&resources, &from_value(json!({ "metadata": { "name": "db" }, "spec": spec })).unwrap()).await;
    let dry_run = DeleteParams { dry_run: true, ..DeleteParams::default() };
    let is_protected = async || {
        let refused = groups.delete("databases", &dry_run).await.err();
        refused.is_some_and(|why| why.to_string().contains("is in use by OZResource"))
    };
    stage.until("the group is protected", is_protected).await;
    let labels = groups.get("databases").await.unwrap().metadata.labels.unwrap();
    assert_eq!(
        labels,
        [("team", "net"), ("tier", "infra")].map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    );

    // It leads under the original's lease, and has made no configuration of its own.
    let leases = Api::<Lease>::all(stage.client.clone()).list(&ListParams::default()).await.unwrap();
    assert!(leases.iter().any(|lease| lease.metadata.name.as_deref() == Some("operator.openzro.io")), "{leases:?}");
    let configurations = Api::<MutatingWebhookConfiguration>::all(stage.client.clone());
    assert!(configurations.get_opt(PROGRAM).await.unwrap().is_none());
}

fn names_of(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}
