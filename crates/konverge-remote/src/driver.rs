//! Takes the steps of the plan: the record first, then the call, then the list.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use tokio::{
    sync::{OnceCell, mpsc},
    time::Instant,
};

use crate::{
    binding::{Binding, DeletionPolicy},
    collection::{Collection, Counts},
    deletions::{Deletions, Doomed, Held, doomed},
    failure::Failure,
    ledger::{Ledger, ObjectEvent},
    mark::Mark,
    memory::{LeftBehind, Memory, Unsettled, lock},
    plan::{Facts, Step, hand_over, plan},
    record::{Origin, Record},
    relations::{Interest, Subject},
    remote::{Deletion, Remote},
    run::{Begun, Run},
};

/// The steps of one run. More would be a plan that does not end, which is a bug.
const STEPS: usize = 12;
/// How soon the server is asked again about an item that it is deleting.
const LOOK_WHILE_DELETING: Duration = Duration::from_secs(2);
/// How soon an object is looked at whose deletion waits for an approval.
const LOOK_WHILE_STOPPED: Duration = Duration::from_secs(5);
/// How soon an object is looked at that waits for others, which mostly wake it before.
const LOOK_WHILE_WAITING: Duration = Duration::from_secs(60);

/// How a collection is read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// The name that tells this cluster from all others that use the same server; unless given, the uid of its namespace `kube-system`.
    pub cluster: Option<String>,
    /// How often the list is read. A change by hand is corrected within this time.
    pub interval: Duration,
    /// How long the effect of a call may stay invisible in a list after the call has ended: zero if the server shows each write at once.
    pub settle: Duration,
    /// The guard of deletions. Collections that share it count together.
    pub deletions: Deletions,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            cluster: None,
            interval: Duration::from_secs(60),
            settle: Duration::ZERO,
            deletions: Deletions::default(),
        }
    }
}

impl Settings {
    /// Changes them.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

/// The item of an object that is as desired.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SyncedItem<I> {
    /// The item as the server showed it last. Put its id into the status.
    pub item: Arc<I>,
    /// Whether it was made for the object or adopted.
    pub origin: Origin,
}

/// How far a deletion is. No variant will be added, so that a match on it can be exhaustive: a
/// caller that overlooks one would release an object too early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finalized {
    /// The object can go.
    Done,
    /// Look again after the pause; the reason and the message say what is waited for.
    Pending(Duration, &'static str, String),
}

/// The writes and corrections of a collection since the program began, and the age of its lists, for metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Figures {
    /// Items that were created.
    pub created: u64,
    /// Items that were updated.
    pub updated: u64,
    /// Items that were deleted.
    pub deleted: u64,
    /// Times that somebody else had changed or deleted the item of an object, so that it was no longer as the object says.
    pub drift_found: u64,
    /// Times that such an item was corrected.
    pub drift_corrected: u64,
    /// How long ago the last list of each scope was asked for, or for how long it has been missing. Empty on a replica that does not
    /// [poll](Remotes::poll).
    pub list_ages: BTreeMap<String, Duration>,
}

/// The items of a server for all objects that stand for them. Clones share it.
///
/// It does nothing before [`begin`](Self::begin), which a program calls when it knows its flags.
pub struct Remotes<R: Remote>(Arc<Inner<R>>);

struct Inner<R: Remote> {
    begun: OnceLock<Begun<R>>,
    cluster: OnceCell<String>,
    /// Interests that were told before the beginning.
    early: Mutex<BTreeMap<Subject, Interest>>,
    memory: Mutex<Memory>,
}

impl<R: Remote> Clone for Remotes<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R: Remote> Default for Remotes<R> {
    fn default() -> Self {
        Self(Arc::new(Inner {
            begun: OnceLock::new(),
            cluster: OnceCell::new(),
            early: Mutex::default(),
            memory: Mutex::default(),
        }))
    }
}

