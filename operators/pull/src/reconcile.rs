//! One Secret from what it declares to what it holds: observe, plan, apply, report.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Secret;
use konverge_apply::{
    Announcer, ApplyError, Outcome, SecretApplier, SecretTarget, Statement,
    error::class_of,
    events::{self, EventSink},
    field_ownership, statement_log,
};
use konverge_core::{
    SecretValue,
    digest::DigestKey,
    error::{Classify, ErrorClass},
};
use konverge_runtime::{Action as Next, Reconciler, Request};
use konverge_zopp_client::{EnvironmentName, FetchError};
use kube::{
    Api, Client,
    core::{GroupVersionKind, PartialObjectMetaExt},
};
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep},
};
use tracing::info;

use crate::{
    annotations::{Declaration, declaration},
    bindings::{Binding, Bindings, Learned, SecretRef},
    hub::Hub,
    messages,
    metrics::Metrics,
    plan::{Action, Contents, Observed, Plan, Problem, Verified, plan},
};

/// The field manager of every write, and that of the original operator, whose keys are thereby ours.
pub const FIELD_MANAGER: &str = "zopp-operator";

/// The `action` of every event of this operator.
const ACTION: &str = "Pull";

/// After a write the Secret is left alone this long, so that a burst of changes becomes one more write and not many.
const QUIET: Duration = Duration::from_millis(100);

/// Between the two reads that confirm an empty environment.
const CONFIRM_AFTER: Duration = Duration::from_millis(500);

/// Syncs annotated Secrets with their environments.
pub struct Pull {
    client: Client,
    applier: SecretApplier,
    announcer: Announcer,
    bindings: Arc<Bindings>,
    metrics: Metrics,
    /// This process's own: no digest leaves it.
    digest_key: DigestKey,
    /// Id of the operator's principal, for messages that say what to grant.
    principal: String,
    /// One for each Secret that may be read and written at the same time.
    permits: Semaphore,
}

