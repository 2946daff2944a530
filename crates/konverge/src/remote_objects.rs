//! Objects that stand for objects on a server: the record as an annotation, wakes through the queue, news as events.

pub(crate) mod metrics;

use std::time::Duration;

use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use k8s_openapi::{api::rbac::v1::PolicyRule, jiff::Timestamp};
use konverge_apply::{
    Writable,
    ledger::{CLUSTER_NAMESPACE, cluster_uid, deleting_for},
};
use konverge_core::{
    error::{Classify, ErrorClass, in_one_line},
    reasons,
};
use konverge_gen::Access;
use konverge_remote::{
    Binding, Failure, Finalized, Interest, Ledger, ObjectEvent, Record, Remote, Remotes, Settings, Step, Subject,
    SyncedItem,
};
use konverge_runtime::{
    cache::Store,
    object::{Object, ObjectKey},
};
use kube::{Resource, ResourceExt, runtime::events::EventType};
use prometheus_client::registry::Registry;

use self::metrics::RemoteMetrics;
use crate::{
    context::Context, error::Error, home::Home, part::Part, reconcile::Cleanup, setup::Setup, start_error::StartError,
    wakes::Trigger,
};

/// Annotation: what was intended on servers for the object, bound to its uid and cluster. The operator writes it before it creates anything there.
pub const RECORD: &str = "konverge.dev/remote";

/// The client of items on a server, as a part of a program; see [`Operator::remote`](crate::Operator::remote).
pub(crate) struct RemotePart<R: Remote> {
    pub(crate) remotes: Remotes<R>,
    pub(crate) begin: Begin<R>,
}

/// Makes a client and its settings when the flags are known.
pub(crate) type Begin<R> = Box<dyn FnOnce(&Setup) -> Result<(R, Settings), Error> + Send>;

impl<R: Remote> Part for RemotePart<R> {
    fn access(&self, _: &Home<'_>, everywhere: &mut Access, _: &mut Access) {
        let words = |word: &str| Some(vec![word.to_owned()]);
        let rule = PolicyRule {
            api_groups: words(""),
            resources: words("namespaces"),
            resource_names: words(CLUSTER_NAMESPACE),
            verbs: vec!["get".to_owned()],
            ..PolicyRule::default()
        };
        // Several collections need it once.
        if !everywhere.rules().contains(&rule) {
            everywhere.rules_of([rule]);
        }
    }

    fn describe(&self, registry: &mut Registry) {
        drop(RemoteMetrics::register(registry));
    }

    fn install(self: Box<Self>, setup: &mut Setup) -> BoxFuture<'_, Result<(), StartError>> {
        let begun = (self.begin)(setup).map(|(remote, settings)| self.remotes.begin(remote, settings));
        let part = format!("the client of {}", R::NOUN);
        let result = begun.map_err(|source| StartError::Part { part, source: Box::new(source) });
        if result.is_ok() {
            let remotes = self.remotes;
            let metrics =
                setup.series.remote.get_or_insert_with(|| setup.metrics.register(RemoteMetrics::register)).clone();
            let measured = remotes.clone();
            setup.metrics.before_scrape(move || metrics.show(R::NOUN, &measured.figures()));
            setup.manager.leader_task(format!("remote {}", R::NOUN), async move { remotes.poll().await });
        }
        std::future::ready(result).boxed()
    }
}

/// The changes of items as a trigger of the objects that stand for them; see [`Controller::remote`](crate::Controller::remote).
pub(crate) fn trigger<K: Object, R: Remote>(
    remotes: &Remotes<R>,
    kind: &K::DynamicType,
    interest: impl Fn(&K) -> Interest + Send + Sync + 'static,
) -> Trigger<K> {
    let (remotes, kind) = (remotes.clone(), kind.clone());
    let stream = move |_: &mut Setup, store: Store<K>| {
        let word = K::kind(&kind).into_owned();
        let told = remotes.clone();
        store.subscribe(move |key, change| {
            let interest = change.new.as_ref().map(|object| interest_of(&**object, interest(object)));
            told.interest(&subject(key, K::kind(&kind).into_owned()), interest);
        });
        // Only the leader takes them, and all objects run when it begins to lead.
        let changes = async move { stream::unfold(remotes.changes(&word), next_key) };
        changes.flatten_stream().boxed()
    };
    Trigger { name: R::NOUN, stream: Box::new(stream), on_standbys: false, describe: |_| () }
}