impl<R: Remote> Remotes<R> {
    /// Begins to work with this client. A second call changes nothing.
    pub fn begin(&self, remote: R, settings: Settings) {
        let Settings { cluster, interval, settle, deletions } = settings;
        if let Some(cluster) = cluster {
            // A cell that is set already belongs to an earlier call, which counts.
            drop(self.0.cluster.set(cluster));
        }
        let mut early = lock(&self.0.early);
        let begun = self.0.begun.get_or_init(|| {
            let collection = Arc::new(Collection::new(remote, interval, settle));
            Begun { collection, settle, deletions, at: Instant::now() }
        });
        for (subject, interest) in std::mem::take(&mut *early) {
            begun.interest(&subject, Some(interest));
        }
    }

    /// Returns the name of the cluster: the one of the settings, or else the answer to `read`, which is asked for once.
    pub async fn cluster<E>(&self, read: impl Future<Output = Result<String, E>>) -> Result<&str, E> {
        self.0.cluster.get_or_try_init(|| read).await.map(String::as_str)
    }

    /// Sets or removes the interest of an object. Call it for each change of an object, also on replicas that do not lead.
    pub fn interest(&self, subject: &Subject, interest: Option<Interest>) {
        let mut early = lock(&self.0.early);
        match (self.0.begun.get(), interest) {
            (Some(begun), interest) => begun.interest(subject, interest),
            (None, Some(interest)) => drop(early.insert(subject.clone(), interest)),
            (None, None) => drop(early.remove(subject)),
        }
    }

    /// The objects of a kind that changes on the server concern, from now on. `None` before [`begin`](Self::begin).
    pub fn changes(&self, kind: &str) -> Option<mpsc::UnboundedReceiver<Subject>> {
        Some(self.0.begun.get()?.collection.changes(kind))
    }

    /// Reads the list in each interval, for ever. Only the leader does.
    pub async fn poll(&self) {
        if let Some(begun) = self.0.begun.get() {
            begun.collection.poll().await;
        }
        std::future::pending::<()>().await;
    }

    /// The author's client. `None` before [`begin`](Self::begin).
    pub fn remote(&self) -> Option<&R> {
        Some(&self.0.begun.get()?.collection.remote)
    }

    /// Makes the item as desired. The object stays in sync afterwards without another call: its next difference wakes it.
    pub async fn apply(
        &self,
        ledger: &impl Ledger,
        binding: &Binding,
        desired: &R::Desired,
    ) -> Result<SyncedItem<R::Item>, Failure> {
        let mut run = Run::new(self.begun()?, ledger, binding);
        run.begun.deletions.withdraw(&run.doomed());
        let is_void = lock(&self.0.memory).is_intent_void(&run.mark);
        if is_void && run.forget_intent() && !ledger.is_dry_run() {
            // The next process would take it for an intent of its own, and an item of this name for the object's.
            run.retract().await?;
            lock(&self.0.memory).intent_counts(&run.mark);
        }
        for _ in 0..STEPS {
            match self.next(&mut run, to_have(Some(desired))).await? {
                Step::InSync(item, origin) => {
                    run.holds(R::id(&item));
                    run.begun.collection.drift_settled(&binding.scope, R::id(&item));
                    return Ok(SyncedItem { item, origin });
                }
                Step::Wait(reason, message) => return Err(Failure::after(LOOK_WHILE_DELETING, reason, message)),
                Step::Refuse(failure) => return Err(failure),
                step if ledger.is_dry_run() => return Err(dry(&step.describe::<R>(binding))),
                Step::Record(entry) => {
                    run.write(entry).await?;
                    lock(&self.0.memory).intent_counts(&run.mark);
                }
                Step::Create => {
                    let item = Arc::new(self.create(&mut run, desired).await?);
                    return Ok(SyncedItem { item, origin: Origin::Made });
                }
                Step::Update(item, differing) => self.update(&run, &item, differing, desired).await?,
                Step::Refresh | Step::Confirm(_) | Step::Delete(_) | Step::Unmark(_) | Step::Release(_) => break,
            }
        }
        Err(endless::<R>(binding))
    }

    /// Deletes or releases the items of the object, as its policies say. A deletion that is one of too many waits with the reason `DeletionsStopped`; see
    /// [`Deletions`].
    pub async fn finalize(&self, ledger: &impl Ledger, binding: &Binding) -> Result<Finalized, Failure> {
        self.undo(ledger, binding, &doomed(&ledger.subject(), ledger.uid(), None)).await
    }