/// The API server did not do its part. A failure of zopp is no error here: the hub tries again.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// The Secret could not be read.
    #[error("cannot read secret {secret}: {source}")]
    Read {
        /// Which one.
        secret: SecretRef,
        /// The client's error.
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
    /// Reads and writes with `client`, `workers` Secrets at once.
    pub fn new(
        client: Client,
        events: EventSink,
        bindings: Arc<Bindings>,
        metrics: Metrics,
        principal: String,
        workers: usize,
    ) -> Self {
        Self {
            applier: SecretApplier::new(client.clone(), FIELD_MANAGER),
            client,
            announcer: Announcer::new(events, ACTION, statement_log!(secret)),
            bindings,
            metrics,
            digest_key: DigestKey::new(rand::random()),
            principal,
            permits: Semaphore::new(workers),
        }
    }

    /// Syncs the Secret with its environment.
    async fn sync(&self, run: Run<'_>) -> Result<Next, PullError> {
        let Run { key, binding, hub, .. } = run;
        if is_in_sync(binding, hub) {
            return Ok(Next::Done);
        }
        if let Some(wait) = binding.written_at.and_then(|at| QUIET.checked_sub(at.elapsed())) {
            sleep(wait).await;
        }
        let is_confirming = binding.empty_since.is_some_and(|since| since.elapsed() >= CONFIRM_AFTER);
        let mut snapshot = match hub.snapshot(is_confirming.then(Instant::now)).await {
            Ok(snapshot) => snapshot,
            Err(error) => return Ok(self.fetch_failed(run, &error)),
        };
        // The semaphore is never closed; without it, the work would only be less orderly.
        let _permit = self.permits.acquire().await.ok();
        if !binding.is_touched
            && let Some(verified) = &binding.verified
        {
            let plan = plan(&snapshot, &Observed::Unchanged(verified), &self.digest_key, is_confirming);
            if !matches!(plan.action, Action::ReadFirst) {
                let seen = Seen { version: binding.known.clone(), was_read: false };
                match self.carry_out(run, plan, snapshot.proven, seen).await {
                    // Another writer was faster than the watch.
                    Err(PullError::Apply(ApplyError::OutOfDate { .. })) => {}
                    done => return done,
                }
            }
        }
        let Some(read) = self.read(key, binding).await? else {
            self.metrics.synced("gone");
            return Ok(Next::Done);
        };
        if !read.contents.is_as_verified(binding.verified.as_ref(), &self.digest_key) {
            // Another writer may have put in a change that this snapshot lacks. A snapshot fetched after the Secret was read has it.
            snapshot = match hub.snapshot(Some(Instant::now())).await {
                Ok(snapshot) => snapshot,
                Err(error) => return Ok(self.fetch_failed(run, &error)),
            };
        }
        let observed = Observed::Read(&read.contents, binding.verified.as_ref());
        let plan = plan(&snapshot, &observed, &self.digest_key, is_confirming);
        let seen = Seen { version: Some(read.resource_version.clone()), was_read: true };
        self.carry_out(run, plan, snapshot.proven, seen).await
    }

    /// Reads the Secret. `None` if it is gone, if another one has its name, or if it no longer requests this environment. The watch will show that, too.
    ///
    /// Keys that the original operator wrote by merge patches are taken over before, so that those that are no longer upstream can go.
    async fn read(&self, key: &SecretRef, binding: &Binding) -> Result<Option<Read>, PullError> {
        let api = Api::<Secret>::namespaced(self.client.clone(), &key.namespace);
        let found = api.get_opt(&key.name).await;
        let found = found.map_err(|source| PullError::Read { secret: key.clone(), source: Box::new(source) })?;
        let Some(Secret { data, immutable, metadata, .. }) = found else { return Ok(None) };
        // Each value moves from the decoder's buffer into one that is wiped.
        let data: BTreeMap<String, SecretValue> =
            data.unwrap_or_default().into_iter().map(|(name, value)| (name, SecretValue::new(value.0))).collect();
        let declared = metadata.annotations.as_ref().and_then(declaration);
        if metadata.uid.as_deref() != Some(&binding.uid) || declared.as_ref() != Some(&binding.declared) {
            return Ok(None);
        }
        let manager = self.applier.manager();
        let keys = field_ownership::data_keys(metadata.managed_fields.as_deref().unwrap_or_default(), manager);
        let contents = Contents { data, owned: keys.all(), immutable: immutable.unwrap_or_default() };
        let mut resource_version = metadata.resource_version.clone().unwrap_or_default();
        if !keys.updated.is_empty() {
            match self.applier.take_over(&metadata.into_response_partial(), manager).await? {
                Outcome::Changed { resource_version: now } | Outcome::Unchanged { resource_version: now } => {
                    resource_version = now;
                }
                // It is gone, as far as anybody knows; what becomes of it begins another run.
                _ => return Ok(None),
            }
        }
        Ok(Some(Read { contents, resource_version }))
    }

    /// Reports that the environment could not be read. The hub tries again, and wakes the binding.
    fn fetch_failed(&self, run: Run<'_>, error: &FetchError) -> Next {
        self.metrics.synced("failed");
        let statement = messages::fetch_failed(&self.principal, error);
        if !run.binding.said.iter().any(|said| messages::explains_more_than(said, &statement)) {
            self.say(run.key, run.binding, vec![statement]);
        }
        Next::Done
    }

    /// Applies the plan and reports.
    async fn carry_out(&self, run: Run<'_>, plan: Plan<'_>, proven: bool, seen: Seen) -> Result<Next, PullError> {
        let Plan { action, verified, problems } = plan;
        let found = Found { verified, problems, proven };
        match action {
            Action::Apply(desired) => self.write(run, &desired, found, seen).await,
            Action::ConfirmEmpty => {
                let since = run.binding.empty_since.unwrap_or_else(Instant::now);
                self.bindings.settle(run.key, run.binding, |binding| binding.empty_since = Some(since));
                Ok(Next::After(CONFIRM_AFTER))
            }
            Action::Nothing => Ok(self.leave(run, found, &seen, "unchanged")),
            Action::Keep | Action::ReadFirst => Ok(self.leave(run, found, &seen, "kept")),
        }
    }

    /// Leaves the Secret as it is.
    fn leave(&self, run: Run<'_>, found: Found, seen: &Seen, result: &'static str) -> Next {
        let Run { key, binding, .. } = run;
        self.metrics.synced(result);
        if let Some(read) = seen.read() {
            self.bindings.learned(key, binding, Learned { read: Some(read), written: None });
        }
        self.bindings.settle(key, binding, |now| {
            now.empty_since = None;
            if found.verified.is_some() {
                now.verified = found.verified;
            }
        });
        self.report(run, &found.problems, found.proven);
        Next::Done
    }

    /// Writes the Secret and reports. The write has the version that was seen as its precondition.
    async fn write(
        &self,
        run: Run<'_>,
        desired: &BTreeMap<&str, &SecretValue>,
        found: Found,
        seen: Seen,
    ) -> Result<Next, PullError> {
        let Run { key, binding, environment, hub } = run;
        // The annotation may have gone while this waited, and with it the permission to write.
        if !self.bindings.is_current(key, binding) {
            return Ok(Next::Done);
        }
        let resource_version = seen.version.as_deref();
        let target = SecretTarget { namespace: &key.namespace, name: &key.name, uid: &binding.uid, resource_version };
        let written = match self.applier.apply(target, &BTreeMap::new(), desired).await {
            Ok(Outcome::Changed { resource_version } | Outcome::Unchanged { resource_version }) => resource_version,
            // It is gone, as far as anybody knows; what becomes of it begins another run.
            Ok(_) => {
                self.metrics.synced("gone");
                return Ok(Next::Done);
            }
            Err(error) => return self.write_failed(run, error),
        };
        self.metrics.synced("changed");
        // Only a change of the environment has a moment at which it was heard of; a repair or a new binding has none.
        if let (Some(before), Some(stated)) = (&binding.verified, hub.stated())
            && before.version != stated.version
        {
            self.metrics.propagated(stated.since.elapsed());
        }
        self.bindings.learned(key, binding, Learned { read: seen.read(), written: Some(&written) });
        let version = found.verified.as_ref().map_or(0, |verified| verified.version);
        self.bindings.settle(key, binding, |now| {
            now.empty_since = None;
            now.written_at = Some(Instant::now());
            now.verified = found.verified;
        });
        // An event for every change would cost as much as the change; the log has them all.
        info!(secret = %key, %environment, version, keys = desired.len(), "written");
        self.report(run, &found.problems, found.proven);
        Ok(Next::Done)
    }

    /// Reports that the write failed.
    fn write_failed(&self, run: Run<'_>, error: ApplyError) -> Result<Next, PullError> {
        let Run { key, binding, .. } = run;
        // That another writer was faster is no failure: the Secret is read, and decided upon anew.
        if matches!(error, ApplyError::OutOfDate { .. }) {
            return Err(error.into());
        }
        self.metrics.synced("failed");
        if let ApplyError::Altered { resource_version, .. } = &error {
            // The change is this write's, so it is no reason to look again.
            self.bindings.learned(key, binding, Learned { read: None, written: Some(resource_version) });
        }
        if error.is_immutable() || matches!(error, ApplyError::Altered { .. }) {
            // The content of the Secret is not verified, so it is read before it is written again.
            self.bindings.settle(key, binding, |now| now.verified = None);
        }
        self.say(key, binding, vec![messages::apply_failed(&error)]);
        // Only replacing an immutable Secret helps, and the watch shows that.
        if error.is_immutable() { Ok(Next::Done) } else { Err(error.into()) }
    }

    /// Tells the owner what the plan found.
    fn report(&self, run: Run<'_>, problems: &[Problem], proven: bool) {
        let Run { key, binding, environment, .. } = run;
        let mut statements: Vec<_> = match problems {
            [] => vec![messages::synced(environment, proven)],
            problems => problems.iter().map(messages::problem).collect(),
        };
        if binding.requests_keys {
            statements.push(messages::keys_not_supported(environment));
        }
        self.say(key, binding, statements);
    }

    /// Announces these statements, each once until another one takes its place, and remembers them.
    fn say(&self, key: &SecretRef, binding: &Binding, statements: Vec<Statement>) {
        let kind = GroupVersionKind::gvk("", "v1", "Secret");
        let regarding = events::reference(&kind, &key.namespace, &key.name, &binding.uid);
        let is_said = |statement: &Statement| binding.said.iter().any(|said| statement.repeats(said));
        self.announcer.announce_new(key, &regarding, &statements, is_said);
        self.bindings.settle(key, binding, |binding| binding.said = statements);
    }
}

