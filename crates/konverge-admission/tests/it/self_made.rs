//! Certificates of the program's own: shared, rotated under load, restored, and never over somebody else's Secret.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::{
    admissionregistration::v1::ValidatingWebhookConfiguration, core::v1::Secret, rbac::v1::PolicyRule,
};
use konverge_admission::{
    Certificates, Limits, Review, Verdict, Webhook, Webhooks,
    certificates::{Lifetimes, SelfMade, Target},
    handler,
};
use konverge_testkit::eventually;
use kube::{
    Api,
    api::{DeleteParams, ObjectMeta, PostParams},
};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

use crate::{
    Running, SOON, anywhere,
    http_client::{Version, tls},
    stage::{Clock, Stage, control_plane},
    things::{Refused, Rotated, Thing, V2, definition},
};

type Turning = Thing<Rotated, V2>;
type Refusing = Thing<Refused, V2>;

/// Refuses everything, so that an answer proves that the webhook was asked.
fn refusing<T: serde::de::DeserializeOwned + Send + Sync + 'static>(webhook: Webhook) -> Webhooks {
    Webhooks::new().validate(webhook, handler::validator(|_: &Review<T>| Verdict::deny("asked").code(418)))
}

/// Of one namespace, so that tests that run at the same time are not asked of each other's objects.
fn webhooks(namespace: &str) -> Webhooks {
    refusing::<Turning>(Webhook::of::<Turning>().namespace_labels([("kubernetes.io/metadata.name", namespace)]))
}

fn count(bundle: &str) -> usize {
    bundle.matches("BEGIN CERTIFICATE").count()
}

