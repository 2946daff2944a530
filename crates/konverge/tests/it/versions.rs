//! A kind that gets a second version: its definition out of the types, and what is stored written anew.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge::{
    Operator,
    admission::{Review, Verdict, Webhook, Webhooks, conversion::round_trips, crd_versions, handler},
    prelude::*,
};
use konverge_testkit::{RoleUse, eventually, free_port};
use kube::{
    Api, CustomResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::stage::{LIMIT, Place, control_plane, run_as};

const PROGRAM: &str = "konverge-versions";

/// The version of the second release.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[kube(group = "versions.konverge.dev", version = "v2", kind = "Barrel", namespaced)]
struct BarrelSpec {
    millilitres: u64,
}

mod v1 {
    use konverge::prelude::*;

    /// The version of the first release.
    #[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "versions.konverge.dev", version = "v1", kind = "Barrel", namespaced)]
    pub(super) struct BarrelSpec {
        pub(super) litres: u32,
    }
}

/// The field that version 1 lacks.
const REST: &str = "versions.konverge.dev/millilitres";

impl TryFrom<v1::Barrel> for Barrel {
    type Error = String;

    fn try_from(mut old: v1::Barrel) -> Result<Self, String> {
        let rest = old.annotations_mut().remove(REST).map(|rest| rest.parse::<u64>()).transpose();
        let rest = rest.map_err(|error| format!("annotation {REST}: {error}"))?.unwrap_or_default();
        old.metadata.annotations = old.metadata.annotations.filter(|annotations| !annotations.is_empty());
        let spec = BarrelSpec { millilitres: u64::from(old.spec.litres) * 1000 + rest };
        Ok(Self { metadata: old.metadata, spec })
    }
}

impl TryFrom<Barrel> for v1::Barrel {
    type Error = String;

    fn try_from(mut new: Barrel) -> Result<Self, String> {
        let litres = u32::try_from(new.spec.millilitres / 1000).map_err(|_| "spec.millilitres: too much for litres")?;
        let rest = new.spec.millilitres % 1000;
        if rest > 0 {
            new.annotations_mut().insert(REST.to_owned(), rest.to_string());
        }
        Ok(Self { metadata: new.metadata, spec: v1::BarrelSpec { litres } })
    }
}

/// Rolls the barrels that it sees.
struct Rolls(Arc<Mutex<BTreeSet<String>>>);

impl Reconcile<Barrel> for Rolls {
    type Error = Error;

    async fn apply(&self, barrel: Arc<Barrel>, _: Context<Barrel>) -> Result<Action, Error> {
        self.0.lock().unwrap().insert(barrel.name_any());
        Ok(Action::Done)
    }
}

pub(crate) fn program() -> Operator {
    rolling(Arc::default())
}

/// The second release. No barrel is written empty any more.
fn rolling(rolled: Arc<Mutex<BTreeSet<String>>>) -> Operator {
    let rules = handler::validator(|review: &Review<Barrel>| {
        let is_empty = review.object.as_ref().is_some_and(|barrel| barrel.spec.millilitres == 0);
        Verdict::unless(is_empty.then_some(("spec.millilitres", "there is nothing in it")))
    });
    let webhooks = Webhooks::new()
        .validate(Webhook::of::<Barrel>(), rules)
        .versions(crd_versions::<Barrel>().and::<v1::Barrel>().migrate_storage());
    Operator::new(PROGRAM, "0").controller(Controller::watching(Rolls(rolled))).webhooks(webhooks)
}

fn barrel(millilitres: u64) -> Barrel {
    Barrel::new("example", BarrelSpec { millilitres })
}

#[test]
fn nothing_is_lost_on_the_way_to_another_version_and_back() {
    round_trips::<Barrel, v1::Barrel>([0, 1, 999, 1000, 5_001].map(barrel)).unwrap();
    let too_much = round_trips::<Barrel, v1::Barrel>([barrel(u64::MAX)]).unwrap_err();
    assert!(too_much.to_string().contains("spec.millilitres: too much for litres"), "{too_much}");
}

#[test]
fn the_definition_is_made_of_the_types() {
    let definitions = program().crds("home");
    assert_eq!(definitions.len(), 1);
    let spec = &definitions[0].spec;
    let versions: Vec<_> = spec.versions.iter().map(|version| (version.name.as_str(), version.storage)).collect();
    assert_eq!(versions, [("v2", true), ("v1", false)]);
    let webhook = spec.conversion.as_ref().unwrap().webhook.as_ref().unwrap();
    let service = webhook.client_config.as_ref().unwrap().service.as_ref().unwrap();
    assert_eq!((service.name.as_str(), service.namespace.as_str()), (PROGRAM, "home"));
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_objects_are_migrated_and_only_then_the_old_version_is_dropped() {
    let (place, cluster) = (Place::new().await, control_plane().await);
    let mut first_release = konverge::generate::Files::default();
    first_release.objects("crds.yaml", &[v1::Barrel::crd()]).unwrap();
    cluster.apply(&first_release.manifest()).await.unwrap();
    let (old_barrels, barrels) = (place.api::<v1::Barrel>(), place.api::<Barrel>());
    for (name, litres) in [("one", 1), ("two", 2), ("empty", 0)] {
        let barrel = v1::Barrel::new(name, v1::BarrelSpec { litres });
        eventually(LIMIT, async || old_barrels.create(&PostParams::default(), &barrel).await.ok()).await.unwrap();
    }
    let before = old_barrels.get("one").await.unwrap().resource_version();

    let manifest = program().generate(&place.namespace).unwrap().manifest();
    let account = cluster.install(PROGRAM, &place.namespace, &manifest).await.unwrap();
    let address = format!("127.0.0.1:{}", free_port().unwrap());
    let arguments = ["--lease-namespace", &place.namespace, "--webhook-address", &address, "--webhook-drain=0"];
    let rolled = Arc::<Mutex<BTreeSet<String>>>::default();
    // A Service leads to replicas that are ready. So this one has to be, though nothing can be listed that it has not converted.
    let running = run_as(account.kubeconfig(), rolling(Arc::clone(&rolled)), &arguments).await;
    assert!(rolled.lock().unwrap().is_empty());
    cluster.route_service(&place.namespace, PROGRAM, address.parse().unwrap()).await.unwrap();
    eventually(LIMIT, || std::future::ready((rolled.lock().unwrap().len() == 3).then_some(()))).await.unwrap();
    let definitions = Api::<CustomResourceDefinition>::all(place.client.clone());
    let stored = async || {
        let definition = definitions.get(Barrel::crd_name()).await.unwrap();
        definition.status.unwrap().stored_versions.unwrap()
    };

    // One object cannot be written, so the old version stays, though all others are stored in the new one.
    let says = "1 of 3 objects of barrels.versions.konverge.dev cannot be written, such as empty";
    let warned = eventually(LIMIT, async || running.get("/readyz?verbose").await.1.contains(says).then_some(()));
    warned.await.unwrap();
    assert_eq!(stored().await, ["v1", "v2"]);
    assert_ne!(barrels.get("one").await.unwrap().resource_version(), before);

    let mended = json!({"spec": {"millilitres": 1500}});
    barrels.patch("empty", &PatchParams::default(), &Patch::Merge(mended)).await.unwrap();
    eventually(LIMIT, async || (stored().await == ["v2"]).then_some(())).await.unwrap();
    let content = async |name| barrels.get(name).await.unwrap().spec.millilitres;
    assert_eq!((content("one").await, content("two").await, content("empty").await), (1000, 2000, 1500));
    running.end().await.unwrap();

    let log = cluster.audit_log().unwrap();
    log.catch_up(&place.client).await.unwrap();
    let used = RoleUse::of(&account.requests(&log).unwrap(), &program().grant(&place.namespace).rules());
    let is_ours = |unused: &&String| unused.contains("barrels") || unused.contains("customresource");
    assert!(used.refused.is_empty() && !used.unused.iter().any(|unused| is_ours(&unused)), "{used:?}");

    // A later release may leave the old version out.
    let versions =
        json!({"spec": {"versions": Barrel::crd().spec.versions, "conversion": {"strategy": "None", "webhook": null}}});
    definitions.patch(Barrel::crd_name(), &PatchParams::default(), &Patch::Merge(versions)).await.unwrap();
    assert_eq!(content("two").await, 2000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_without_a_controller_runs_until_it_is_told_to_stop() {
    let place = Place::new().await;
    let rules = handler::validator(|_: &Review<ConfigMap>| Verdict::allow());
    let webhook = Webhook::of::<ConfigMap>().namespace_labels([("kubernetes.io/metadata.name", &place.namespace)]);
    let program = Operator::new("konverge-policy", "0").webhooks(Webhooks::new().validate(webhook, rules));
    let address = format!("127.0.0.1:{}", free_port().unwrap());
    let namespace = format!("--lease-namespace={}", place.namespace);
    let url = format!("--webhook-url=https://{address}");
    let address = format!("--webhook-address={address}");
    let running = place.run(program, &[&address, &url, &namespace, "--webhook-drain=0"]).await;
    running.end().await.unwrap();
}