/// One run for a Secret that is bound to an environment.
#[derive(Clone, Copy)]
struct Run<'a> {
    key: &'a SecretRef,
    binding: &'a Binding,
    environment: &'a EnvironmentName,
    hub: &'a Hub,
}

/// A Secret as it was read.
struct Read {
    contents: Contents,
    resource_version: String,
}

/// The findings of a plan, beside its action.
struct Found {
    /// True of the Secret once the action is done; `None` where nothing was established.
    verified: Option<Verified>,
    problems: Vec<Problem>,
    /// Whether a manifest shows that the environment's content is whole and current.
    proven: bool,
}

/// The state of the Secret that a plan was made for.
struct Seen {
    /// Its resource version.
    version: Option<String>,
    /// Whether it was read. Otherwise, this process wrote that version.
    was_read: bool,
}

impl Seen {
    /// The version that was read.
    fn read(&self) -> Option<&str> {
        self.version.as_deref().filter(|_| self.was_read)
    }
}

/// Whether the Secret holds the environment as the server stated it last, and nobody else wrote to it.
fn is_in_sync(binding: &Binding, hub: &Hub) -> bool {
    let (Some(verified), Some(stated)) = (&binding.verified, hub.stated()) else { return false };
    !binding.is_touched
        && binding.empty_since.is_none()
        && verified.environment_id == stated.environment_id
        && verified.version == stated.version
        && stated.content.is_none_or(|content| content == verified.content)
        && !binding.said.iter().any(|statement| statement.is_passing)
}

impl Reconciler for Pull {
    type Key = SecretRef;
    type Error = PullError;

    async fn reconcile(&self, request: Request<SecretRef>) -> Result<Next, PullError> {
        let key = &request.key;
        // Without a binding, the request came before the watch showed that the Secret is not bound any more.
        let Some(binding) = self.bindings.get(key) else { return Ok(Next::Done) };
        match (&binding.declared, &binding.hub) {
            (Declaration::Incomplete(missing), _) => self.say(key, &binding, vec![messages::incomplete(missing)]),
            (Declaration::Bound(name), None) => {
                self.say(key, &binding, vec![messages::not_allowed(&key.namespace, name)]);
            }
            (Declaration::Bound(environment), Some(hub)) => {
                return self.sync(Run { key, binding: &binding, environment, hub }).await;
            }
        }
        Ok(Next::Done)
    }
}