    async fn undo(&self, ledger: &impl Ledger, binding: &Binding, doomed: &Doomed) -> Result<Finalized, Failure> {
        let is_late = binding.deletion_deadline.is_some_and(|limit| ledger.deleting_for() >= limit);
        let why = match self.remove(ledger, binding, doomed).await {
            Ok(Finalized::Pending(_, _, message)) if is_late => message,
            Err(failure) if is_late => failure.to_string(),
            result => return result,
        };
        let (noun, name) = (R::NOUN, &binding.name);
        self.leave(ledger, format!("the {noun} {name}, because the deadline of its deletion has passed: {why}"));
        Ok(Finalized::Done)
    }

    /// Undoes one part of an object that stays, as [`finalize`](Self::finalize) does for an object that goes, and takes it out of the record.
    pub async fn withdraw(&self, ledger: &impl Ledger, binding: &Binding) -> Result<Finalized, Failure> {
        let mut run = Run::new(self.begun()?, ledger, binding);
        let doomed = run.doomed();
        let finalized = self.undo(ledger, binding, &doomed).await?;
        if finalized == Finalized::Done {
            run.begun.deletions.settle(&doomed);
            // With an intent that is void: it goes, too.
            if run.record.part(&run.key()).is_some() {
                run.retract().await?;
            }
            lock(&self.0.memory).intent_counts(&run.mark);
        }
        Ok(finalized)
    }

    /// Releases an object whose item other objects share. An item that was made for the object loses its mark and stays; the next run of one of the
    /// others takes it over. An adopted item stays as it is.
    pub async fn hand_over(&self, ledger: &impl Ledger, binding: &Binding) -> Result<Finalized, Failure> {
        let mut run = self.run(ledger, binding)?;
        match self.next(&mut run, hand_over).await? {
            Step::Unmark(item) if ledger.is_dry_run() => Err(dry(&Step::Unmark(item).describe::<R>(binding))),
            Step::Unmark(item) => {
                run.ledger.check_lease()?;
                let collection = &run.begun.collection;
                let after = collection.remote.unmark(&binding.scope, &item).await?;
                run.publish("HandedOver", format!("handed the {} {} ({}) over", R::NOUN, R::name(&item), R::id(&item)));
                collection.saw(&binding.scope, after, &run.subject);
                Ok(Finalized::Done)
            }
            Step::Wait(reason, message) => Ok(Finalized::Pending(LOOK_WHILE_DELETING, reason, message)),
            Step::Refuse(failure) => Err(failure),
            Step::Release(_) => Ok(Finalized::Done),
            _ => Err(endless::<R>(binding)),
        }
    }

    /// Returns the parts that the record of the object has in this collection: all that may have been created for it.
    pub fn parts(&self, ledger: &impl Ledger) -> Vec<String> {
        let record = Record::read(ledger.record().as_deref(), ledger.cluster(), ledger.uid());
        let of_this = |key: &str| {
            let part = key.strip_prefix(R::NOUN)?;
            if part.is_empty() { Some(String::new()) } else { part.strip_prefix('/').map(str::to_owned) }
        };
        record.iter().flat_map(Record::parts).filter_map(of_this).collect()
    }

