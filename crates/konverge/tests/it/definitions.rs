//! A program that brings its own definitions.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge::{Operator, apply::Conditions, prelude::*};
use konverge_testkit::{RoleUse, eventually};
use kube::{
    Api, CustomResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::stage::{LIMIT, Place, control_plane, run_as};

const PROGRAM: &str = "konverge-definitions";

/// A kind that nobody else brings.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[kube(group = "test.konverge.dev", version = "v1", kind = "Gadget", namespaced, status = "Status")]
struct GadgetSpec {
    size: u32,
}

struct Nothing;

impl Reconcile<Gadget> for Nothing {
    type Error = Error;

    async fn apply(&self, _: Arc<Gadget>, _: Context<Gadget>) -> Result<Action, Error> {
        Ok(Action::Done)
    }
}

fn program() -> Operator {
    Operator::new(PROGRAM, "0").may_install_crds(true).controller(Controller::<Gadget, _>::new(Nothing))
}

#[test]
fn what_installing_takes_is_granted_only_to_those_who_ask() {
    let may = |operator: &Operator| {
        let rules = operator.grant("home").everywhere;
        rules
            .into_iter()
            .any(|rule| rule.resources.unwrap_or_default().contains(&"customresourcedefinitions".to_owned()))
    };
    assert!(may(&program()));
    assert!(!may(&program().may_install_crds(false)));
}

/// The API server warns about formats that it does not check, and kubectl shows each warning.
#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_takes_a_definition_with_unsigned_numbers_without_a_warning() {
    let place = Place::new().await;
    let warnings = async |mut definition: CustomResourceDefinition| {
        // Another group, since a test beside this one installs the definition.
        definition.spec.group = "warned.konverge.dev".to_owned();
        definition.metadata.name = Some("gadgets.warned.konverge.dev".to_owned());
        let request = http::Request::post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All")
            .header("content-type", "application/json")
            .body(serde_json::to_vec(&definition).unwrap().into());
        let response = place.client.send(request.unwrap()).await.unwrap();
        assert_eq!(response.status(), 201);
        let warnings = response.headers().get_all("warning").iter();
        warnings.map(|warning| warning.to_str().unwrap().to_owned()).collect::<Vec<_>>().join("; ")
    };
    assert!(warnings(Gadget::crd()).await.contains("uint32"));
    let definition = program().crds("home").remove(0);
    assert_eq!(warnings(definition.clone()).await, "");
    let schema = definition.spec.versions[0].schema.clone().unwrap().open_api_v3_schema.unwrap();
    let spec = &schema.properties.unwrap()["spec"];
    assert_eq!(spec.properties.as_ref().unwrap()["size"].minimum, Some(0.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn row_33_definitions_are_brought_upgraded_and_never_lose_what_is_stored() {
    let (place, cluster) = (Place::new().await, control_plane().await);
    // The role alone; the program brings the definition.
    let mut files = konverge::generate::Files::default();
    files.objects("role.yaml", &program().grant(&place.namespace).objects().unwrap()).unwrap();
    let account = cluster.install(PROGRAM, &place.namespace, &files.manifest()).await.unwrap();
    let arguments = ["--namespace", place.namespace.as_str(), "--install-crds"];
    let definitions = Api::<CustomResourceDefinition>::all(place.client.clone());
    let name = Gadget::crd_name();
    assert!(definitions.get_opt(name).await.unwrap().is_none());

    // Ready means that the kind is there.
    let running = run_as(account.kubeconfig(), program(), &arguments).await;
    let gadgets: Api<Gadget> = place.api();
    gadgets.create(&PostParams::default(), &Gadget::new("one", GadgetSpec { size: 1 })).await.unwrap();
    let is_ready = |conditions: &Conditions| conditions.is_true("Ready");
    let worked = eventually(LIMIT, || async {
        gadgets.get("one").await.unwrap().status.filter(|status| is_ready(&status.conditions))
    });
    worked.await.unwrap();
    running.end().await.unwrap();
    let log = cluster.audit_log().unwrap();
    log.catch_up(&place.client).await.unwrap();
    let requests = account.requests(&log).unwrap();
    let used = RoleUse::of(&requests, &program().grant("home").rules());
    assert!(used.refused.is_empty() && !used.unused.iter().any(|unused| unused.contains("custom")), "{used:?}");

    // Brought again, nothing is written.
    let before = definitions.get(name).await.unwrap().metadata.resource_version;
    run_as(account.kubeconfig(), program(), &arguments).await.end().await.unwrap();
    assert_eq!(definitions.get(name).await.unwrap().metadata.resource_version, before);

    // Objects are stored in a version that the program does not know: it says so, changes nothing and is not ready.
    let stored = json!({"status": {"storedVersions": ["v0", "v1"]}});
    definitions.patch_status(name, &PatchParams::default(), &Patch::Merge(stored)).await.unwrap();
    let before = definitions.get(name).await.unwrap();
    let refused = crate::stage::start_as(account.kubeconfig(), program(), &arguments).await;
    refused.lacks("objects of gadgets.test.konverge.dev may be stored as v0").await;
    assert_eq!(definitions.get(name).await.unwrap(), before);
    // Mended by a person, it goes on without a restart.
    let stored = json!({"status": {"storedVersions": ["v1"]}});
    definitions.patch_status(name, &PatchParams::default(), &Patch::Merge(stored)).await.unwrap();
    refused.is_ready().await;
    refused.end().await.unwrap();
}

/// The same kind in two releases of a program.
mod releases {
    pub(super) mod old {
        use konverge::prelude::*;

        #[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
        #[kube(group = "test.konverge.dev", version = "v1", kind = "Aging", namespaced, status = "Status")]
        pub(crate) struct AgingSpec {
            pub(crate) size: u32,
        }
    }

    pub(super) mod new {
        use konverge::prelude::*;

        #[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
        #[kube(group = "test.konverge.dev", version = "v1", kind = "Aging", namespaced, status = "Status")]
        pub(crate) struct AgingSpec {
            pub(crate) size: u32,
            pub(crate) colour: Option<String>,
        }
    }
}

impl Reconcile<releases::old::Aging> for Nothing {
    type Error = Error;

    async fn apply(&self, _: Arc<releases::old::Aging>, _: Context<releases::old::Aging>) -> Result<Action, Error> {
        Ok(Action::Done)
    }
}

impl Reconcile<releases::new::Aging> for Nothing {
    type Error = Error;

    async fn apply(&self, _: Arc<releases::new::Aging>, _: Context<releases::new::Aging>) -> Result<Action, Error> {
        Ok(Action::Done)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_replica_never_downgrades_a_definition_and_only_the_leader_installs_one() {
    let control_plane = crate::stage::own_control_plane().await;
    let place = Place::on(&control_plane).await;
    let old = || Operator::new(PROGRAM, "1.0.0").controller(Controller::<releases::old::Aging, _>::new(Nothing));
    let new = || Operator::new(PROGRAM, "1.1.0").controller(Controller::<releases::new::Aging, _>::new(Nothing));
    let home = ["--lease-namespace", place.namespace.as_str()];
    let arguments = [&home[..], &["--namespace", &place.namespace, "--install-crds", "--leader-election"]].concat();
    let definitions = Api::<CustomResourceDefinition>::all(place.client.clone());
    let name = releases::new::Aging::crd_name();
    let declared = async || {
        let definition = definitions.get(name).await.unwrap();
        let properties =
            &serde_json::to_value(&definition.spec.versions[0].schema).unwrap()["openAPIV3Schema"]["properties"];
        (properties["spec"]["properties"].get("colour").is_some(), definition.metadata.resource_version)
    };
    let first = run_as(control_plane.kubeconfig(), old(), &arguments).await;
    assert!(!declared().await.0);

    // A newer replica stands by: it is ready, and installs nothing before it leads.
    let second = run_as(control_plane.kubeconfig(), new(), &arguments).await;
    assert!(!declared().await.0);
    first.end().await.unwrap();
    let upgraded = eventually(LIMIT, || async { declared().await.0.then_some(()) });
    upgraded.await.unwrap();
    second.is_ready().await;

    // An old one that starts and leads leaves the definition alone, and works.
    second.end().await.unwrap();
    let (_, before) = declared().await;
    run_as(control_plane.kubeconfig(), old(), &arguments).await.end().await.unwrap();
    let agings: Api<releases::old::Aging> = place.api();
    agings
        .create(&PostParams::default(), &releases::old::Aging::new("one", releases::old::AgingSpec::default()))
        .await
        .unwrap();
    let third = run_as(control_plane.kubeconfig(), old(), &arguments).await;
    let worked = eventually(LIMIT, || async {
        let status = agings.get("one").await.unwrap().status;
        status.filter(|status| status.conditions.is_true("Ready"))
    });
    worked.await.unwrap();
    assert_eq!(declared().await, (true, before));
    third.end().await.unwrap();
}
