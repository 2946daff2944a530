//! Rules that read caches of the program, answered by a replica that does not lead.

use std::net::SocketAddr;

use k8s_openapi::api::coordination::v1::Lease;
use konverge::{
    Operator, WebhookSetup,
    admission::{Limits, Review, Verdict, Webhook, Webhooks, certificates::Lifetimes, handler},
    prelude::*,
    runtime::object::ObjectKey,
};
use konverge_testkit::{eventually, free_port};
use kube::{Api, api::PostParams};

use crate::stage::{LIMIT, Place, Probe, ProbeSpec, Prober, Running, control_plane, run_as};

const PROGRAM: &str = "konverge-reading";

/// A Probe behaves as a `ConfigMap` of its namespace says.
fn program(namespace: &str) -> Operator {
    let namespace = namespace.to_owned();
    let webhooks = WebhookSetup::reading(move |caches| {
        let maps = caches.of::<ConfigMap>();
        let rules = handler::validator(move |review: &Review<Probe>| {
            let unknown = |probe: &&Probe| {
                let key = ObjectKey { namespace: probe.namespace(), name: probe.spec.behave.clone() };
                maps.get(&key).is_none()
            };
            let unknown = review.object.as_ref().filter(unknown);
            Verdict::unless(
                unknown.map(|probe| ("spec.behave", format!("there is no ConfigMap {}", probe.spec.behave))),
            )
        });
        let ours = Webhook::of::<Probe>().namespace_labels([("kubernetes.io/metadata.name", namespace.as_str())]);
        Webhooks::new().validate(ours, rules)
    });
    let webhooks = webhooks
        .limits(Limits::default().with(|limits| limits.admission_body = 300_000))
        .lifetimes(Lifetimes::default().with(|lifetimes| lifetimes.certificate = Duration::from_secs(86_400)));
    Operator::new(PROGRAM, "0").controller(Controller::new(Prober::default())).webhooks(webhooks)
}

