//! One Secret from what it declares to what it holds: observe, plan, apply, report.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry};
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
    revert_backoff::RevertBackoff,
};
use konverge_runtime::{Action as Next, Reconciler, Request};
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
    annotations::{Declaration, RECORD, declaration},
    bindings::{Binding, Bindings, Learned, Reverts, SecretRef},
    hub::{Hub, Stated},
    messages,
    metrics::Metrics,
    plan::{Action, Contents, Observed, Plan, Problem, Remembered, Verified, plan, rollback},
    reasons,
    source::{Failure, Reference, Snapshot},
};

/// The field manager of every write, and that of the original operator, whose keys are thereby ours.
pub const FIELD_MANAGER: &str = "zopp-operator";

/// The `action` of every event of this operator.
const ACTION: &str = "Pull";

/// After a write the Secret is left alone this long, so that a burst of changes becomes one more write and not many.
const QUIET: Duration = Duration::from_millis(100);

/// Between the two reads that confirm an empty content.
const CONFIRM_AFTER: Duration = Duration::from_millis(500);

/// The maximum pause while another client keeps reverting this client's writes.
pub const LONGEST_REVERT_PAUSE: Duration = Duration::from_mins(5);

/// Syncs annotated Secrets with their sources.
pub struct Pull {
    client: Client,
    applier: SecretApplier,
    announcer: Announcer,
    bindings: Arc<Bindings>,
    metrics: Metrics,
    /// This process's own: no digest leaves it.
    digest_key: DigestKey,
    /// One for each Secret that may be read and written at the same time.
    permits: Semaphore,
}

