//! The approval of deletions: the operator tells on a `ConfigMap` of its namespace that it has stopped them, and people approve them there.

use std::time::Duration;

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::{core::v1::ConfigMap, rbac::v1::PolicyRule};
use konverge::{
    Home, Part, Setup, StartError,
    apply::events::{EventSink, Notice},
    core::deletion_guard::{DeletionBudget, Stopped},
    generate::Access,
    kube::{self, Api, ResourceExt},
    prometheus_client::{metrics::gauge::Gauge, registry::Registry},
    remote::Deletions,
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    annotations::{APPROVE_DELETIONS, DELETIONS_STOPPED},
    config_map, reasons,
};

/// The name of the `ConfigMap`.
pub const CONFIG_MAP: &str = "openzro-operator-deletions";

/// The interval at which the memory is checked for stopped deletions.
const LOOK: Duration = Duration::from_secs(1);
/// The interval at which the cluster is checked for an approval of waiting deletions.
const APPROVED: Duration = Duration::from_secs(5);

/// The end of the sentence about deletions that are stopped.
const NEXT_STEP: &str = ", so they wait for an approval. If they are meant, run kubectl konverge approve, or start the operator with --allow-deletes; \
    if not, annotate the objects with konverge.dev/deletion=orphan, so that openZro keeps their items, and create them again";

/// Tells that deletions are stopped, and takes approvals.
#[derive(Clone)]
pub struct Approvals {
    deletions: Deletions,
    gauge: Gauge,
}

impl Approvals {
    /// Creates the guard of all deletions in openZro. `None` allows everything.
    pub fn new(budget: Option<DeletionBudget>) -> Self {
        Self { deletions: Deletions::new(budget, NEXT_STEP).waiting(), gauge: Gauge::default() }
    }

    /// Returns the guard.
    pub fn deletions(&self) -> Deletions {
        self.deletions.clone()
    }

    fn register(&self, registry: &mut Registry) {
        registry.register(
            "openzro_deletions_stopped",
            "Objects whose deletion in openZro waits for an approval, because there are too many",
            self.gauge.clone(),
        );
    }
}

/// Returns the message about deletions that are stopped.
fn sentence(stopped: &Stopped) -> String {
    format!("{stopped}{NEXT_STEP}")
}

impl Part for Approvals {
    fn access(&self, _: &Home<'_>, _: &mut Access, at_home: &mut Access) {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let rule = PolicyRule {
            api_groups: Some(words(&[""])),
            resources: Some(words(&["configmaps"])),
            resource_names: Some(words(&[CONFIG_MAP])),
            verbs: words(&["get", "patch"]),
            ..PolicyRule::default()
        };
        // The creation of an object cannot be limited to a name.
        at_home.to_resource("", "configmaps", &["create"]).rules_of([rule]);
    }

    fn describe(&self, registry: &mut Registry) {
        self.register(registry);
    }

    fn install(self: Box<Self>, setup: &mut Setup) -> BoxFuture<'_, Result<(), StartError>> {
        setup.metrics.register(|registry| self.register(registry));
        let (deletions, gauge) = (self.deletions(), self.gauge.clone());
        setup.metrics.before_scrape(move || {
            let waiting = deletions.stopped().map_or(0, |stopped| stopped.waiting);
            gauge.set(i64::try_from(waiting).unwrap_or(i64::MAX));
        });
        let deletions = self.deletions();
        let is_stopped = move || deletions.stopped().map_or(Ok(()), |stopped| Err(sentence(&stopped)));
        setup.manager.checks().warning("deletions", is_stopped);
        if !setup.options().dry_run {
            let api = Api::namespaced(setup.client.clone(), setup.namespace());
            let task = Task { deletions: self.deletions(), api, events: setup.events.clone() };
            setup.manager.leader_task("deletions", task.run());
        }
        std::future::ready(Ok(())).boxed()
    }
}

/// The reports of the task so far.
#[derive(Default)]
struct Told {
    /// The cause that is on the `ConfigMap`.
    why: Option<String>,
    /// The namespaces whose stopped deletions an event has reported.
    namespaces: Vec<String>,
}

/// Keeps the `ConfigMap`.
struct Task {
    deletions: Deletions,
    api: Api<ConfigMap>,
    events: EventSink,
}

impl Task {
    /// Checks for ever. While nothing is stopped, it checks only the memory.
    async fn run(self) {
        self.deletions.begin(self.was_stopped().await);
        let mut told = Told::default();
        // An earlier process may have left something on the ConfigMap.
        self.look(&mut told).await;
        loop {
            let is_stopped = self.deletions.stopped().is_some();
            if is_stopped || told.why.is_some() {
                self.look(&mut told).await;
            }
            sleep(if is_stopped { APPROVED } else { LOOK }).await;
        }
    }

    /// Whether an earlier process had stopped deletions, by the `ConfigMap`. A role that does not allow to read it is that of an installation that never
    /// wrote it.
    async fn was_stopped(&self) -> bool {
        loop {
            match self.api.get_opt(CONFIG_MAP).await {
                Ok(known) => return known.is_some_and(|known| known.annotations().contains_key(DELETIONS_STOPPED)),
                Err(kube::Error::Api(status)) if status.code == 403 => return false,
                Err(error) => {
                    tracing::warn!("cannot read the ConfigMap {CONFIG_MAP}, before which nothing is deleted: {error}");
                }
            }
            sleep(LOOK).await;
        }
    }

    /// Takes an approval, and tells what the deletions wait for.
    async fn look(&self, told: &mut Told) {
        if let Err(error) = self.synchronize(told).await {
            let why = self.deletions.stopped().map(|stopped| stopped.to_string());
            if why.is_some() && told.why != why {
                tracing::warn!("cannot write the ConfigMap {CONFIG_MAP}, with which deletions are approved: {error}");
            }
            told.why = why;
        }
    }

    async fn synchronize(&self, told: &mut Told) -> Result<(), kube::Error> {
        let known = self.api.get_opt(CONFIG_MAP).await?;
        let annotations = known.as_ref().map(|known| known.annotations().clone()).unwrap_or_default();
        let is_approved = annotations.contains_key(APPROVE_DELETIONS);
        // Without something that waits, an approval is for what an earlier process has stopped.
        if is_approved && self.deletions.stopped().is_some() {
            let approved = self.deletions.approve();
            tracing::info!("{approved} deletions in openZro are approved");
        }
        let stopped = self.deletions.stopped();
        let why = stopped.as_ref().map(Stopped::to_string);
        let is_new = is_approved || stopped.as_ref().is_some_and(|stopped| stopped.is_news(&told.namespaces));
        if !is_new && annotations.get(DELETIONS_STOPPED) == why.as_ref() {
            told.why = why;
            return Ok(());
        }
        let mut change = json!({ "metadata": { "annotations": { DELETIONS_STOPPED: why } } });
        if is_approved {
            // With the version that was read, because a later approval is for more deletions.
            change["metadata"]["annotations"][APPROVE_DELETIONS] = Value::Null;
            change["metadata"]["resourceVersion"] = json!(known.as_ref().and_then(ResourceExt::resource_version));
        }
        let merged = config_map::merge(&self.api, known.as_ref(), &change).await?;
        if let Some(stopped) = stopped.as_ref().filter(|_| is_new) {
            let note = sentence(stopped);
            tracing::warn!("{note}");
            self.events.send(Notice::warning(&merged, reasons::DELETIONS_STOPPED, "Reconcile", note));
        }
        *told = Told { why, namespaces: stopped.map(|stopped| stopped.namespaces).unwrap_or_default() };
        Ok(())
    }
}