type Changes = Option<tokio::sync::mpsc::UnboundedReceiver<Subject>>;

async fn next_key(mut changes: Changes) -> Option<(ObjectKey, Changes)> {
    let Some(receiver) = changes.as_mut() else {
        // The program was given no client, so there is no server whose items could change.
        return std::future::pending().await;
    };
    let Subject { namespace, name, .. } = receiver.recv().await?;
    Some((ObjectKey { namespace, name }, changes))
}

fn subject(key: &ObjectKey, kind: String) -> Subject {
    Subject { kind, namespace: key.namespace.clone(), name: key.name.clone() }
}

/// Adds to an interest what every object says of itself: its uid and age, whether it has a [`RECORD`] of its own, and whether it is being deleted.
///
/// A controller does this by itself. A tool beside it, such as one that shows the plan of the next run, needs it to tell the interests.
#[must_use]
pub fn interest_of<K: Resource>(object: &K, mut interest: Interest) -> Interest {
    let metadata = object.meta();
    interest.uid = metadata.uid.clone().unwrap_or_default();
    interest.created = metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second());
    let record = metadata.annotations.as_ref().and_then(|annotations| annotations.get(RECORD));
    interest.is_recorded = record.is_some_and(|record| Record::is_of(record, &interest.uid));
    interest.is_deleting = metadata.deletion_timestamp.is_some();
    interest
}

/// The items of one object in a run; see [`Context::remote`].
pub struct RemoteObject<'a, K: Object, R: Remote> {
    context: &'a Context<K>,
    remotes: &'a Remotes<R>,
}

impl<K: Object + Writable> Context<K> {
    /// The items on a server that the object stands for. The controller must be [declared](crate::Controller::remote) to have them.
    pub fn remote<'a, R: Remote>(&'a self, remotes: &'a Remotes<R>) -> RemoteObject<'a, K, R> {
        RemoteObject { context: self, remotes }
    }
}

impl<K: Object + Writable, R: Remote> RemoteObject<'_, K, R> {
    /// Makes the item as desired. Put the id of the answer into the status, also if a later step of the run fails. No call is made for an item
    /// that is in sync, so the run can end with [`Action::Done`](konverge_runtime::Action::Done).
    pub async fn apply(&self, binding: &Binding, desired: &R::Desired) -> Result<SyncedItem<R::Item>, Error> {
        let ledger = self.ledger().await?;
        Ok(self.remotes.apply(&ledger, binding, desired).await?)
    }

    /// Undoes it, as the policies of the binding say: for [`Reconcile::finalize`](crate::Reconcile::finalize).
    pub async fn finalize(&self, binding: &Binding) -> Result<Cleanup, Error> {
        let ledger = self.ledger().await?;
        Ok(cleanup(self.remotes.finalize(&ledger, binding).await?))
    }

    /// Undoes one part of an object that stays. Take its id out of the status once this is [`Cleanup::Done`].
    pub async fn withdraw(&self, binding: &Binding) -> Result<Cleanup, Error> {
        let ledger = self.ledger().await?;
        Ok(cleanup(self.remotes.withdraw(&ledger, binding).await?))
    }

    /// Releases an object whose item other objects share: the item stays, without the mark of this object, and the next run of one of the others takes
    /// it over. For [`Reconcile::finalize`](crate::Reconcile::finalize).
    pub async fn hand_over(&self, binding: &Binding) -> Result<Cleanup, Error> {
        let ledger = self.ledger().await?;
        Ok(cleanup(self.remotes.hand_over(&ledger, binding).await?))
    }

    /// Returns the parts that may have been created for the object in this collection, by its record.
    pub async fn parts(&self) -> Result<Vec<String>, Error> {
        let ledger = self.ledger().await?;
        Ok(self.remotes.parts(&ledger))
    }

    /// Returns what the next run would do, without a write. `desired` is `None` for the deletion of the object.
    pub async fn preview(&self, binding: &Binding, desired: Option<&R::Desired>) -> Result<Step<R::Item>, Error> {
        let ledger = self.ledger().await?;
        Ok(self.remotes.preview(&ledger, binding, desired).await?)
    }

    async fn ledger(&self) -> Result<ObjectLedger<'_, K>, Error> {
        let read = async {
            let message = "cannot tell this cluster from others: allow the service account to get the namespace kube-system, or name the \
                           cluster in the settings";
            cluster_uid(self.context.client()).await.map_err(|error| {
                let class = konverge_apply::error::class_of(&error);
                Error::new(class, reasons::REQUEST_FAILED, message).caused_by(error)
            })
        };
        let cluster = self.remotes.cluster(read).await?;
        Ok(ObjectLedger { context: self.context, cluster })
    }
}

