//! Kubernetes events, off the hot path.
//!
//! A reconcile hands an event to [`EventSink::send`] and goes on; a task of its own writes it. When the API server is slow or
//! away, or when permissions lack, events are dropped and counted, never waited for. An object may have 25 events at once, and then one more every
//! five minutes; an event `EventsLimited` on the object says when others are left out. A repetition within six minutes raises the count of the
//! existing event.

mod bucket;
mod recorder;
mod series;

use std::{pin::pin, time::Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use konverge_core::{error::in_one_line, reasons};
use kube::{Client, Resource, core::GroupVersionKind, runtime::events::EventType};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use tokio::sync::mpsc;

use self::{
    bucket::{BURST, Buckets, REFILL, Verdict},
    recorder::Recorder,
};

/// Events waiting to be written; more are dropped.
const CAPACITY: usize = 1024;

/// Something to tell the readers of an object's events. It gets no further field, so that it can be written as a literal.
#[derive(Debug, Clone)]
pub struct Notice {
    /// The object it is about, made with `Resource::object_ref` or [`reference()`]. A resource version in it would defeat the counting of repeats.
    pub regarding: ObjectReference,
    /// Whether somebody should look.
    pub kind: EventType,
    /// `CamelCase`, from a fixed list.
    pub reason: &'static str,
    /// The action, in `CamelCase`, from a fixed list.
    pub action: &'static str,
    /// For people. Cut to 1024 bytes. Never a secret value.
    pub note: String,
}

impl Notice {
    /// All is well with the object.
    pub fn normal<K>(object: &K, reason: &'static str, action: &'static str, note: impl Into<String>) -> Self
    where
        K: Resource<DynamicType: Default>,
    {
        let regarding = object.object_ref(&K::DynamicType::default());
        Self { regarding, kind: EventType::Normal, reason, action, note: note.into() }
    }

    /// Somebody should look at the object.
    pub fn warning<K>(object: &K, reason: &'static str, action: &'static str, note: impl Into<String>) -> Self
    where
        K: Resource<DynamicType: Default>,
    {
        Self { kind: EventType::Warning, ..Self::normal(object, reason, action, note) }
    }
}

/// Refers to an object of which no more is at hand than its names and its uid. `Resource::object_ref` does it for a whole one.
pub fn reference(kind: &GroupVersionKind, namespace: &str, name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some(kind.api_version()),
        kind: Some(kind.kind.clone()),
        name: Some(name.to_owned()),
        namespace: Some(namespace.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

/// Where reconcilers leave events. Cloning is cheap.
#[derive(Clone)]
pub struct EventSink {
    sender: mpsc::Sender<Notice>,
    results: Family<ResultLabels, Counter>,
}

impl EventSink {
    /// A sink that reports as `controller`, and the task that writes the events.
    ///
    /// The task ends when `stop` does or all sinks are dropped, after writing what was left until then.
    pub fn new<Stop>(
        client: Client,
        controller: &str,
        stop: Stop,
    ) -> (Self, impl Future<Output = ()> + Send + use<Stop>)
    where
        Stop: Future<Output = ()> + Send,
    {
        Self::to(Some(Recorder::new(client, controller)), stop)
    }

    /// A sink for a dry run: events are logged, and none is written.
    pub fn dry_run<Stop>(stop: Stop) -> (Self, impl Future<Output = ()> + Send + use<Stop>)
    where
        Stop: Future<Output = ()> + Send,
    {
        Self::to(None, stop)
    }

    fn to<Stop>(recorder: Option<Recorder>, stop: Stop) -> (Self, impl Future<Output = ()> + Send + use<Stop>)
    where
        Stop: Future<Output = ()> + Send,
    {
        let (sender, receiver) = mpsc::channel(CAPACITY);
        let results = Family::<ResultLabels, Counter>::default();
        (Self { sender, results: results.clone() }, write(recorder, receiver, results, stop))
    }

    /// A sink whose events the test receives.
    #[cfg(test)]
    pub(crate) fn captured() -> (Self, mpsc::Receiver<Notice>) {
        let (sender, receiver) = mpsc::channel(CAPACITY);
        (Self { sender, results: Family::default() }, receiver)
    }

    /// Leaves an event. Returns at once; the event is lost when too many wait already.
    pub fn send(&self, notice: Notice) {
        if self.sender.try_send(notice).is_err() {
            count(&self.results, "dropped");
        }
    }

    /// Adds `konverge_events_total{result}`: `published`, `limited` (one object said too much), `dropped` (the queue was full),
    /// `forbidden`, `failed` and `dry-run`.
    pub fn register(&self, registry: &mut Registry) {
        register(self.results.clone(), registry);
    }

    /// Adds the same series without a sink, for lists of what there will be.
    pub fn describe(registry: &mut Registry) {
        register(Family::default(), registry);
    }
}

fn register(results: Family<ResultLabels, Counter>, registry: &mut Registry) {
    registry.register("konverge_events", "Kubernetes events by what became of them", results);
}

async fn write(
    mut recorder: Option<Recorder>,
    mut receiver: mpsc::Receiver<Notice>,
    results: Family<ResultLabels, Counter>,
    stop: impl Future<Output = ()> + Send,
) {
    let mut buckets = Buckets::default();
    let mut told_forbidden = false;
    let mut stop = pin!(stop);
    loop {
        let next = tokio::select! {
            biased;
            () = &mut stop, if !receiver.is_closed() => {
                receiver.close();
                continue;
            }
            next = receiver.recv() => next,
        };
        let Some(notice) = next else { return };
        let notice = match buckets.take(&notice.regarding, Instant::now()) {
            Verdict::Allowed => notice,
            Verdict::FirstRefused => {
                count(&results, "limited");
                limited(notice)
            }
            Verdict::Refused => {
                count(&results, "limited");
                continue;
            }
        };
        let Some(recorder) = &mut recorder else {
            count(&results, "dry-run");
            let Notice { regarding, reason, note, .. } = notice;
            let (kind, name) = (regarding.kind.unwrap_or_default(), regarding.name.unwrap_or_default());
            tracing::info!(kind, name, reason, note, "dry run: would tell an event");
            continue;
        };
        match recorder.publish(&notice).await {
            Ok(()) => count(&results, "published"),
            Err(kube::Error::Api(status)) if status.code == 403 => {
                count(&results, "forbidden");
                if !std::mem::replace(&mut told_forbidden, true) {
                    tracing::warn!(
                        cause = status.message,
                        "may not write events; allow create and patch on events.events.k8s.io to see them (said once)"
                    );
                }
            }
            Err(error) => {
                count(&results, "failed");
                tracing::debug!(
                    error = %in_one_line(&error),
                    reason = notice.reason,
                    "could not write an event"
                );
            }
        }
    }
}

/// The event in place of the first one that is left out.
fn limited(notice: Notice) -> Notice {
    let note = format!(
        "more events are left out: this object has had {BURST} in a short time, and may have one more every {} s; its status and the \
         operator's log have the rest",
        REFILL.as_secs()
    );
    Notice { kind: EventType::Warning, reason: reasons::EVENTS_LIMITED, action: "Report", note, ..notice }
}

fn count(results: &Family<ResultLabels, Counter>, result: &'static str) {
    results.get_or_create(&ResultLabels { result }).inc();
}
