//! Webhooks as a part of a program: declared, certified and answered without anybody's help.

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use konverge::{
    admission::{Review, Validator, Verdict, Webhook, Webhooks},
    prelude::*,
};
use konverge_testkit::{eventually, free_port};
use kube::{Api, api::PostParams};

use crate::stage::{LIMIT, Place, Probe, ProbeSpec, Prober};

struct NoSwearing;

impl Validator<Probe> for NoSwearing {
    type Error = std::convert::Infallible;

    async fn validate(&self, review: &Review<Probe>) -> Result<Verdict, Self::Error> {
        let swears = review.object.as_ref().is_some_and(|probe| probe.spec.behave == "badly");
        Ok(Verdict::unless(swears.then_some(("spec.behave", "must not be badly"))))
    }
}

/// The generated objects are enough for the API server to find the program: the Service that the configuration names leads to its pods.
#[test]
fn the_generated_configuration_names_the_generated_service() {
    let program = konverge::Operator::new("konverge-admitting", "0")
        .controller(Controller::new(Prober::default()))
        .webhooks(Webhooks::new().validate(Webhook::of::<Probe>(), NoSwearing));
    let files = program.generate("home").unwrap();
    let objects: Vec<serde_json::Value> = serde_saphyr::from_multiple(files.get("others.yaml").unwrap()).unwrap();
    let kinds: Vec<_> = objects.iter().map(|object| object["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["Service", "ValidatingWebhookConfiguration"]);
    let (service, configuration) = (&objects[0], &objects[1]);
    let named = &configuration["webhooks"][0]["clientConfig"]["service"];
    assert_eq!(
        (&named["name"], &named["namespace"]),
        (&service["metadata"]["name"], &service["metadata"]["namespace"])
    );
    // The API server asks at 443 unless it is told otherwise.
    assert_eq!((&service["spec"]["ports"][0]["port"], named["port"].as_i64().unwrap_or(443)), (&443.into(), 443));
    assert_eq!(service["spec"]["ports"][0]["targetPort"], 9443);
    assert_eq!(service["spec"]["selector"]["app.kubernetes.io/name"], "konverge-admitting");
}

#[tokio::test(flavor = "multi_thread")]
async fn row_26_webhooks_of_a_program_refuse_what_its_rules_refuse() {
    let place = Place::new().await;
    let port = free_port().unwrap();
    let webhook = Webhook::of::<Probe>().namespace_labels([("kubernetes.io/metadata.name", place.namespace.as_str())]);
    let program = konverge::Operator::new("konverge-admitting", "0")
        .controller(Controller::new(Prober::default()))
        .webhooks(Webhooks::new().validate(webhook, NoSwearing));
    let url = format!("https://127.0.0.1:{port}");
    let address = format!("--webhook-address=127.0.0.1:{port}");
    let namespace = format!("--lease-namespace={}", place.namespace);
    let running = place.run(program, &[&address, "--webhook-url", &url, &namespace]).await;

    let configurations = Api::<ValidatingWebhookConfiguration>::all(place.client.clone());
    let told = eventually(LIMIT, || async {
        let found = configurations.get_opt("konverge-admitting").await.unwrap()?;
        found.webhooks?.pop()?.client_config.ca_bundle
    });
    told.await.unwrap();
    let bad = Probe::new("bad", ProbeSpec { behave: "badly".to_owned() });
    let refused = eventually(LIMIT, || async {
        place.api::<Probe>().create(&PostParams { dry_run: true, ..PostParams::default() }, &bad).await.err()
    });
    let refused = refused.await.unwrap().to_string();
    assert!(refused.contains("must not be badly"), "{refused}");
    place.create_probe("good", "ok").await;
    place.says("good", |conditions| conditions.is_true("Ready")).await;
    running.measures("controller_runtime_webhook_requests_total").await;
    running.end().await.unwrap();
}