/// The authority is followed by another and the certificate renewed while requests go on, and none fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotation_costs_no_request() {
    let stage = Arc::new(Stage::new().await);
    stage.define::<Rotated>(definition::<Rotated>(&["v2"])).await;
    // Made 300 days ago and valid for longer, so that the API server takes all of them today.
    let clock = Clock::days_ago(300);
    let seen = clock.clone();
    let lifetimes = Lifetimes::default().with(|lifetimes| {
        lifetimes.certificate = Duration::from_secs(24 * 364 * 3600);
        lifetimes.look_every = Duration::from_millis(50);
    });
    let configurations = Api::<ValidatingWebhookConfiguration>::all(stage.admin.clone());
    let configuration =
        webhooks(&stage.namespace).validating_configuration(&stage.namespace, &stage.location()).unwrap();
    configurations.create(&PostParams::default(), &configuration).await.unwrap();
    let target = Target::Validating(stage.namespace.clone());
    let options = stage.self_made([target]).lifetimes(lifetimes).clock(move || seen.now());
    let permissions = options.permissions();
    // A second replica, which the API server does not call.
    let running = stage.serve(webhooks(&stage.namespace), options.clone()).await;
    let second = Certificates::self_made(stage.operator.clone(), options);
    let second = Running::start_at(anywhere(), webhooks(&stage.namespace), second, Limits::default()).await;
    let thing = Turning::new("any", V2::default());
    eventually(SOON, async || (stage.try_create(&thing).await.0 == 418).then_some(())).await.unwrap();

    let (stop, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let load = tokio::spawn({
        let (stage, stop, asked) = (Arc::clone(&stage), Arc::clone(&stop), Arc::clone(&asked));
        async move {
            while !stop.load(Ordering::SeqCst) {
                let (code, _) = stage.try_create(&Turning::new("any", V2::default())).await;
                assert_eq!(code, 418, "the webhook was not asked");
                asked.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    // Some requests go through in each state.
    let some_requests = async || {
        let from = asked.load(Ordering::SeqCst);
        eventually(SOON, async || (asked.load(Ordering::SeqCst) >= from + 20).then_some(())).await.unwrap();
    };
    some_requests().await;
    let (first_bundle, first_certificate) = stage.stored().await;
    assert_eq!(count(&first_bundle), 1);

    clock.set_days_ago(10);
    let stored = async |condition: &dyn Fn(&str, &str) -> bool| {
        eventually(SOON, async || {
            let (bundle, certificate) = stage.stored().await;
            condition(&bundle, &certificate).then_some((bundle, certificate))
        })
        .await
        .unwrap()
    };
    let (both, certificate) = stored(&|bundle, _| count(bundle) == 2).await;
    assert_eq!(certificate, first_certificate, "a new authority is made known before it is used");
    assert!(both.contains(&first_bundle));
    let known = async || {
        let configuration = configurations.get(&stage.namespace).await.unwrap();
        let bundle = configuration.webhooks?.remove(0).client_config.ca_bundle?;
        (bundle.0 == both.as_bytes()).then_some(())
    };
    eventually(SOON, known).await.unwrap();
    some_requests().await;

    clock.set_days_ago(8);
    let (bundle, second_certificate) = stored(&|_, certificate| certificate != first_certificate).await;
    assert_eq!(bundle, both, "the old authority stays for replicas that are behind");
    some_requests().await;
    for server in [&running, &second] {
        let only_new = both.replace(&first_bundle, "");
        eventually(SOON, async || tls(server.address, &only_new, Version::Two).await.ok()).await.unwrap();
    }

    clock.set_days_ago(6);
    let (bundle, certificate) = stored(&|bundle, _| count(bundle) == 1).await;
    assert_eq!((certificate, both.replace(&first_bundle, "")), (second_certificate, bundle));
    some_requests().await;
    stop.store(true, Ordering::SeqCst);
    load.await.unwrap();
    assert_eq!((running.ready)(), Ok(()));
    second.stop().await;
    running.stop().await;
    // All that was granted was needed.
    let granted: BTreeSet<_> = permissions.role.iter().chain(&permissions.cluster_role).flat_map(words).collect();
    let user = format!("system:serviceaccount:{}:operator", stage.namespace);
    let log = control_plane().await.audit_log().unwrap();
    log.catch_up(&control_plane().await.admin_client().await.unwrap()).await.unwrap();
    let entries = log.entries().unwrap();
    let done = entries.into_iter().filter(|entry| entry.user.username == user && entry.response_status.code < 300);
    let done: BTreeSet<_> = done.map(|entry| format!("{} {}", entry.verb, entry.object_ref.resource)).collect();
    assert_eq!(done, granted);
}

/// `get secrets` for each verb of a rule.
fn words(rule: &PolicyRule) -> Vec<String> {
    let resource = &rule.resources.as_ref().unwrap()[0];
    rule.verbs.iter().map(|verb| format!("{verb} {resource}")).collect()
}

/// As long as nobody was seen to know the new authority, the certificate stays one of the old.
#[tokio::test]
async fn an_authority_that_is_not_known_is_not_used() {
    let stage = Stage::new().await;
    let clock = Clock::days_ago(300);
    let seen = clock.clone();
    let lifetimes = Lifetimes::default().with(|lifetimes| {
        lifetimes.certificate = Duration::from_secs(24 * 364 * 3600);
        lifetimes.look_every = Duration::from_millis(50);
    });
    let target = Target::Validating(stage.namespace.clone());
    let options = stage.self_made([target]).lifetimes(lifetimes).clock(move || seen.now());
    let running = stage.serve(webhooks(&stage.namespace), options).await;
    let (_, first) = stage.stored().await;
    clock.set_days_ago(10);
    eventually(SOON, async || (count(&stage.stored().await.0) == 2).then_some(())).await.unwrap();
    clock.set_days_ago(8);
    let failures = || -> u32 {
        let metrics = running.metrics();
        let line = metrics.lines().find_map(|line| line.strip_prefix("konverge_webhook_injection_errors_total "));
        line.unwrap().parse().unwrap()
    };
    let from = failures();
    eventually(SOON, async || (failures() >= from + 3).then_some(())).await.unwrap();
    assert_eq!(stage.stored().await.1, first);

    let configurations = Api::<ValidatingWebhookConfiguration>::all(stage.admin.clone());
    let configuration =
        webhooks(&stage.namespace).validating_configuration(&stage.namespace, &stage.location()).unwrap();
    configurations.create(&PostParams::default(), &configuration).await.unwrap();
    eventually(SOON, async || (stage.stored().await.1 != first).then_some(())).await.unwrap();
    running.stop().await;
}

/// Many replicas that begin together serve one certificate; if the Secret is lost, it comes back as it was.
#[tokio::test]
async fn replicas_agree_and_a_lost_secret_comes_back() {
    let stage = Stage::new().await;
    let options = stage.self_made([]);
    stage.grant(options.permissions()).await;
    let mut replicas = Vec::new();
    for _ in 0..5 {
        let certificates = Certificates::self_made(stage.operator.clone(), options.clone());
        replicas.push(Running::start_at(anywhere(), webhooks(&stage.namespace), certificates, Limits::default()).await);
    }
    for replica in &replicas {
        eventually(SOON, async || (replica.ready)().ok()).await.unwrap();
    }
    let (bundle, certificate) = stage.stored().await;
    for replica in &replicas {
        let stream = tls(replica.address, &bundle, Version::Two).await.unwrap();
        let served = stream.get_ref().1.peer_certificates().unwrap()[0].clone();
        let expected = CertificateDer::from_pem_slice(certificate.as_bytes());
        assert_eq!(served, expected.unwrap());
    }
    let before = stage.secret().await.unwrap();
    stage.api::<Secret>().delete("hooks-webhook-certificates", &DeleteParams::default()).await.unwrap();
    let after = eventually(SOON, async || stage.secret().await).await.unwrap();
    assert_ne!(before.metadata.uid, after.metadata.uid);
    assert_eq!(before.data, after.data);

    // A damaged Secret is repaired in the same way.
    let mut damaged = after.clone();
    damaged.data.get_or_insert_default().remove("ca.key");
    stage.api::<Secret>().replace("hooks-webhook-certificates", &PostParams::default(), &damaged).await.unwrap();
    eventually(SOON, async || stage.secret().await.filter(|secret| secret.data == before.data)).await.unwrap();
    for replica in replicas {
        replica.stop().await;
    }
}

/// The error names the obstacle, and the work continues once the obstacle is gone.
#[tokio::test]
async fn what_stands_in_the_way_is_named_and_waited_out() {
    let stage = Stage::new().await;
    let secrets = stage.api::<Secret>();
    let metadata = ObjectMeta { name: Some("hooks-webhook-certificates".to_owned()), ..ObjectMeta::default() };
    let data = [("password".to_owned(), "hunter2".to_owned())].into();
    let foreign = Secret { metadata, string_data: Some(data), ..Secret::default() };
    secrets.create(&PostParams::default(), &foreign).await.unwrap();

    let webhooks = || refusing::<Refusing>(Webhook::of::<Refusing>());
    let target = Target::Validating(stage.namespace.clone());
    let options: SelfMade = stage.self_made([target]);
    let certificates = Certificates::self_made(stage.operator.clone(), options.clone());
    let in_order = certificates.in_order();
    let running = stage.bind(webhooks(), certificates).await;
    let said = async |part: &str, check: &dyn Fn() -> Result<(), String>| {
        eventually(SOON, async || check().err().filter(|why| why.contains(part)))
            .await
            .unwrap_or_else(|_| panic!("{part}: {:?}", check()))
    };
    // It may not even look.
    let refused = said("cannot read secret", &*running.ready).await;
    assert!(
        refused.contains("is forbidden") && refused.contains("; apply the generated role of the program again"),
        "{refused}"
    );
    stage.grant(options.permissions()).await;
    said("exists and is not for webhook certificates", &*running.ready).await;
    assert!(secrets.get("hooks-webhook-certificates").await.unwrap().data.unwrap().contains_key("password"));
    running.assert_metric("certwatcher_read_certificate_errors_total ");
    secrets.delete("hooks-webhook-certificates", &DeleteParams::default()).await.unwrap();
    // It serves, and waits for the configuration, which is not there yet.
    eventually(SOON, async || (running.ready)().ok()).await.unwrap();
    said("cannot read ValidatingWebhookConfiguration", &in_order).await;
    let configurations = Api::<ValidatingWebhookConfiguration>::all(stage.admin.clone());
    let configuration = webhooks().validating_configuration(&stage.namespace, &stage.location()).unwrap();
    configurations.create(&PostParams::default(), &configuration).await.unwrap();
    eventually(SOON, async || in_order().ok()).await.unwrap();
    let stored = configurations.get(&stage.namespace).await.unwrap();
    let bundle = stored.webhooks.unwrap().remove(0).client_config.ca_bundle.unwrap();
    assert_eq!(bundle.0, stage.stored().await.0.as_bytes());
    running.stop().await;
}

/// Nothing is lost by being there before the API server is.
#[tokio::test]
async fn an_api_server_that_is_down_is_waited_for() {
    let stage = Stage::new().await;
    let options = stage.self_made([]);
    stage.grant(options.permissions()).await;
    let (client, port, real) = stage.detour().await;
    let certificates = Certificates::self_made(client, options);
    let running = Running::start_at(anywhere(), webhooks(&stage.namespace), certificates, Limits::default()).await;
    let reported = async || (running.ready)().err().filter(|why| why.contains("cannot read secret"));
    let why = eventually(SOON, reported).await.unwrap();
    assert!(why.contains("there is no certificate yet"), "{why}");
    let _detour = Detour::open(port, real).await;
    eventually(SOON, async || (running.ready)().ok()).await.unwrap();
    running.stop().await;
}

/// Leads from a port to an address until dropped.
struct Detour(JoinHandle<()>);

impl Detour {
    async fn open(port: u16, to: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        Self(tokio::spawn(async move {
            loop {
                let (mut from, _) = listener.accept().await.unwrap();
                tokio::spawn(async move {
                    let mut to = TcpStream::connect(to).await.unwrap();
                    // Whichever side ends it.
                    let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
                });
            }
        }))
    }
}

impl Drop for Detour {
    fn drop(&mut self) {
        self.0.abort();
    }
}