    async fn remove(&self, ledger: &impl Ledger, binding: &Binding, doomed: &Doomed) -> Result<Finalized, Failure> {
        if binding.deletion == DeletionPolicy::Orphan {
            return Ok(Finalized::Done);
        }
        let mut run = self.run(ledger, binding)?;
        let mut step = self.next(&mut run, to_have(None)).await?;
        if matches!(step, Step::Wait("Deleting", _)) {
            // All objects that wait for a deletion share a list that is not older than this.
            run.not_before = Instant::now().checked_sub(LOOK_WHILE_DELETING);
            step = self.next(&mut run, to_have(None)).await?;
        }
        if matches!(step, Step::Delete(_))
            && !(binding.is_replaced || ledger.is_dry_run())
            && let Err(Held { message, is_new }) = run.begun.deletions.check(doomed)
        {
            if is_new {
                run.publish("DeletionsStopped", message.clone());
            }
            return Ok(Finalized::Pending(LOOK_WHILE_STOPPED, "DeletionsStopped", message));
        }
        if let Step::Delete(item) = &step
            && R::HAS_FOREIGN_CONTENT
            && !binding.deletes_foreign_content
            && let Some(now) = run.begun.collection.remote.get(&binding.scope, R::id(item)).await?
        {
            run.begun.collection.saw(&binding.scope, now, &run.subject);
            step = self.next(&mut run, to_have(None)).await?;
        }
        match step {
            Step::Wait("InUse", message) => Ok(Finalized::Pending(LOOK_WHILE_WAITING, "InUse", message)),
            Step::Wait(reason, message) => Ok(Finalized::Pending(LOOK_WHILE_DELETING, reason, message)),
            Step::Refuse(failure) => Err(failure),
            Step::Release(left) => {
                if let Some(left) = left {
                    self.leave(ledger, left);
                }
                Ok(Finalized::Done)
            }
            Step::Delete(item) if ledger.is_dry_run() => Err(dry(&Step::Delete(item).describe::<R>(binding))),
            Step::Delete(item) => self.delete(&run, &item).await,
            _ => Err(endless::<R>(binding)),
        }
    }

    /// Returns the first step that would change something, or the last one if none would: the plan, for `diff`. Reads the server, and writes nowhere.
    pub async fn preview(
        &self,
        ledger: &impl Ledger,
        binding: &Binding,
        desired: Option<&R::Desired>,
    ) -> Result<Step<R::Item>, Failure> {
        let mut run = self.run(ledger, binding)?;
        self.next(&mut run, to_have(desired)).await
    }

    /// Returns the items of these names, in their order, for an object that [refers](Interest::references) to them. A missing one is a failure that
    /// names it; the object is woken when it appears.
    pub async fn resolve(&self, scope: &str, names: &[String]) -> Result<Vec<Arc<R::Item>>, Failure> {
        let collection = &self.begun()?.collection;
        let snapshot = collection.list(scope, collection.oldest()).await?;
        let (noun, mut items, mut missing) = (R::NOUN, Vec::new(), Vec::new());
        for name in names {
            let mut found = snapshot.items.values().filter(|item| R::name(item) == name);
            match (found.next(), found.next()) {
                (Some(item), None) => items.push(Arc::clone(item)),
                (None, _) => missing.push(name),
                (Some(_), Some(_)) => {
                    let message =
                        format!("there are several {noun} of the name {name}; rename all but one on the server");
                    return Err(Failure::refused("Ambiguous", message));
                }
            }
        }
        if missing.is_empty() {
            return Ok(items);
        }
        let (them, names) = if missing.len() == 1 { ("it", "the name") } else { ("them", "the names") };
        let missing = konverge_core::names::few(missing.into_iter().map(|name| format!("{noun} {name}")));
        let message = format!("waits for {missing}, which the server does not have; create {them}, or correct {names}");
        Err(Failure::after(LOOK_WHILE_WAITING, "WaitingForReference", message))
    }

    /// Returns the item with this id, or `None` if neither the list nor the server has it.
    pub async fn look_up(&self, scope: &str, id: &str) -> Result<Option<Arc<R::Item>>, Failure> {
        let collection = &self.begun()?.collection;
        let snapshot = collection.list(scope, collection.oldest()).await?;
        match snapshot.items.get(id) {
            Some(item) => Ok(Some(Arc::clone(item))),
            None => Ok(collection.remote.get(scope, id).await?.map(Arc::new)),
        }
    }

    /// Returns the figures so far; zero before [`begin`](Self::begin).
    pub fn figures(&self) -> Figures {
        let Some(begun) = self.0.begun.get() else { return Figures::default() };
        let (Counts { created, updated, deleted, drift_found, drift_corrected }, list_ages) =
            begun.collection.figures();
        Figures { created, updated, deleted, drift_found, drift_corrected, list_ages }
    }

    /// The items that stayed on the server although their objects are gone, as far as this process knows: at most the last 1000.
    pub fn left_behind(&self) -> Vec<LeftBehind> {
        lock(&self.0.memory).left_behind()
    }