/// The API server did not do its part. A failure of a store is no error here: the hub tries again.
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
    pub fn new(client: Client, events: EventSink, bindings: Arc<Bindings>, metrics: Metrics, workers: usize) -> Self {
        Self {
            applier: SecretApplier::new(client.clone(), FIELD_MANAGER),
            client,
            announcer: Announcer::new(events, ACTION, statement_log!(secret)),
            bindings,
            metrics,
            digest_key: DigestKey::new(rand::random()),
            permits: Semaphore::new(workers),
        }
    }

    /// Syncs the Secret with its content.
    async fn sync(&self, run: Run<'_>) -> Result<Next, PullError> {
        let Run { key, binding, hub, .. } = run;
        if is_in_sync(binding, hub) {
            return Ok(Next::Done);
        }
        // While another client reverts the writes, only a change of the content is written during the pause.
        if let Some(rest) = rest_of_pause(binding, hub) {
            return Ok(Next::After(rest));
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
            let remembered = Remembered { is_confirmed: is_confirming, ..Remembered::default() };
            let observed = Observed::Unchanged(verified);
            let (plan, record) = self.decide(hub, &snapshot, &observed, remembered, binding.record.as_deref());
            if !matches!(plan.action, Action::ReadFirst) {
                match self.carry_out(run, plan, snapshot.remark, record, None).await {
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
        let verified = binding.verified.as_ref();
        if !read.contents.is_as_verified(verified, &self.digest_key)
            || rollback(&snapshot, None, hub.upstream().accepted().as_ref()).is_some()
        {
            // Another writer may have put in a change that this snapshot lacks. A snapshot fetched after the Secret was read has it.
            snapshot = match hub.snapshot(Some(Instant::now())).await {
                Ok(snapshot) => snapshot,
                Err(error) => return Ok(self.fetch_failed(run, &error)),
            };
        }
        let accepted = hub.upstream().accepted();
        let remembered =
            Remembered { accepted: accepted.as_ref(), is_confirmed: is_confirming, ..Remembered::default() };
        let observed = Observed::Read(&read.contents, verified);
        let (plan, record) = self.decide(hub, &snapshot, &observed, remembered, read.record.as_deref());
        if is_revert(&plan, binding) {
            let before = binding.reverts.as_ref();
            let row =
                RevertBackoff::again(before.map(|before| (before.row, before.last.elapsed())), LONGEST_REVERT_PAUSE);
            let by = read.other_writer.or_else(|| before.and_then(|before| before.by.clone()));
            let statement = messages::contested(by.as_deref());
            let reverts = Reverts { row, last: Instant::now(), by };
            self.bindings.update_if_current(key, binding, |now| now.reverts = Some(reverts));
            if row.is_contested() {
                self.metrics.synced("contested");
                self.say(key, binding, vec![statement]);
                return Ok(Next::After(row.pause()));
            }
        }
        self.carry_out(run, plan, snapshot.remark, record, Some(&read.resource_version)).await
    }

    /// Plans for a Secret that has this record. Returns the plan, and the record of the snapshot. A state that the plan applies counts as accepted.
    fn decide<'a>(
        &self,
        hub: &Hub,
        snapshot: &'a Snapshot,
        observed: &Observed<'a>,
        remembered: Remembered<'_>,
        recorded: Option<&str>,
    ) -> (Plan<'a>, Option<String>) {
        let record = hub.upstream().record(snapshot);
        let remembered = Remembered { is_recorded: record.as_deref() == recorded, ..remembered };
        let plan = plan(snapshot, observed, &self.digest_key, remembered);
        if plan.verified.is_some() {
            hub.upstream().accept(snapshot);
        }
        (plan, record)
    }

    /// Reads the Secret. `None` if it is gone, if another one has its name, or if it no longer requests this content. The watch will show that, too.
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
        let record = metadata.annotations.as_ref().and_then(|annotations| annotations.get(RECORD)).cloned();
        let other_writer = last_other_writer(metadata.managed_fields.as_deref().unwrap_or_default(), manager);
        let keys = field_ownership::data_keys(metadata.managed_fields.as_deref().unwrap_or_default(), manager);
        let contents = Contents { data, owned: keys.all(), immutable: immutable.unwrap_or_default() };
        let mut resource_version = metadata.resource_version.clone().unwrap_or_default();
        if !keys.updated.is_empty() {
            let taken = self.applier.take_over(&metadata.into_response_partial(), manager).await?;
            // Without a version, the Secret is treated as deleted. The next event about it starts another run.
            let Some(now) = stored_version(taken) else { return Ok(None) };
            resource_version = now;
        }
        Ok(Some(Read { contents, resource_version, record, other_writer }))
    }

    /// Reports that the content could not be read. The hub tries again, and wakes the binding.
    fn fetch_failed(&self, run: Run<'_>, failure: &Failure) -> Next {
        self.metrics.synced("failed");
        let statement = failure.statement.clone();
        if !run.binding.said.iter().any(|said| messages::explains_more_than(said, &statement)) {
            self.say(run.key, run.binding, vec![statement]);
        }
        Next::Done
    }

    /// Applies the plan and reports. `read` is the version that was read; without it, the plan is for the version that this process knows.
    async fn carry_out(
        &self,
        run: Run<'_>,
        plan: Plan<'_>,
        remark: Option<&str>,
        record: Option<String>,
        read: Option<&str>,
    ) -> Result<Next, PullError> {
        let Run { key, binding, .. } = run;
        let Plan { action, verified, problems } = plan;
        let (written, result) = match action {
            Action::ConfirmEmpty => {
                let since = binding.empty_since.unwrap_or_else(Instant::now);
                self.bindings.update_if_current(key, binding, |now| now.empty_since = Some(since));
                return Ok(Next::After(CONFIRM_AFTER));
            }
            Action::Nothing => (None, "unchanged"),
            Action::Keep | Action::ReadFirst => (None, "kept"),
            Action::Apply(desired) => {
                // The annotation may have gone while this waited, and with it the permission to write.
                if !self.bindings.is_current(key, binding) {
                    return Ok(Next::Done);
                }
                let version = verified.as_ref().map_or(0, |verified| verified.revision.number);
                match self.write(run, record.as_deref(), &desired, version, read.or(binding.known.as_deref())).await {
                    Ok(Some(written)) => (Some(written), "changed"),
                    // The Secret was deleted. The next event about it starts another run.
                    Ok(None) => {
                        self.metrics.synced("gone");
                        return Ok(Next::Done);
                    }
                    Err(error) => return self.write_failed(run, error),
                }
            }
        };
        self.metrics.synced(result);
        self.bindings.learned(key, binding, Learned { read, written: written.as_deref() });
        self.bindings.update_if_current(key, binding, |now| {
            now.empty_since = None;
            if written.is_some() {
                now.written_at = Some(Instant::now());
                now.record = record;
            }
            if verified.is_some() {
                now.verified = verified;
            }
            // The Secret is read before the next decision, because each write to it would be refused.
            if problems.contains(&Problem::Immutable) {
                now.verified = None;
            }
        });
        self.report(run, &problems, remark);
        Ok(row_ends_after(binding).map_or(Next::Done, Next::After))
    }

    /// Writes this version of the content, if the Secret still has the resource version that was seen. Returns the new one, or `None` if the
    /// Secret is gone.
    async fn write(
        &self,
        run: Run<'_>,
        record: Option<&str>,
        desired: &BTreeMap<&str, &SecretValue>,
        version: i64,
        resource_version: Option<&str>,
    ) -> Result<Option<String>, ApplyError> {
        let Run { key, binding, reference, hub } = run;
        let target = SecretTarget { namespace: &key.namespace, name: &key.name, uid: &binding.uid, resource_version };
        let annotations = record.map(|record| (RECORD.to_owned(), record.to_owned())).into_iter().collect();
        let written = stored_version(self.applier.apply(target, &annotations, desired).await?);
        if written.is_some() {
            // Only a change of the content has a moment at which it was heard of; a repair or a new binding has none.
            if let (Some(before), Some(stated)) = (&binding.verified, hub.stated())
                && before.revision.number != stated.revision.number
            {
                self.metrics.propagated(stated.since.elapsed());
            }
            // An event for every change would cost as much as the change; the log has them all.
            info!(secret = %key, source = %reference, version, keys = desired.len(), "written");
        }
        Ok(written)
    }

    /// Reports that the write failed.
    fn write_failed(&self, run: Run<'_>, error: ApplyError) -> Result<Next, PullError> {
        let Run { key, binding, reference, .. } = run;
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
            self.bindings.update_if_current(key, binding, |now| now.verified = None);
        }
        self.say(key, binding, vec![messages::apply_failed(reference, &error)]);
        // Only replacing an immutable Secret helps, and the watch shows that.
        if error.is_immutable() { Ok(Next::Done) } else { Err(error.into()) }
    }

    /// Tells the owner what the plan found.
    fn report(&self, run: Run<'_>, problems: &[Problem], remark: Option<&str>) {
        let Run { key, binding, reference, .. } = run;
        let mut statements: Vec<_> = match problems {
            // Another revert may follow. Until the write lasts, the last statement about the other client stays.
            [] if row_ends_after(binding).is_some() => {
                binding.said.iter().filter(|said| said.reason == reasons::CONTESTED).cloned().collect()
            }
            [] => vec![messages::synced(reference, remark)],
            problems => problems.iter().map(|problem| messages::problem(reference, problem)).collect(),
        };
        if binding.requests_keys {
            statements.push(messages::keys_not_supported(reference));
        }
        self.say(key, binding, statements);
    }

    /// Announces these statements, each once until another one takes its place, and remembers them.
    fn say(&self, key: &SecretRef, binding: &Binding, statements: Vec<Statement>) {
        let kind = GroupVersionKind::gvk("", "v1", "Secret");
        let regarding = events::reference(&kind, &key.namespace, &key.name, &binding.uid);
        let is_said = |statement: &Statement| binding.said.iter().any(|said| statement.repeats(said));
        self.announcer.announce_new(key, &regarding, &statements, is_said);
        self.bindings.update_if_current(key, binding, |binding| binding.said = statements);
    }
}

