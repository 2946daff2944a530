//! A whole program that writes nothing and says what it would do.

use std::sync::{Arc, Mutex};

use k8s_openapi::api::coordination::v1::Lease;
use konverge::{Operator, prelude::*};
use kube::api::ListParams;
use tracing::field::{Field, Visit};
use tracing_subscriber::{Layer, filter::LevelFilter, layer::SubscriberExt};

use crate::stage::{LIMIT, Place, Probe, Runs, control_plane, run_as};

const PROGRAM: &str = "konverge-dry-run";

/// Writes all that a controller can write.
#[derive(Clone, Default)]
struct Writer(Runs);

impl Reconcile<Probe> for Writer {
    type Error = Error;

    async fn apply(&self, probe: Arc<Probe>, context: Context<Probe>) -> Result<Action, Error> {
        let child = |name: String| {
            let mut child = ConfigMap::default();
            child.metadata.name = Some(name);
            child.data = Some([("behave".to_owned(), probe.spec.behave.clone())].into());
            child
        };
        let named = child(format!("{}-{}", probe.name_any(), probe.spec.behave));
        context.children().with(child(probe.name_any())).with(named).apply().await?;
        context.label("test.konverge.dev/written", "yes").await?;
        context.event(EventType::Normal, "Written", "Write", "all of it");
        self.0.note(&context);
        Ok(Action::Done)
    }
}

fn program(writer: Writer) -> Operator {
    let controller = Controller::new(writer).owns::<ConfigMap>().finalizer("test.konverge.dev/cleanup");
    Operator::new(PROGRAM, "0").controller(controller.access(|access| {
        access.to::<Probe>(&(), &["patch"]);
    }))
}

/// The log of dry runs.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<String>>>);

impl<S: tracing::Subscriber> Layer<S> for Said {
    fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        struct Line(String);
        impl Visit for Line {
            fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
                self.0 = format!("{}{}={value:?} ", self.0, field.name());
            }
        }
        let mut line = Line(String::new());
        event.record(&mut line);
        if line.0.contains("dry run") {
            self.0.lock().unwrap().push(line.0);
        }
    }
}

impl Said {
    async fn line(&self, parts: &[&str]) {
        let heard = konverge_testkit::eventually(LIMIT, || {
            let lines = self.0.lock().unwrap();
            std::future::ready(lines.iter().any(|line| parts.iter().all(|part| line.contains(part))).then_some(()))
        });
        assert!(heard.await.is_ok(), "{parts:?} in {:#?}", self.0.lock().unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_35_a_dry_run_of_a_program_writes_nothing_and_says_what_it_would_do() {
    let said = Said::default();
    // One for the whole test binary; no other test asks for one.
    tracing::subscriber::set_global_default(
        tracing_subscriber::registry().with(said.clone().with_filter(LevelFilter::INFO)),
    )
    .unwrap();
    let (place, cluster) = (Place::new().await, control_plane().await);
    let manifest = program(Writer::default()).generate(&place.namespace).unwrap().manifest();
    let account = cluster.install(PROGRAM, &place.namespace, &manifest).await.unwrap();
    let lease = format!("--lease-namespace={}", place.namespace);
    let arguments = ["--namespace", &place.namespace, "--leader-election", &lease];

    // First in earnest, so that there is something to change and to delete.
    place.create_probe("old", "first").await;
    let writer = Writer::default();
    let runs = writer.0.clone();
    let earnest = run_as(account.kubeconfig(), program(writer), &arguments).await;
    place.says("old", |conditions| conditions.is_true("Ready")).await;
    runs.reach("old", 1).await;
    earnest.end().await.unwrap();
    place.merge::<Probe>("old", serde_json::json!({"spec": {"behave": "second"}})).await;
    place.create_probe("new", "third").await;
    let before = world(&place).await;
    let log = cluster.audit_log().unwrap();
    log.catch_up(&place.client).await.unwrap();
    let log = log.from_now().unwrap();

    let writer = Writer::default();
    let runs = writer.0.clone();
    let dry = run_as(account.kubeconfig(), program(writer), &[&arguments[..], &["--dry-run"]].concat()).await;
    for name in ["old", "new"] {
        runs.reach(name, 1).await;
    }
    said.line(&["would create", "new-third"]).await;
    said.line(&["would create", "old-second"]).await;
    said.line(&["would change", "old", "behave"]).await;
    said.line(&["would delete", "old-first"]).await;
    said.line(&["would tell an event", "Written"]).await;
    said.line(&["would write the status", "new"]).await;
    dry.end().await.unwrap();

    log.catch_up(&place.client).await.unwrap();
    let requests = account.requests(&log).unwrap();
    let changes: Vec<_> = requests.iter().filter(|request| request.is_mutating()).collect();
    assert!(!changes.is_empty(), "the API server was asked");
    for write in changes {
        // A deletion says it in its body, which the log does not have; the world below tells.
        assert!(write.verb == "delete" || write.request_uri.contains("dryRun=All"), "{write:?}");
    }
    assert_eq!(world(&place).await, before);
}

/// Versions of all that the program could have written.
async fn world(place: &Place) -> Vec<Option<String>> {
    let all = ListParams::default();
    let probes = place.api::<Probe>().list(&all).await.unwrap().items.into_iter().map(|probe| probe.metadata);
    let maps = place.api::<ConfigMap>().list(&all).await.unwrap().items.into_iter().map(|map| map.metadata);
    let leases = place.api::<Lease>().list(&all).await.unwrap().items.into_iter().map(|lease| lease.metadata);
    probes.chain(maps).chain(leases).map(|metadata| metadata.resource_version).collect()
}