    /// Returns the items of a scope that bear the mark of this cluster and whose objects do not exist. The caches of all objects must be complete.
    pub async fn orphans(&self, scope: &str, cluster: &str) -> Result<Vec<Arc<R::Item>>, Failure> {
        let collection = &self.begun()?.collection;
        let snapshot = collection.list(scope, collection.oldest()).await?;
        let cluster = Mark::new(cluster, "", "");
        let is_orphan = |item: &&Arc<R::Item>| {
            R::mark(item).is_some_and(|mark| {
                let is_ours = mark.cluster() == cluster.cluster() && !mark.stays();
                is_ours && !collection.relations(|relations| relations.knows(mark.uid()))
            })
        };
        Ok(snapshot.items.values().filter(is_orphan).cloned().collect())
    }

    fn begun(&self) -> Result<&Begun<R>, Failure> {
        let missing = || Failure::permanent("NotBegun", format!("no client of {} was given to the program", R::NOUN));
        self.0.begun.get().ok_or_else(missing)
    }

    fn run<'a, L: Ledger>(&'a self, ledger: &'a L, binding: &'a Binding) -> Result<Run<'a, R, L>, Failure> {
        let mut run = Run::new(self.begun()?, ledger, binding);
        if lock(&self.0.memory).is_intent_void(&run.mark) {
            run.forget_intent();
        }
        Ok(run)
    }

    /// Decides, after all reads that the decision needs.
    async fn next<L: Ledger>(
        &self,
        run: &mut Run<'_, R, L>,
        decision: impl Fn(&Facts<'_, R>) -> Step<R::Item>,
    ) -> Result<Step<R::Item>, Failure> {
        let collection = &run.begun.collection;
        let scope = &run.binding.scope;
        for _ in 0..STEPS {
            let not_before = run.not_before.or_else(|| collection.oldest());
            let snapshot = collection.list(scope, not_before).await?;
            let fresh_from = self.fresh_from(run);
            let is_fresh = run.is_own_intent || snapshot.begun >= fresh_from;
            match run.decide(&snapshot.items, is_fresh, &decision) {
                Step::Refresh => {
                    let pause = fresh_from.saturating_duration_since(Instant::now());
                    if !pause.is_zero() {
                        let message = "waits until the server must show what was created".to_owned();
                        return Err(Failure::after(pause, "Settling", message));
                    }
                    run.not_before = Some(fresh_from);
                }
                Step::Confirm(id) => match collection.remote.get(scope, &id).await? {
                    Some(item) => collection.saw(scope, item, &run.subject),
                    None => run.absent = Some(id),
                },
                step => return Ok(step),
            }
        }
        Err(endless::<R>(run.binding))
    }

    /// Returns the time from which on a list shows all creates that may have been sent for the object.
    fn fresh_from<L>(&self, run: &Run<'_, R, L>) -> Instant {
        lock(&self.0.memory).last_create(&run.mark).unwrap_or(run.begun.at) + run.begun.settle
    }

    async fn create<L: Ledger>(&self, run: &mut Run<'_, R, L>, desired: &R::Desired) -> Result<R::Item, Failure> {
        run.ledger.check_lease()?;
        let (collection, scope) = (&run.begun.collection, &run.binding.scope);
        let replaced = run.replaced_id();
        if let Some(id) = &replaced {
            collection.drift_found(scope, id);
        }
        // The run may be dropped during the call. Then the create ends now, as far as anybody knows.
        let call = Unsettled::new(&self.0.memory, &run.mark);
        let result = collection.remote.create(scope, desired, &run.mark_of(Origin::Made)).await;
        drop(call);
        match result {
            Ok(item) => {
                collection.wrote(scope, R::id(&item), Some(Arc::new(item.clone())), &run.subject);
                lock(&self.0.memory).forget_create(&run.mark);
                run.holds(R::id(&item));
                collection.count(|counts| counts.created += 1);
                if let Some(id) = &replaced {
                    collection.drift_settled(scope, id);
                }
                run.publish("Created", format!("created the {} {} ({})", R::NOUN, R::name(&item), R::id(&item)));
                Ok(item)
            }
            Err(failure) => {
                if !failure.may_have_taken_effect() {
                    lock(&self.0.memory).forget_create(&run.mark);
                    // Nothing was made, so no item of this name may count as made.
                    if !R::IS_MARKED
                        && let Err(error) = run.retract().await
                    {
                        tracing::warn!(object = %run.subject, "cannot take back the record of a create that was refused: {error}");
                        lock(&self.0.memory).intent_is_void(&run.mark);
                    }
                }
                Err(failure)
            }
        }
    }

    async fn update<L: Ledger>(
        &self,
        run: &Run<'_, R, L>,
        item: &R::Item,
        differing: Vec<&'static str>,
        desired: &R::Desired,
    ) -> Result<(), Failure> {
        let (collection, scope, fields) = (&run.begun.collection, &run.binding.scope, differing.join(", "));
        let (noun, name, id) = (R::NOUN, R::name(item), R::id(item));
        // An edit of the object does not count as a revert, however often it comes.
        let backoff = if collection.is_drifted(scope, id) {
            let backoff = lock(&self.0.memory).backoff(scope, id, &differing).ok_or_else(|| {
                let message =
                    format!("{fields} of the {noun} {name} ({id}) was set back again and again; stop the other client");
                Failure::refused("Contested", message)
            })?;
            Some(backoff)
        } else {
            None
        };
        run.ledger.check_lease()?;
        collection.drift_found(scope, id);
        let mark = run.mark_of(run.record.part(&run.key()).map_or(Origin::Made, |entry| entry.origin));
        let after = collection.remote.update(scope, item, desired, &mark).await?;
        collection.wrote(scope, R::id(&after), Some(Arc::new(after.clone())), &run.subject);
        if let Some(backoff) = backoff {
            lock(&self.0.memory).wrote(scope, id, differing, backoff);
        }
        collection.count(|counts| counts.updated += 1);
        run.publish("Updated", format!("updated the {noun} {name} ({id}), which differed in {fields}"));
        let left = R::differences(&after, desired, &mark)?;
        if left.is_empty() {
            return Ok(());
        }
        let left = left.join(", ");
        let message = format!("the server took the update of the {noun} {name} ({id}), and it still differs in {left}");
        Err(Failure::refused("NoEffect", message))
    }

    async fn delete<L: Ledger>(&self, run: &Run<'_, R, L>, item: &R::Item) -> Result<Finalized, Failure> {
        run.ledger.check_lease()?;
        let (collection, scope) = (&run.begun.collection, &run.binding.scope);
        let (noun, name, id) = (R::NOUN, R::name(item), R::id(item));
        match collection.remote.delete(scope, item).await? {
            Deletion::Gone => {
                collection.wrote(scope, id, None, &run.subject);
                collection.count(|counts| counts.deleted += 1);
                run.publish("Deleted", format!("deleted the {noun} {name} ({id})"));
                Ok(Finalized::Done)
            }
            Deletion::Begun => {
                match collection.remote.get(scope, id).await? {
                    Some(now) => collection.saw(scope, now, &run.subject),
                    None => collection.wrote(scope, id, None, &run.subject),
                }
                let message = format!("the server deletes the {noun} {name} ({id})");
                Ok(Finalized::Pending(LOOK_WHILE_DELETING, "Deleting", message))
            }
        }
    }

    fn leave(&self, ledger: &impl Ledger, item: String) {
        ledger.publish(ObjectEvent { reason: "LeftBehind", message: format!("left behind {item}") });
        lock(&self.0.memory).leave(LeftBehind { subject: ledger.subject(), item });
    }
}

/// The plan for an object with this desired content; `None` is for one that is being deleted.
fn to_have<R: Remote>(desired: Option<&R::Desired>) -> impl Fn(&Facts<'_, R>) -> Step<R::Item> {
    move |facts| plan(&Facts { desired, ..*facts })
}

fn dry(plan: &str) -> Failure {
    tracing::info!("dry run: {plan}");
    Failure::permanent("DryRun", plan)
}

fn endless<R: Remote>(binding: &Binding) -> Failure {
    let message = format!("the plan for the {} {} does not end; report a bug", R::NOUN, binding.name);
    Failure::permanent("EndlessPlan", message)
}
