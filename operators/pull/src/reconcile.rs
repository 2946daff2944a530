//! One Secret from what it declares to what it holds: observe, plan, apply, report.

mod apply;
mod observe;
mod report;

use std::{sync::Arc, time::Duration};

use konverge_apply::{ApplyError, SecretApplier, error::class_of, events::EventSink};
use konverge_core::{
    digest::DigestKey,
    error::{Classify, ErrorClass},
};
use konverge_runtime::{Action as Next, Reconciler, Request};
use konverge_zopp_client::{FetchError, Snapshot};
use kube::Client;
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep},
};

use crate::{
    bindings::{Binding, Bindings, SecretRef, Source},
    hub::Hub,
    messages::Message,
    metrics::Metrics,
    plan::{Action, Observed, Plan, Upstream, plan},
};

/// The field manager of every write, and that of the original operator, whose keys are thereby ours.
pub const FIELD_MANAGER: &str = "zopp-operator";

/// After a write the Secret is left alone this long, so that a burst of changes becomes one more write and not many.
const QUIET: Duration = Duration::from_millis(100);

/// Between the two reads that confirm an empty environment.
const CONFIRM_AFTER: Duration = Duration::from_millis(500);

/// Brings one annotated Secret in step.
pub struct Pull {
    client: Client,
    applier: SecretApplier,
    events: EventSink,
    bindings: Arc<Bindings>,
    metrics: Metrics,
    digest_key: DigestKey,
    /// Id of the operator's principal, for messages that say what to grant.
    principal: String,
    /// One for each Secret that may be read and written at the same time.
    permits: Semaphore,
}

/// The API server stood in the way. What stands in zopp's way is no error here: the hub tries again.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// The Secret could not be read.
    #[error("cannot read secret {secret}: {source}")]
    Read {
        /// Which one.
        secret: SecretRef,
        /// What the client said.
        source: Box<kube::Error>,
    },
    /// The Secret could not be written.
    #[error(transparent)]
    Apply(#[from] ApplyError),
}

impl Classify for PullError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Read { source, .. } => class_of(source),
            Self::Apply(error) => error.class(),
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Read { .. } => "SecretUnreadable",
            Self::Apply(error) => error.reason(),
        }
    }
}

impl Pull {
    /// Reads and writes with `client`, `workers` Secrets at once; `digest_key` is this process's own.
    pub fn new(
        client: Client,
        events: EventSink,
        bindings: Arc<Bindings>,
        metrics: Metrics,
        digest_key: DigestKey,
        principal: String,
        workers: usize,
    ) -> Self {
        let applier = SecretApplier::new(client.clone(), FIELD_MANAGER);
        let permits = Semaphore::new(workers);
        Self { client, applier, events, bindings, metrics, digest_key, principal, permits }
    }

    /// Brings the Secret in step with its environment.
    async fn sync(&self, key: &SecretRef, binding: &Binding, hub: &Hub) -> Result<Next, PullError> {
        if is_in_step(binding, hub) {
            return Ok(Next::Done);
        }
        if let Some(wait) = binding.written_at.and_then(|at| QUIET.checked_sub(at.elapsed())) {
            sleep(wait).await;
        }
        let confirming = binding.empty_since.is_some_and(|since| since.elapsed() >= CONFIRM_AFTER);
        let fetched = if confirming { hub.snapshot_since(Instant::now()).await } else { hub.snapshot().await };
        let mut snapshot = match fetched {
            Ok(snapshot) => snapshot,
            Err(error) => return Ok(self.fetch_failed(key, binding, &error)),
        };
        // The semaphore is never closed; without it, the work would only be less orderly.
        let _permit = self.permits.acquire().await.ok();
        if !binding.touched
            && let Some(verified) = &binding.verified
        {
            let plan = plan(&upstream(&snapshot), &Observed::Unchanged(verified), &self.digest_key, confirming);
            if !matches!(plan.action, Action::ReadFirst) {
                let seen = Seen { version: binding.newest_known().map(ToOwned::to_owned), was_read: false };
                match self.carry_out(key, binding, hub, plan, seen).await {
                    // Another writer was faster than the watch.
                    Err(PullError::Apply(ApplyError::OutOfDate { .. })) => {}
                    done => return done,
                }
            }
        }
        let Some(read) = observe::read(&self.client, &self.applier, key, binding).await? else {
            self.metrics.synced("gone");
            return Ok(Next::Done);
        };
        if !read.contents.is_as_verified(binding.verified.as_ref(), &self.digest_key) {
            // Another writer may have put in what this snapshot does not have yet. What is fetched after the Secret was read has it.
            snapshot = match hub.snapshot_since(Instant::now()).await {
                Ok(snapshot) => snapshot,
                Err(error) => return Ok(self.fetch_failed(key, binding, &error)),
            };
        }
        let observed = Observed::Read(&read.contents, binding.verified.as_ref());
        let plan = plan(&upstream(&snapshot), &observed, &self.digest_key, confirming);
        let seen = Seen { version: Some(read.resource_version.clone()), was_read: true };
        self.carry_out(key, binding, hub, plan, seen).await
    }

