//! A program with webhooks of every sort, installed as it is generated and reached under a URL of its own.

use k8s_openapi::{
    api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use konverge::{
    Operator,
    admission::{Review, Verdict, Webhook, Webhooks, crd_versions, handler},
    prelude::*,
};
use konverge_testkit::{RoleUse, eventually, free_port};
use kube::{Api, CustomResourceExt, api::PostParams};
use serde_json::json;

use crate::stage::{LIMIT, Place, Running, control_plane, run_as};

const PROGRAM: &str = "konverge-hooked-at-url";

/// The version that is stored.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[kube(group = "aturl.konverge.dev", version = "v2", kind = "Pallet", namespaced, status = "Status")]
struct PalletSpec {
    grams: u32,
    #[serde(default)]
    carrier: String,
}

mod old {
    use konverge::prelude::*;

    /// The earlier version: `500 g`.
    #[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "aturl.konverge.dev", version = "v1", kind = "Pallet", namespaced, status = "Status")]
    pub(super) struct PalletSpec {
        pub(super) weight: String,
        #[serde(default)]
        pub(super) carrier: String,
    }
}

impl TryFrom<old::Pallet> for Pallet {
    type Error = String;

    fn try_from(old: old::Pallet) -> Result<Self, String> {
        let grams = old.spec.weight.strip_suffix(" g").and_then(|number| number.parse().ok());
        let grams = grams.ok_or("spec.weight: expected a number and g")?;
        let spec = PalletSpec { grams, carrier: old.spec.carrier };
        Ok(Self { metadata: old.metadata, spec, status: old.status })
    }
}

impl From<Pallet> for old::Pallet {
    fn from(new: Pallet) -> Self {
        let spec = old::PalletSpec { weight: format!("{} g", new.spec.grams), carrier: new.spec.carrier };
        Self { metadata: new.metadata, spec, status: new.status }
    }
}

struct Nothing;

impl Reconcile<Pallet> for Nothing {
    type Error = Error;

    async fn apply(&self, _: Arc<Pallet>, _: Context<Pallet>) -> Result<Action, Error> {
        Ok(Action::Done)
    }
}

fn program() -> Operator {
    let rules = handler::validator(|review: &Review<Pallet>| {
        let is_empty = review.object.as_ref().is_some_and(|pallet| pallet.spec.grams == 0);
        Verdict::unless(is_empty.then_some(("spec.grams", "there is nothing on it")))
    });
    let defaults = handler::defaulter(|pallet: &mut Pallet| {
        if pallet.spec.carrier.is_empty() {
            pallet.spec.carrier.push_str("post");
        }
    });
    let webhooks = Webhooks::new()
        .validate(Webhook::of::<Pallet>(), rules)
        .defaults(Webhook::of::<Pallet>(), defaults)
        .versions(crd_versions::<Pallet>().and::<old::Pallet>());
    Operator::new(PROGRAM, "0").may_install_crds(true).controller(Controller::new(Nothing)).webhooks(webhooks)
}

/// Where each part of the API server's configuration calls: a URL, or JSON null and the name of a Service.
async fn called(place: &Place) -> [serde_json::Value; 3] {
    let validating = Api::<ValidatingWebhookConfiguration>::all(place.client.clone()).get(PROGRAM).await.unwrap();
    let mutating = Api::<MutatingWebhookConfiguration>::all(place.client.clone()).get(PROGRAM).await.unwrap();
    let definitions = Api::<CustomResourceDefinition>::all(place.client.clone());
    let definition = definitions.get(Pallet::crd_name()).await.unwrap();
    let configs = [
        json!(validating.webhooks.unwrap()[0].client_config),
        json!(mutating.webhooks.unwrap()[0].client_config),
        json!(definition.spec.conversion.unwrap().webhook.unwrap().client_config),
    ];
    configs.map(|config| json!([config["url"], config["service"]["name"]]))
}

/// Waits until the API server calls the program at this URL, and only there, for conversions, defaults and rules.
async fn is_called_at(place: &Place, url: &str, name: &str, running: &Running) {
    let old_pallets = place.api::<old::Pallet>();
    let pallet = |name: &str, weight: &str| {
        let spec = old::PalletSpec { weight: weight.to_owned(), carrier: String::new() };
        old::Pallet::new(name, spec)
    };
    let sent = pallet(name, "500 g");
    let created = eventually(LIMIT, async || old_pallets.create(&PostParams::default(), &sent).await.ok()).await;
    let Ok(created) = created else { panic!("{}", running.get("/readyz?verbose").await.1) };
    assert_eq!(created.spec.carrier, "post");
    assert_eq!(place.api::<Pallet>().get(name).await.unwrap().spec.grams, 500);
    let empty = old_pallets.create(&PostParams::default(), &pallet("empty", "0 g")).await.unwrap_err();
    assert!(empty.to_string().contains("there is nothing on it"), "{empty}");
    for [called, service] in called(place).await.map(|config| [config[0].clone(), config[1].clone()]) {
        assert!(called.as_str().is_some_and(|called| called.starts_with(url)) && service.is_null(), "{called}");
    }
}

/// The generated configurations name a Service, and their field manager is that of the client that has applied them.
#[tokio::test(flavor = "multi_thread")]
async fn the_url_of_a_program_replaces_the_service_of_its_generated_configurations() {
    let (place, cluster) = (Place::new().await, control_plane().await);
    let manifest = program().generate(&place.namespace).unwrap().manifest();
    let account = cluster.install(PROGRAM, &place.namespace, &manifest).await.unwrap();
    for config in called(&place).await {
        assert_eq!(config, json!([null, PROGRAM]));
    }
    let run = async |arguments: &[&str]| {
        let address = format!("127.0.0.1:{}", free_port().unwrap());
        let url = format!("https://{address}");
        let common = ["--namespace", &place.namespace, "--webhook-address", &address, "--webhook-url", &url];
        let arguments = [&common, &["--webhook-drain=0"][..], arguments].concat();
        (url.clone(), run_as(account.kubeconfig(), program(), &arguments).await)
    };
    let (url, running) = run(&[]).await;
    is_called_at(&place, &url, "first", &running).await;
    running.end().await.unwrap();

    // Under another URL, and with definitions of its own.
    let (url, running) = run(&["--install-crds"]).await;
    is_called_at(&place, &url, "second", &running).await;
    running.end().await.unwrap();

    // Without a URL, the definitions that the program installs name the Service again.
    let address = format!("127.0.0.1:{}", free_port().unwrap());
    let arguments =
        ["--namespace", &place.namespace, "--webhook-address", &address, "--webhook-drain=0", "--install-crds"];
    run_as(account.kubeconfig(), program(), &arguments).await.end().await.unwrap();
    assert_eq!(called(&place).await[2], json!([null, PROGRAM]));

    let log = cluster.audit_log().unwrap();
    log.catch_up(&place.client).await.unwrap();
    let used = RoleUse::of(&account.requests(&log).unwrap(), &program().grant(&place.namespace).rules());
    assert!(used.refused.is_empty(), "{used:?}");
}