#[test]
fn the_role_allows_what_the_rules_read() {
    let rules = program("home").grant("home").everywhere;
    let reads = rules.iter().find(|rule| rule.resources.as_ref().is_some_and(|all| all.contains(&"configmaps".into())));
    assert_eq!(reads.unwrap().verbs, ["list", "watch"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_judges_by_caches_that_are_complete() {
    let (place, cluster) = (Place::new().await, control_plane().await);
    place.create_config_map("known", &[]).await;
    let manifest = program(&place.namespace).generate(&place.namespace).unwrap().manifest();
    let account = cluster.install(PROGRAM, &place.namespace, &manifest).await.unwrap();
    let start = async || -> (Running, String) {
        let address = format!("127.0.0.1:{}", free_port().unwrap());
        let arguments = [
            "--namespace",
            &place.namespace,
            "--lease-namespace",
            &place.namespace,
            "--leader-election",
            "--webhook-address",
            &address,
            "--webhook-drain=0",
        ];
        (run_as(account.kubeconfig(), program(&place.namespace), &arguments).await, address)
    };
    let holder = async || {
        let lease = Api::<Lease>::namespaced(place.client.clone(), &place.namespace);
        lease.get_opt(&format!("{PROGRAM}-leader")).await.unwrap()?.spec?.holder_identity
    };
    let answered = |code: &str| {
        let path = "/validate-test-konverge-dev-v1-probe";
        format!(r#"controller_runtime_webhook_requests_total{{webhook="{path}",code="{code}"}}"#)
    };
    let (leader, _) = start().await;
    let leads = eventually(LIMIT, async || holder().await).await.unwrap();
    let (standby, address) = start().await;
    cluster.route_service(&place.namespace, PROGRAM, address.parse().unwrap()).await.unwrap();

    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let probe = |behave: &str| Probe::new("any", ProbeSpec { behave: behave.to_owned() });
    let judge = async |behave: &str| place.api::<Probe>().create(&dry_run, &probe(behave)).await;
    // In the beginning the API server may not have heard of the authority yet.
    eventually(LIMIT, async || judge("known").await.ok()).await.unwrap();
    let refused = judge("unknown").await.unwrap_err().to_string();
    assert!(refused.contains("there is no ConfigMap unknown"), "{refused}");
    // The rules see objects that are created and deleted.
    place.create_config_map("unknown", &[]).await;
    eventually(LIMIT, async || judge("unknown").await.ok()).await.unwrap();
    let maps: Api<ConfigMap> = place.api();
    maps.delete("unknown", &kube::api::DeleteParams::default()).await.unwrap();
    eventually(LIMIT, async || judge("unknown").await.err()).await.unwrap();

    // The limits and lifetimes of the program are those of the server.
    judge(&"x".repeat(300_000)).await.unwrap_err();
    standby.measures(&answered("413")).await;
    let ends = standby.scraped();
    let ends =
        ends.lines().find_map(|line| line.strip_prefix("konverge_webhook_certificate_expiry_timestamp_seconds "));
    let ends = k8s_openapi::jiff::Timestamp::from_second(ends.unwrap().parse().unwrap()).unwrap();
    let left = ends.as_second() - k8s_openapi::jiff::Timestamp::now().as_second();
    assert!((0..=24 * 3600).contains(&left), "{left}");

    assert_eq!(holder().await.as_ref(), Some(&leads), "the one that answered does not lead");
    let answered = answered("200");
    let none = format!("{answered} 0\n");
    assert!(standby.scraped().contains(&answered) && !standby.scraped().contains(&none), "{}", standby.scraped());
    assert!(leader.scraped().contains(&none), "{}", leader.scraped());
    standby.end().await.unwrap();
    leader.end().await.unwrap();
}

#[tokio::test]
async fn authorities_of_callers_that_cannot_be_read_keep_the_program_from_starting() {
    let place = Place::new().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, "no PEM").unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut options = konverge::Options::default().with(|options| options.server.address = address.into());
    options.webhook.address = address;
    for (client_ca, expected) in [(file, "no usable authority"), (folder.path().join("none.pem"), "cannot read")] {
        options.webhook.client_ca = Some(client_ca);
        let program = Operator::new(PROGRAM, "0").webhooks(WebhookSetup::from(Webhooks::new()));
        let error = program.assemble_with(place.client.clone(), options.clone()).await.err().unwrap();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(error.to_string() == "cannot set up webhooks" && cause.contains(expected), "{error}: {cause}");
        assert!(cause.contains("--webhook-client-ca"), "{cause}");
    }
}

/// The API server of the tests shows webhooks a certificate of its front proxy's authority, by its admission configuration.
#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_is_answered_by_its_certificate_and_nobody_else_is() {
    const PROGRAM: &str = "konverge-only-for";
    let (place, cluster) = (Place::new().await, control_plane().await);
    let maps = Api::<ConfigMap>::namespaced(place.client.clone(), "kube-system");
    let authorities = maps.get("extension-apiserver-authentication").await.unwrap().data.unwrap();
    let program = || {
        let ours = Webhook::of::<Probe>().namespace_labels([("kubernetes.io/metadata.name", place.namespace.as_str())]);
        let anything = handler::validator(|_: &Review<Probe>| Verdict::allow());
        let webhooks = WebhookSetup::from(Webhooks::new().validate(ours, anything));
        Operator::new(PROGRAM, "0").controller(Controller::new(Prober::default())).webhooks(webhooks)
    };
    let manifest = program().generate(&place.namespace).unwrap().manifest();
    let account = cluster.install(PROGRAM, &place.namespace, &manifest).await.unwrap();
    let file = cluster.run_directory().path().join("webhook-client-ca.pem");
    // Clients of the cluster have certificates of the other authority.
    for (authority, is_answered) in [("requestheader-client-ca-file", true), ("client-ca-file", false)] {
        std::fs::write(&file, &authorities[authority]).unwrap();
        let address = format!("127.0.0.1:{}", free_port().unwrap());
        let namespace = &place.namespace;
        let arguments = ["--namespace", namespace, "--lease-namespace", namespace, "--webhook-address", &address];
        let file = file.to_str().unwrap();
        let more = ["--webhook-drain=0", "--webhook-client-ca", file];
        let running = run_as(account.kubeconfig(), program(), &[&arguments[..], &more].concat()).await;
        cluster.route_service(namespace, PROGRAM, address.parse().unwrap()).await.unwrap();
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let probe = Probe::new("any", ProbeSpec::default());
        // In the beginning it is the API server that does not trust the program.
        let answer = eventually(LIMIT, async || match place.api::<Probe>().create(&dry_run, &probe).await {
            Ok(_) => is_answered.then_some(()),
            Err(refusal) => (!is_answered && refusal.to_string().contains("remote error: tls")).then_some(()),
        });
        answer.await.unwrap();
        running.end().await.unwrap();
    }
}