    /// Reports that the environment could not be read. The hub tries again, and wakes the binding.
    fn fetch_failed(&self, key: &SecretRef, binding: &Binding, error: &FetchError) -> Next {
        self.metrics.synced("failed");
        let message = Message::fetch_failed(&self.principal, error);
        if !binding.said.iter().any(|said| said.says_more_than(&message)) {
            self.say(key, binding, vec![message]);
        }
        Next::Done
    }

    /// Applies and reports. The write has the version that was seen as its precondition.
    async fn carry_out(
        &self,
        key: &SecretRef,
        binding: &Binding,
        hub: &Hub,
        plan: Plan<'_>,
        seen: Seen,
    ) -> Result<Next, PullError> {
        let mut known: Vec<String> = seen.version.clone().filter(|_| seen.was_read).into_iter().collect();
        let desired = match plan.action {
            Action::Apply(desired) => desired,
            Action::ConfirmEmpty => {
                let since = *binding.empty_since.as_ref().unwrap_or(&Instant::now());
                self.bindings.settle(key, binding, |binding| binding.empty_since = Some(since));
                return Ok(Next::After(CONFIRM_AFTER));
            }
            Action::Nothing | Action::Keep | Action::ReadFirst => {
                let kept = !matches!(plan.action, Action::Nothing);
                self.metrics.synced(if kept { "kept" } else { "unchanged" });
                let verified = plan.verified;
                self.bindings.settle(key, binding, |now| {
                    now.empty_since = None;
                    if !known.is_empty() {
                        now.knows(known, &binding.seen);
                    }
                    if verified.is_some() {
                        now.verified = verified;
                    }
                });
                let version = hub.stated().map_or(0, |stated| stated.version);
                self.report(key, binding, &plan.problems, None, version);
                return Ok(Next::Done);
            }
        };
        // The annotation may have gone while this waited, and with it the permission to write.
        if !self.bindings.is_current(key, binding) {
            return Ok(Next::Done);
        }
        let keys = desired.len();
        let applied = apply::apply(&self.applier, key, binding, seen.version.as_deref(), &desired).await;
        if let Err(error) = &applied
            && error.is_immutable()
        {
            self.metrics.synced("failed");
            // Only replacing the Secret helps, and the watch shows that. Until then it is read before it would be written.
            self.bindings.settle(key, binding, |now| now.verified = None);
            self.say(key, binding, vec![Message::apply_failed(error)]);
            return Ok(Next::Done);
        }
        let Some(resource_version) = applied.inspect_err(|error| {
            // That another writer was faster is no failure: the Secret is read, and decided upon anew.
            if !matches!(error, ApplyError::OutOfDate { .. }) {
                self.metrics.synced("failed");
                if let ApplyError::Altered { resource_version, .. } = error {
                    // The change is this write's, so it is no reason to look again; what the Secret holds is not verified.
                    self.bindings.settle(key, binding, |now| {
                        now.knows(vec![resource_version.clone()], &binding.seen);
                        now.verified = None;
                    });
                }
                self.say(key, binding, vec![Message::apply_failed(error)]);
            }
        })?
        else {
            self.metrics.synced("gone");
            return Ok(Next::Done);
        };
        self.metrics.synced("changed");
        // Only what a change upstream brought: a repair or a new binding has no moment at which it was heard of.
        if let (Some(before), Some(stated)) = (&binding.verified, hub.stated())
            && before.version != stated.version
        {
            self.metrics.propagated(stated.since.elapsed());
        }
        known.push(resource_version);
        let verified = plan.verified;
        let version = verified.as_ref().map_or(0, |verified| verified.version);
        self.bindings.settle(key, binding, |now| {
            now.empty_since = None;
            now.written_at = Some(Instant::now());
            now.knows(known, &binding.seen);
            now.verified = verified;
        });
        self.report(key, binding, &plan.problems, Some(keys), version);
        Ok(Next::Done)
    }
}

/// The state of the Secret that a plan was made for.
struct Seen {
    /// Its resource version.
    version: Option<String>,
    /// Whether it was read, rather than known from what this process wrote.
    was_read: bool,
}

fn upstream(snapshot: &Snapshot) -> Upstream<'_> {
    Upstream {
        environment_id: &snapshot.environment_id,
        version: snapshot.version,
        values: &snapshot.values,
        failed: &snapshot.failed,
    }
}

/// Whether the Secret holds what the server stated last, and nobody else wrote to it.
fn is_in_step(binding: &Binding, hub: &Hub) -> bool {
    let (Some(verified), Some(stated)) = (&binding.verified, hub.stated()) else { return false };
    !binding.touched
        && binding.empty_since.is_none()
        && verified.environment_id == stated.environment_id
        && verified.version == stated.version
        && !binding.said.iter().any(Message::is_passing)
}

impl Reconciler for Pull {
    type Key = SecretRef;
    type Error = PullError;

    async fn reconcile(&self, request: Request<SecretRef>) -> Result<Next, PullError> {
        let key = &request.key;
        // Not bound any more: whoever asked did so before the watch showed that.
        let Some(binding) = self.bindings.get(key) else { return Ok(Next::Done) };
        match &binding.source {
            Source::Incomplete(missing) => self.say(key, &binding, vec![Message::incomplete(missing)]),
            Source::NotAllowed(name) => self.say(key, &binding, vec![Message::not_allowed(&key.namespace, name)]),
            Source::Environment(_, hub) => return self.sync(key, &binding, hub).await,
        }
        Ok(Next::Done)
    }
}
