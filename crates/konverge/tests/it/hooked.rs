//! A program with webhooks of every sort, installed as it is generated and run under exactly its role.

use k8s_openapi::ByteString;
use konverge::{
    Operator,
    admission::{Review, Verdict, Webhook, Webhooks, crd_versions, handler},
    prelude::*,
};
use konverge_testkit::{RoleUse, eventually, free_port};
use kube::{Api, api::PostParams};
use serde_json::json;

use crate::stage::{LIMIT, Place, control_plane, run_as};

const PROGRAM: &str = "konverge-hooked";
const SECRET: &str = "konverge-hooked-webhook-certificates";

/// The version that is stored.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[kube(group = "hooked.konverge.dev", version = "v2", kind = "Parcel", namespaced, status = "Status")]
struct ParcelSpec {
    grams: u32,
    #[serde(default)]
    carrier: String,
}

mod old {
    use konverge::prelude::*;

    /// The earlier form: `500 g`.
    #[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "hooked.konverge.dev", version = "v1", kind = "Parcel", namespaced, status = "Status")]
    pub(super) struct ParcelSpec {
        pub(super) weight: String,
        #[serde(default)]
        pub(super) carrier: String,
    }
}

impl TryFrom<old::Parcel> for Parcel {
    type Error = String;

    fn try_from(old: old::Parcel) -> Result<Self, String> {
        let grams = old.spec.weight.strip_suffix(" g").and_then(|number| number.parse().ok());
        let grams = grams.ok_or("spec.weight: expected a number and g")?;
        let spec = ParcelSpec { grams, carrier: old.spec.carrier };
        Ok(Self { metadata: old.metadata, spec, status: old.status })
    }
}

impl From<Parcel> for old::Parcel {
    fn from(new: Parcel) -> Self {
        let spec = old::ParcelSpec { weight: format!("{} g", new.spec.grams), carrier: new.spec.carrier };
        Self { metadata: new.metadata, spec, status: new.status }
    }
}

struct Weighs;

impl Reconcile<Parcel> for Weighs {
    type Error = Error;

    async fn apply(&self, parcel: Arc<Parcel>, context: Context<Parcel>) -> Result<Action, Error> {
        context.event(EventType::Normal, "Weighed", "Weigh", "on the scales");
        context.ready(const { Reason::new("Weighed") }, format!("{} g", parcel.spec.grams));
        Ok(Action::Done)
    }
}

fn program() -> Operator {
    let rules = handler::validator(|review: &Review<Parcel>| {
        let is_empty = review.object.as_ref().is_some_and(|parcel| parcel.spec.grams == 0);
        Verdict::unless(is_empty.then_some(("spec.grams", "there is nothing in it")))
    });
    let defaults = handler::defaulter(|parcel: &mut Parcel| {
        if parcel.spec.carrier.is_empty() {
            parcel.spec.carrier.push_str("post");
        }
    });
    let webhooks = Webhooks::new()
        .validate(Webhook::of::<Parcel>(), rules)
        .defaults(Webhook::of::<Parcel>(), defaults)
        .versions(crd_versions::<Parcel>().and::<old::Parcel>());
    Operator::new(PROGRAM, "0").controller(Controller::new(Weighs)).webhooks(webhooks)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_with_webhooks_needs_what_its_generated_role_allows_and_no_more() {
    let (place, cluster) = (Place::new().await, control_plane().await);
    let manifest = program().generate(&place.namespace).unwrap().manifest();
    let account = cluster.install(PROGRAM, &place.namespace, &manifest).await.unwrap();
    let address = format!("127.0.0.1:{}", free_port().unwrap());
    cluster.route_service(&place.namespace, PROGRAM, address.parse().unwrap()).await.unwrap();
    let arguments =
        ["--namespace", &place.namespace, "--leader-election", "--webhook-address", &address].map(ToOwned::to_owned);
    let running = run_as(account.kubeconfig(), program(), &arguments.each_ref().map(String::as_str)).await;

    // Written in the old version: converted, filled in, judged, stored, worked on. In the beginning the API server may not have heard of
    // the authority yet.
    let (parcels, old_parcels) = (place.api::<Parcel>(), place.api::<old::Parcel>());
    let parcel = |name: &str, weight: &str| {
        let spec = old::ParcelSpec { weight: weight.to_owned(), carrier: String::new() };
        old::Parcel::new(name, spec)
    };
    let sent = parcel("good", "500 g");
    let created = eventually(LIMIT, async || old_parcels.create(&PostParams::default(), &sent).await.ok());
    assert_eq!(created.await.unwrap().spec.carrier, "post");
    let worked_on = async |grams: &str| {
        let found = eventually(LIMIT, || async {
            let found = parcels.get("good").await.unwrap();
            let ready = found.status.as_ref().and_then(|status| status.conditions.get("Ready").cloned());
            ready.is_some_and(|ready| ready.message == grams).then_some(found)
        });
        found.await.unwrap()
    };
    let stored = worked_on("500 g").await;
    assert_eq!((stored.spec.grams, stored.spec.carrier.as_str()), (500, "post"));
    let empty = old_parcels.create(&PostParams::default(), &parcel("empty", "0 g")).await.unwrap_err();
    assert!(empty.to_string().contains("there is nothing in it"), "{empty}");
    let odd = old_parcels.create(&PostParams::default(), &parcel("odd", "heavy")).await.unwrap_err();
    assert!(odd.to_string().contains("spec.weight: expected a number and g"), "{odd}");
    // Again, so that its event becomes a series.
    place.merge::<Parcel>("good", json!({"spec": {"grams": 600}})).await;
    worked_on("600 g").await;

    // Changes by others to the Secret are reverted.
    let secrets: Api<Secret> = place.api();
    let key = secrets.get(SECRET).await.unwrap().data.unwrap()["tls.key"].clone();
    let spoiled = ByteString(b"spoiled".to_vec());
    place.merge::<Secret>(SECRET, json!({"data": {"tls.key": spoiled}})).await;
    let mended = eventually(LIMIT, || async {
        let now = secrets.get(SECRET).await.unwrap().data.unwrap()["tls.key"].clone();
        (now == key).then_some(())
    });
    mended.await.unwrap();

    running.end().await.unwrap();
    let log = cluster.audit_log().unwrap();
    log.catch_up(&place.client).await.unwrap();
    let requests = account.requests(&log).unwrap();
    let rules = program().grant(&place.namespace).rules();
    assert_eq!(RoleUse::of(&requests, &rules), RoleUse::default(), "no 403 and no verb unused");
}