/// One run for a Secret that is bound to a content.
#[derive(Clone, Copy)]
struct Run<'a> {
    key: &'a SecretRef,
    binding: &'a Binding,
    reference: &'a Reference,
    hub: &'a Hub,
}

/// A Secret as it was read.
struct Read {
    contents: Contents,
    resource_version: String,
    /// The record on the Secret.
    record: Option<String>,
    /// The field manager that wrote last, if it is another one.
    other_writer: Option<String>,
}

/// Returns the rest of the pause after reverts by another client, or `None` if there is no pause.
fn rest_of_pause(binding: &Binding, hub: &Hub) -> Option<Duration> {
    let Reverts { row, last, .. } = binding.reverts.as_ref().filter(|reverts| reverts.row.is_contested())?;
    let is_paused = is_stated(binding.verified.as_ref()?, &hub.stated()?);
    row.pause().checked_sub(last.elapsed()).filter(|rest| is_paused && !rest.is_zero())
}

/// The version of a Secret after a write, or `None` if it is gone.
fn stored_version(outcome: Outcome) -> Option<String> {
    match outcome {
        Outcome::Changed { resource_version } | Outcome::Unchanged { resource_version } => Some(resource_version),
        _ => None,
    }
}

/// Whether the Secret holds the content as the store stated it last, and nobody else wrote to it.
fn is_in_sync(binding: &Binding, hub: &Hub) -> bool {
    let (Some(verified), Some(stated)) = (&binding.verified, hub.stated()) else { return false };
    !binding.is_touched
        && binding.empty_since.is_none()
        && is_stated(verified, &stated)
        && !binding.said.iter().any(|statement| statement.is_passing)
}

