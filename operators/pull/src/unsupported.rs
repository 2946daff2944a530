//! Objects of the kind `ZoppSecretSync`, which the original operator follows and this one does not: each gets an event that says so.
//!
//! The kind is looked for once, at the start. A cluster without its definition costs no further request.

use std::{collections::HashSet, fmt, pin::pin, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use konverge_apply::{Announcer, events, events::EventSink, statement_log};
use konverge_runtime::{
    Action as Next, Priority, Queue, Reconciler, Request,
    object::Scope,
    watch::{self, EventHandler, Origin, WatchOptions},
};
use kube::{
    Api, Client,
    api::ListParams,
    core::{ApiResource, DynamicObject, DynamicResourceScope, GroupVersionKind, PartialObjectMeta},
};

use crate::{messages, reconcile::PullError};

/// The plural of the kind.
pub(crate) const PLURAL: &str = "zoppsecretsyncs";
/// The group of the kind.
pub(crate) const GROUP: &str = "zopp.dev";

/// Between two attempts to find out whether the kind exists, if the API server does not answer.
const PAUSE: Duration = Duration::from_secs(5);

/// The kind, as a dynamic client names it.
pub(crate) fn kind() -> ApiResource {
    ApiResource::from_gvk_with_plural(&gvk(), PLURAL)
}

fn gvk() -> GroupVersionKind {
    GroupVersionKind::gvk(GROUP, "v1alpha1", "ZoppSecretSync")
}

/// One object of the kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SyncRef {
    namespace: String,
    name: String,
    uid: String,
}

impl fmt::Display for SyncRef {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.namespace, self.name)
    }
}

/// Queues each object of the kind for its event, for as long as the process runs. Ends if the cluster does not know the kind, or the role does not
/// allow to list it.
pub(crate) async fn follow(client: Client, namespace: Option<String>, queue: Queue<SyncRef>) {
    let resource = kind();
    let api: Api<DynamicObject> = DynamicResourceScope::api(client.clone(), &resource, namespace.as_deref());
    loop {
        match api.list_metadata(&ListParams::default().limit(1)).await {
            Ok(_) => break,
            // A task of the manager ends with the process.
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => return std::future::pending().await,
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
    tracing::warn!("the cluster has the kind ZoppSecretSync, which is not supported; its objects get an event");
    let options = WatchOptions::default().with(|options| {
        options.namespace = namespace;
        options.optional = true;
    });
    let (events, _) = watch::events::<PartialObjectMeta<DynamicObject>>(client, &resource, &options);
    let mut handler = Handler { queue, seen: HashSet::new() };
    watch::handle_events(pin!(events), &mut handler).await;
}

struct Handler {
    queue: Queue<SyncRef>,
    /// The objects that were queued already.
    seen: HashSet<SyncRef>,
}

impl EventHandler<PartialObjectMeta<DynamicObject>> for Handler {
    type Key = SyncRef;

    fn key(&self, metadata: &ObjectMeta) -> Option<SyncRef> {
        let (namespace, name, uid) = (metadata.namespace.clone()?, metadata.name.clone()?, metadata.uid.clone()?);
        Some(SyncRef { namespace, name, uid })
    }

    fn apply(&mut self, key: &SyncRef, _: PartialObjectMeta<DynamicObject>, _: Origin) -> bool {
        if self.seen.insert(key.clone()) {
            self.queue.add(key.clone(), Priority::Low, "unsupported");
        }
        true
    }

    fn delete(&mut self, key: &SyncRef) {
        self.seen.remove(key);
        self.queue.remove(key);
    }

    fn replace(&mut self, listed: &HashSet<SyncRef>) {
        self.seen.retain(|key| listed.contains(key));
        self.queue.retain(|key| listed.contains(key));
    }
}

/// Leaves the event on each object.
pub(crate) struct Unsupported {
    announcer: Announcer,
}

impl Unsupported {
    /// Leaves events at `events`.
    pub(crate) fn new(events: EventSink) -> Self {
        Self { announcer: Announcer::new(events, "Pull", statement_log!(zopp_secret_sync)) }
    }
}

impl Reconciler for Unsupported {
    type Key = SyncRef;
    type Error = PullError;

    async fn reconcile(&self, request: Request<SyncRef>) -> Result<Next, PullError> {
        let SyncRef { namespace, name, uid } = &request.key;
        let regarding = events::reference(&gvk(), namespace, name, uid);
        self.announcer.announce_new(&request.key, &regarding, &[messages::kind_not_supported()], |_| false);
        Ok(Next::Done)
    }
}