fn cleanup(finalized: Finalized) -> Cleanup {
    match finalized {
        Finalized::Done => Cleanup::Done,
        Finalized::Pending(after, reason, message) => {
            let reason = konverge_apply::conditions::Reason::parse(reason);
            let reason = reason.unwrap_or(const { konverge_apply::conditions::Reason::new(reasons::FAILED) });
            Cleanup::pending(after, reason, message)
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Self::new(failure.class(), failure.reason(), failure.to_string())
    }
}

/// The record of the object of a run.
struct ObjectLedger<'a, K: Object> {
    context: &'a Context<K>,
    cluster: &'a str,
}

impl<K: Object + Writable> Ledger for ObjectLedger<'_, K> {
    fn subject(&self) -> Subject {
        let object = self.context.object();
        let kind = K::kind(self.context.kind()).into_owned();
        Subject { kind, namespace: object.namespace(), name: object.name_any() }
    }

    fn uid(&self) -> &str {
        self.context.object().meta().uid.as_deref().unwrap_or_default()
    }

    fn cluster(&self) -> &str {
        self.cluster
    }

    fn deleting_for(&self) -> Duration {
        let deleted = self.context.object().meta().deletion_timestamp.as_ref();
        deleting_for(deleted.map(|time| time.0), Timestamp::now())
    }

    fn record(&self) -> Option<String> {
        self.context.written().annotations().get(RECORD).cloned()
    }

    fn is_held(&self) -> bool {
        let finalizers = self.context.shared().finalizers.as_ref();
        finalizers.is_some_and(|finalizers| finalizers.hold(&*self.context.written()))
    }

    async fn write(&self, record: &str, hold: bool) -> Result<(), Failure> {
        self.write_record(record, hold).await.map_err(|error| failure(&error))
    }

    fn check_lease(&self) -> Result<(), Failure> {
        self.context.check_lease().map_err(|error| failure(&error))
    }

    fn is_dry_run(&self) -> bool {
        self.context.applier().is_dry_run()
    }

    fn publish(&self, ObjectEvent { reason, message, .. }: ObjectEvent) {
        let is_warning = matches!(reason, "LeftBehind" | "DeletionsStopped");
        let kind = if is_warning { EventType::Warning } else { EventType::Normal };
        self.context.event(kind, reason, "Reconcile", message);
    }
}

impl<K: Object + Writable> ObjectLedger<'_, K> {
    async fn write_record(&self, record: &str, hold: bool) -> Result<(), Error> {
        let context = self.context;
        if !hold {
            return context.annotate(RECORD, record).await;
        }
        if context.is_gone() {
            // A record protects what the next run would need to know, and lives on the object.
            return Ok(());
        }
        let finalizer = context.shared().finalizers.as_ref().map(|finalizers| finalizers.name).ok_or_else(|| {
            let message = "the controller has no finalizer; add .finalizer_on_demand(\"…\") to it";
            Error::new(ErrorClass::Permanent, reasons::UNDECLARED, message)
        })?;
        let (applier, object, annotation) = (context.applier(), context.written(), (RECORD, record));
        let after = applier.add_finalizer_and_annotation_with(&*object, finalizer, annotation, context.kind()).await?;
        if let Some(after) = after {
            context.has_written(&after)?;
        }
        Ok(())
    }
}

/// An error of the cluster as one of the layer beneath. It had no effect on the server.
fn failure(error: &Error) -> Failure {
    Failure::new(error.class(), error.reason(), in_one_line(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_client_nothing_changes_and_the_stream_does_not_end() {
        assert!(next_key(None).now_or_never().is_none());
    }
}