/// Returns `true` if this is the last revision that the store stated.
fn is_stated(verified: &Verified, stated: &Stated) -> bool {
    verified.revision.agrees_with(&stated.revision)
}

/// Returns `true` if another client has reverted the Secret, while the content is unchanged. Each revert counts once.
fn is_revert(plan: &Plan<'_>, binding: &Binding) -> bool {
    let (Action::Apply(_), Some(now), Some(before)) = (&plan.action, &plan.verified, &binding.verified) else {
        return false;
    };
    let last = binding.reverts.as_ref().map(|reverts| reverts.last);
    let is_counted = last.is_some_and(|last| binding.written_at.is_none_or(|written| written < last));
    now.digest == before.digest && !is_counted
}

/// Returns the time after which a contested series of reverts ends without a further revert.
fn row_ends_after(binding: &Binding) -> Option<Duration> {
    let Reverts { row, last, .. } = binding.reverts.as_ref()?;
    if !(row.is_contested() && row.goes_on(last.elapsed())) {
        return None;
    }
    Some((row.pause() + LONGEST_REVERT_PAUSE).saturating_sub(last.elapsed()) + Duration::from_secs(1))
}

/// Returns the other field manager that wrote last, if it wrote after `manager`. Of several at the same time, prefers one that owns data. A client
/// that only removes fields has no entry.
fn last_other_writer(managed_fields: &[ManagedFieldsEntry], manager: &str) -> Option<String> {
    let is_ours = |entry: &&ManagedFieldsEntry| entry.manager.as_deref() == Some(manager);
    let ours = managed_fields.iter().filter(is_ours).filter_map(|entry| entry.time.as_ref()).max();
    let others = managed_fields.iter().filter(|entry| !is_ours(entry) && entry.time.as_ref() >= ours);
    let owns_data =
        |entry: &ManagedFieldsEntry| entry.fields_v1.as_ref().is_some_and(|fields| fields.0.get("f:data").is_some());
    let last = others.max_by_key(|entry| (entry.time.as_ref().map(|time| time.0), owns_data(entry)));
    last.and_then(|entry| entry.manager.clone())
}

impl Reconciler for Pull {
    type Key = SecretRef;
    type Error = PullError;

    async fn reconcile(&self, request: Request<SecretRef>) -> Result<Next, PullError> {
        let key = &request.key;
        // Without a binding, the request came before the watch showed that the Secret is not bound any more.
        let Some(binding) = self.bindings.get(key) else { return Ok(Next::Done) };
        match (&binding.declared, &binding.hub) {
            (Declaration::Bound(reference), Ok(hub)) => {
                return self.sync(Run { key, binding: &binding, reference, hub }).await;
            }
            (_, Err(statement)) => self.say(key, &binding, vec![Statement::clone(statement)]),
            // Only a reference has a subscription.
            (Declaration::Incomplete(_) | Declaration::Invalid(_), Ok(_)) => {}
        }
        Ok(Next::Done)
    }
}
