//! One Secret from what it declares to what it holds: observe, plan, apply, report.

mod reverts;
mod sources;

use std::{borrow::Cow, collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Secret;
use konverge_apply::{
    Announcer, ApplyError, Outcome, SecretApplier, SecretMetadata, SecretTarget, Statement,
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

use self::{
    reverts::{is_revert, last_other_writer, rest_of_pause, row_ends_after},
    sources::{Answer, Memory, fetch, given, parts, record},
};
use crate::{
    annotations::declaration,
    bindings::{Binding, Bindings, Learned, Reverts, SecretRef},
    hub::{Hub, Stated},
    messages,
    metrics::Metrics,
    plan::{Action, Circumstances, Contents, Observed, Part, Plan, Problem, Verified, plan, rollback},
    reasons,
    source::{Connections, Revision},
    template::Held,
    wanted::{Foreign, Made, Wanted},
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

/// Fills Secrets from their sources.
pub struct Pull {
    client: Client,
    applier: SecretApplier,
    announcer: Announcer,
    bindings: Arc<Bindings>,
    connections: Arc<Connections>,
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
    pub fn new(
        client: Client,
        events: EventSink,
        bindings: Arc<Bindings>,
        connections: Arc<Connections>,
        metrics: Metrics,
        workers: usize,
    ) -> Self {
        Self {
            applier: SecretApplier::new(client.clone(), FIELD_MANAGER),
            client,
            announcer: Announcer::new(events, ACTION, statement_log!(secret)),
            bindings,
            connections,
            metrics,
            digest_key: DigestKey::new(rand::random()),
            permits: Semaphore::new(workers),
        }
    }

    /// Fills the Secret as its binding requests. The statements about it are in the binding afterwards.
    ///
    /// # Errors
    /// Returns an error if the API server does not do its part.
    pub async fn fill(&self, key: &SecretRef) -> Result<Next, PullError> {
        // Without a binding, the request came before the watch showed that the Secret is not bound any more.
        let Some(binding) = self.bindings.get(key) else { return Ok(Next::Done) };
        let hubs: Result<Vec<&Arc<Hub>>, &Arc<Statement>> = binding.hubs.iter().map(Result::as_ref).collect();
        match (binding.declared.wanted(), hubs) {
            (Some(wanted), Ok(hubs)) => return self.sync(Run { key, binding: &binding, wanted, hubs: &hubs }).await,
            (_, Err(_)) => {
                let refused = binding.hubs.iter().filter_map(|hub| hub.as_ref().err());
                self.say(key, &binding, refused.map(|statement| Statement::clone(statement)).collect());
            }
            // Only what is wanted has subscriptions.
            (None, Ok(_)) => {}
        }
        Ok(Next::Done)
    }

    /// Returns how long ago the stores last confirmed what the Secret holds, or `None` if it is not in sync.
    pub fn verified_ago(&self, binding: &Binding) -> Option<Duration> {
        let hubs: Vec<_> = binding.hubs.iter().map(Result::as_ref).collect::<Result<_, _>>().ok()?;
        let longest = hubs.iter().map(|hub| hub.age()).max();
        longest.filter(|_| is_in_sync(binding, &hubs))
    }

    /// Syncs the Secret with its contents.
    async fn sync(&self, run: Run<'_>) -> Result<Next, PullError> {
        let Run { key, binding, hubs, .. } = run;
        if is_in_sync(binding, hubs) {
            return Ok(next_refresh(binding));
        }
        // While another client reverts the writes, only a change of a content is written during the pause.
        if let Some(rest) = rest_of_pause(binding, hubs) {
            return Ok(Next::After(rest));
        }
        if let Some(wait) = binding.written_at.and_then(|at| QUIET.checked_sub(at.elapsed())) {
            sleep(wait).await;
        }
        let is_confirmed = binding.empty_since.is_some_and(|since| since.elapsed() >= CONFIRM_AFTER);
        let is_due = refresh(binding).is_some_and(|every| hubs.iter().any(|hub| hub.age() >= every));
        let mut answers = fetch(run, &self.connections, (is_confirmed || is_due).then(Instant::now)).await;
        if answers.iter().all(Result::is_err) {
            return Ok(self.fetch_failed(run, &answers));
        }
        // The semaphore is never closed; without it, the work would only be less orderly.
        let _permit = self.permits.acquire().await.ok();
        if !binding.is_touched
            && let Some(verified) = &binding.verified
        {
            let observed = Observed::Unchanged(verified);
            let memory = Memory { recorded: binding.record.as_deref(), is_confirmed, knows_accepted: false };
            let given = given(run.wanted, memory.recorded);
            let plan = self.decide(run, &parts(run, &answers, &given, memory), &observed, memory);
            if !matches!(plan.action, Action::ReadFirst) {
                match self.carry_out(run, plan, &answers, None).await {
                    // Another writer was faster than the watch.
                    Err(PullError::Apply(ApplyError::OutOfDate { .. })) => {}
                    done => return done,
                }
            }
        }
        let read = match self.read(run).await? {
            Found::Secret(read) => read,
            Found::Gone => {
                self.metrics.synced("gone");
                return Ok(Next::Done);
            }
            Found::Foreign(foreign) => {
                self.metrics.synced("kept");
                self.say(key, binding, vec![messages::foreign(key, &foreign)]);
                return Ok(Next::Done);
            }
        };
        let verified = binding.verified.as_ref();
        let is_behind = |(answer, hub): (&Answer, &&Arc<Hub>)| {
            answer.as_ref().is_ok_and(|snapshot| rollback(snapshot, None, hub.upstream().accepted().as_ref()).is_some())
        };
        if !read.contents.is_as_verified(verified, &self.digest_key) || answers.iter().zip(hubs).any(is_behind) {
            // Another writer may have put in a change that this snapshot lacks. A snapshot fetched after the Secret was read has it.
            answers = fetch(run, &self.connections, Some(Instant::now())).await;
            if answers.iter().all(Result::is_err) {
                return Ok(self.fetch_failed(run, &answers));
            }
        }
        let observed = Observed::Read(&read.contents, verified);
        let memory = Memory { recorded: read.record.as_deref(), is_confirmed, knows_accepted: true };
        let given = given(run.wanted, memory.recorded);
        let plan = self.decide(run, &parts(run, &answers, &given, memory), &observed, memory);
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
        self.carry_out(run, plan, &answers, Some(&read.version)).await
    }

    /// Plans for the Secret. A state that the plan applies counts as accepted.
    fn decide<'a>(&self, run: Run<'a>, parts: &[Part<'a>], observed: &Observed<'a>, memory: Memory<'a>) -> Plan<'a> {
        let made = run.wanted.made.as_ref();
        let circumstances = Circumstances {
            recorded: memory.recorded,
            is_confirmed: memory.is_confirmed,
            is_strict: made.is_some_and(|made| made.is_strict),
            secret_type: made.and_then(|made| made.metadata.secret_type.as_deref()),
            template: made.and_then(|made| made.template.as_ref()),
        };
        let plan = plan(parts, observed, &self.digest_key, circumstances, |given| record(run, parts, given, memory));
        for (part, hub) in parts.iter().zip(run.hubs).filter(|_| plan.verified.is_some()) {
            if let Some(snapshot) = part.snapshot {
                hub.upstream().accept(snapshot);
            }
        }
        plan
    }

    /// Reads the Secret.
    ///
    /// Keys that the original operator wrote by merge patches are taken over before, so that those that are no longer upstream can go.
    async fn read(&self, run: Run<'_>) -> Result<Found, PullError> {
        let Run { key, binding, wanted, .. } = run;
        let api = Api::<Secret>::namespaced(self.client.clone(), &key.namespace);
        let found = api.get_opt(&key.name).await;
        let found = found.map_err(|source| PullError::Read { secret: key.clone(), source: Box::new(source) })?;
        let Some(Secret { data, immutable, metadata, type_, .. }) = found else {
            return Ok(if wanted.made.is_some() { Found::Secret(Read::absent()) } else { Found::Gone });
        };
        // Each value moves from the decoder's buffer into one that is wiped.
        let data: BTreeMap<String, SecretValue> =
            data.unwrap_or_default().into_iter().map(|(name, value)| (name, SecretValue::new(value.0))).collect();
        let (manager, secret_type) = (self.applier.manager(), type_.unwrap_or_default());
        let declared = metadata.annotations.as_ref().and_then(declaration);
        if wanted.made.is_none() && (metadata.uid != binding.uid || declared.as_ref() != Some(&binding.declared)) {
            return Ok(Found::Gone);
        }
        if let Some(foreign) = wanted.foreign(&metadata, &secret_type) {
            return Ok(Found::Foreign(foreign));
        }
        let wanted_type = wanted.made.as_ref().and_then(|made| made.metadata.secret_type.as_deref());
        let fields = metadata.managed_fields.as_deref().unwrap_or_default();
        let other_writer = last_other_writer(fields, manager);
        let keys = field_ownership::data_keys(fields, manager);
        let contents = Contents {
            data,
            owned: keys.all(),
            immutable: immutable.unwrap_or_default(),
            is_absent: false,
            has_other_metadata: wanted.made.as_ref().is_some_and(|made| !made.has_metadata(&metadata, manager)),
            other_type: wanted_type.is_some_and(|wanted| wanted != secret_type).then_some(secret_type),
        };
        let record = wanted.recorded(&metadata).cloned();
        let uid = metadata.uid.clone().unwrap_or_default();
        let mut resource_version = metadata.resource_version.clone().unwrap_or_default();
        if !keys.updated.is_empty() {
            let taken = self.applier.take_over(&metadata.into_response_partial(), manager).await?;
            // Without a version, the Secret is treated as deleted. The next event about it starts another run.
            let Some(now) = stored_version(taken) else { return Ok(Found::Gone) };
            resource_version = now;
        }
        Ok(Found::Secret(Read { contents, version: Some(Version { uid, resource_version }), record, other_writer }))
    }

    /// Reports that no content could be read. The hubs try again, and wake the binding.
    fn fetch_failed(&self, run: Run<'_>, answers: &[Answer]) -> Next {
        self.metrics.synced("failed");
        let failures = answers.iter().filter_map(|answer| Some(answer.as_ref().err()?.statement.clone()));
        let is_hidden =
            |statement: &Statement| run.binding.said.iter().any(|said| messages::explains_more_than(said, statement));
        let statements: Vec<_> = failures.filter(|statement| !is_hidden(statement)).collect();
        if !statements.is_empty() {
            self.say(run.key, run.binding, statements);
        }
        next_refresh(run.binding)
    }

    /// Applies the plan and reports. `read` is the version that was read; without it, the plan is for the version that this process knows.
    async fn carry_out(
        &self,
        run: Run<'_>,
        plan: Plan<'_>,
        answers: &[Answer],
        read: Option<&Option<Version>>,
    ) -> Result<Next, PullError> {
        let Run { key, binding, .. } = run;
        let Plan { action, verified, problems, record } = plan;
        let read = read.map(Option::as_ref);
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
                let known = binding.uid.clone().zip(binding.known.clone());
                let known = known.map(|(uid, resource_version)| Version { uid, resource_version });
                let seen = read.unwrap_or(known.as_ref());
                match self.write(run, record.as_deref(), &desired, seen).await {
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
        let seen = written.as_ref().or(read.flatten());
        self.bindings.learned(
            key,
            binding,
            Learned {
                read: read.flatten().map(|read| &*read.resource_version),
                written: written.as_ref().map(|written| &*written.resource_version),
                uid: seen.map(|seen| &*seen.uid),
            },
        );
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
            if problems.iter().any(|(_, problem)| *problem == Problem::Immutable) {
                now.verified = None;
            }
        });
        self.report(run, &problems, answers);
        Ok(row_ends_after(binding).map_or_else(|| next_refresh(binding), Next::After))
    }

    /// Writes the data, if the Secret still has the version that was seen, or creates the Secret if none was seen. Returns the new version, or `None` if
    /// the Secret is gone.
    async fn write(
        &self,
        run: Run<'_>,
        record: Option<&str>,
        desired: &BTreeMap<Cow<'_, str>, Held<'_>>,
        seen: Option<&Version>,
    ) -> Result<Option<Version>, ApplyError> {
        let Run { key: SecretRef { namespace, name }, binding, wanted, hubs } = run;
        let mut metadata = wanted.made.as_ref().map_or_else(SecretMetadata::default, |made| made.metadata.clone());
        let annotation = wanted.record_annotation().to_owned();
        metadata.annotations.extend(record.map(|record| (annotation, record.to_owned())));
        let written = match (seen, &binding.uid) {
            (None, _) if wanted.made.is_some() => {
                let created = self.applier.create(namespace, name, &metadata, desired).await?;
                Some(Version { uid: created.uid, resource_version: created.resource_version })
            }
            (None, None) => None,
            (Some(Version { uid, .. }), _) | (None, Some(uid)) => {
                let resource_version = seen.map(|seen| &*seen.resource_version);
                let target = SecretTarget { namespace, name, uid, resource_version };
                let written = stored_version(self.applier.apply(target, &metadata, desired).await?);
                written.map(|resource_version| Version { uid: uid.clone(), resource_version })
            }
        };
        if written.is_some() {
            self.propagated(binding, hubs);
            // An event for every change would cost as much as the change; the log has them all.
            let versions =
                hubs.iter().map(|hub| hub.stated().map_or(0, |stated| stated.revision.number)).collect::<Vec<_>>();
            info!(secret = %run.key, source = %wanted, ?versions, keys = desired.len(), "written");
        }
        Ok(written)
    }

    /// Measures how long the changes of the contents took. Only a change has a moment at which it was heard of; a repair or a new binding has none.
    fn propagated(&self, binding: &Binding, hubs: &[&Arc<Hub>]) {
        let Some(verified) = &binding.verified else { return };
        for (before, hub) in verified.revisions.iter().zip(hubs) {
            if let (Some(before), Some(stated)) = (before, hub.stated())
                && before.number != stated.revision.number
            {
                self.metrics.propagated(stated.since.elapsed());
            }
        }
    }

    /// Reports that the write failed.
    fn write_failed(&self, run: Run<'_>, error: ApplyError) -> Result<Next, PullError> {
        let Run { key, binding, wanted, .. } = run;
        // That another writer was faster is no failure: the Secret is read, and decided upon anew.
        if matches!(error, ApplyError::OutOfDate { .. }) {
            return Err(error.into());
        }
        self.metrics.synced("failed");
        if let ApplyError::Altered { resource_version, .. } = &error {
            // The change is this write's, so it is no reason to look again.
            let learned = Learned { written: Some(resource_version), ..Learned::default() };
            self.bindings.learned(key, binding, learned);
        }
        if error.is_immutable() || matches!(error, ApplyError::Altered { .. }) {
            // The content of the Secret is not verified, so it is read before it is written again.
            self.bindings.update_if_current(key, binding, |now| now.verified = None);
        }
        self.say(key, binding, vec![messages::apply_failed(wanted, &error)]);
        // Only replacing an immutable Secret helps, and the watch shows that.
        if error.is_immutable() { Ok(Next::Done) } else { Err(error.into()) }
    }

    /// Tells the owner what the plan found, and which sources failed.
    fn report(&self, run: Run<'_>, problems: &[(usize, Problem)], answers: &[Answer]) {
        let Run { key, binding, wanted, .. } = run;
        let failures = wanted.sources.iter().zip(answers).filter_map(|(source, answer)| {
            let failure = answer.as_ref().err()?;
            let is_tolerated = source.is_optional && ABSENT.contains(&failure.statement.reason);
            (!is_tolerated).then(|| failure.statement.clone())
        });
        let problems =
            problems.iter().map(|(number, problem)| messages::problem(&wanted.sources[*number].reference, problem));
        let mut statements: Vec<_> = problems.chain(failures).collect();
        if statements.is_empty() {
            let remark = answers.iter().flatten().find_map(|snapshot| snapshot.remark);
            statements = match row_ends_after(binding) {
                // Another revert may follow. Until the write lasts, the last statement about the other client stays.
                Some(_) => binding.said.iter().filter(|said| said.reason == reasons::CONTESTED).cloned().collect(),
                None => vec![messages::synced(wanted, remark)],
            };
        }
        if !binding.unknown.is_empty() {
            statements.push(messages::unknown_annotations(&binding.unknown));
        }
        self.say(key, binding, statements);
    }

    /// Announces these statements, each once until another one takes its place, and remembers them. The controller of a custom resource announces
    /// those about a Secret that it has made.
    fn say(&self, key: &SecretRef, binding: &Binding, statements: Vec<Statement>) {
        if let (None, Some(uid)) = (binding.made(), &binding.uid) {
            let kind = GroupVersionKind::gvk("", "v1", "Secret");
            let regarding = events::reference(&kind, &key.namespace, &key.name, uid);
            let is_said = |statement: &Statement| binding.said.iter().any(|said| statement.repeats(said));
            self.announcer.announce_new(key, &regarding, &statements, is_said);
        }
        self.bindings.update_if_current(key, binding, |binding| binding.said = statements);
    }
}

/// Reasons for which a store lacks a content.
const ABSENT: [&str; 3] = [reasons::ENVIRONMENT_NOT_FOUND, reasons::SECRET_NOT_FOUND, reasons::VERSION_DELETED];

/// One run for a Secret that is bound to contents.
#[derive(Clone, Copy)]
struct Run<'a> {
    key: &'a SecretRef,
    binding: &'a Binding,
    wanted: &'a Wanted,
    hubs: &'a [&'a Arc<Hub>],
}

/// The Secret, as the API server has it.
enum Found {
    /// It can be filled, or has to be created.
    Secret(Read),
    /// It is gone, another one has its name, or it no longer requests this content. The watch will show that, too.
    Gone,
    /// It must not be filled.
    Foreign(Foreign),
}

/// A Secret as it was read.
struct Read {
    contents: Contents,
    /// `None` if it has to be created.
    version: Option<Version>,
    /// The record on the Secret.
    record: Option<String>,
    /// The field manager that wrote last, if it is another one.
    other_writer: Option<String>,
}

impl Read {
    /// A Secret that does not exist.
    fn absent() -> Self {
        let contents = Contents { is_absent: true, ..Contents::default() };
        Self { contents, version: None, record: None, other_writer: None }
    }
}

/// A state of an object.
struct Version {
    uid: String,
    resource_version: String,
}

/// Returns how often the stores are asked at least for the sake of this Secret.
fn refresh(binding: &Binding) -> Option<Duration> {
    binding.made().and_then(|made: &Made| made.refresh)
}

/// Returns when the Secret is looked at again although nothing changes.
fn next_refresh(binding: &Binding) -> Next {
    refresh(binding).map_or(Next::Done, Next::After)
}

/// The version of a Secret after a write, or `None` if it is gone.
fn stored_version(outcome: Outcome) -> Option<String> {
    match outcome {
        Outcome::Changed { resource_version } | Outcome::Unchanged { resource_version } => Some(resource_version),
        _ => None,
    }
}

/// Whether the Secret holds the contents as the stores stated them last, and nobody else wrote to it.
fn is_in_sync(binding: &Binding, hubs: &[&Arc<Hub>]) -> bool {
    let Some(verified) = &binding.verified else { return false };
    !binding.is_touched
        && binding.empty_since.is_none()
        && are_stated(verified, hubs)
        && !binding.said.iter().any(|statement| statement.is_passing)
        && refresh(binding).is_none_or(|every| hubs.iter().all(|hub| hub.age() < every))
}

/// Returns `true` if these are the last revisions that the stores stated.
fn are_stated(verified: &Verified, hubs: &[&Arc<Hub>]) -> bool {
    let is_stated = |(revision, hub): (&Option<_>, &&Arc<Hub>)| {
        let stated: Option<Stated> = hub.stated();
        revision
            .as_ref()
            .zip(stated)
            .is_some_and(|(revision, stated): (&Revision, _)| revision.agrees_with(&stated.revision))
    };
    verified.revisions.iter().zip(hubs).all(is_stated)
}

impl Reconciler for Pull {
    type Key = SecretRef;
    type Error = PullError;

    async fn reconcile(&self, request: Request<SecretRef>) -> Result<Next, PullError> {
        self.fill(&request.key).await
    }
}
