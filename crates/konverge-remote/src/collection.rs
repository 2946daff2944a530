//! The items of a server as one list for all objects: who needs it waits for one call, and own writes pass through it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::mpsc, task::JoinSet, time::Instant};

use crate::{
    failure::Failure,
    relations::{Interest, Relations, Subject},
    remote::Remote,
};

/// The items of a scope by id.
pub type Items<I> = BTreeMap<String, Arc<I>>;

/// How long a failed list counts as the answer for objects that come later, so that many objects make few calls.
const FAILURE_COUNTS: Duration = Duration::from_secs(1);

/// The list of a scope.
pub(crate) struct Snapshot<I> {
    pub(crate) items: Arc<Items<I>>,
    /// When the call began that brought it.
    pub(crate) begun: Instant,
}

impl<I> Clone for Snapshot<I> {
    fn clone(&self) -> Self {
        Self { items: Arc::clone(&self.items), begun: self.begun }
    }
}

/// Counts of the writes and corrections in a collection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) created: u64,
    pub(crate) updated: u64,
    pub(crate) deleted: u64,
    pub(crate) drift_found: u64,
    pub(crate) drift_corrected: u64,
}

/// The lists of all scopes of one [`Remote`], and who is interested in which items.
pub(crate) struct Collection<R: Remote> {
    pub(crate) remote: R,
    interval: Duration,
    /// How long a write that has ended may be missing in a list.
    settle: Duration,
    state: Mutex<State<R::Item>>,
}

struct State<I> {
    scopes: BTreeMap<String, Scope<I>>,
    relations: Relations,
    /// By scope and id: items of objects that somebody else has changed or deleted, and whether a write was needed to correct that.
    drifted: BTreeMap<(String, String), bool>,
    counts: Counts,
    /// Since when the lists are read in each interval; `None` on a replica that stands by.
    polls_since: Option<Instant>,
    /// By kind: where the objects go that a difference concerns.
    wakers: BTreeMap<String, mpsc::UnboundedSender<Subject>>,
}

struct Scope<I> {
    /// Held by the caller that lists.
    listing: Arc<tokio::sync::Mutex<()>>,
    snapshot: Option<Snapshot<I>>,
    /// When the last call failed, and how.
    failed: Option<(Instant, Failure)>,
    /// Whether the objects were told that the list is too old.
    is_stale: bool,
    /// Own writes that a list may not show: the id, the item or `None` after a deletion, and when the write ended.
    writes: Vec<(String, Option<Arc<I>>, Instant)>,
}

impl<I> Default for Scope<I> {
    fn default() -> Self {
        Self { listing: Arc::default(), snapshot: None, failed: None, is_stale: false, writes: Vec::new() }
    }
}

impl<R: Remote> Collection<R> {
    pub(crate) fn new(remote: R, interval: Duration, settle: Duration) -> Self {
        let state = State {
            scopes: BTreeMap::new(),
            relations: Relations::default(),
            drifted: BTreeMap::new(),
            counts: Counts::default(),
            polls_since: None,
            wakers: BTreeMap::new(),
        };
        Self { remote, interval, settle, state: Mutex::new(state) }
    }

    /// The oldest list that still counts: two intervals, so that one failed call changes nothing.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        Instant::now().checked_sub(self.interval * 2)
    }

    /// Returns a list of the scope that began at `not_before` or later, after a call if there is none. Callers that come together share a call.
    pub(crate) async fn list(&self, scope: &str, not_before: Option<Instant>) -> Result<Snapshot<R::Item>, Failure> {
        let is_enough = |known: &Snapshot<R::Item>| not_before.is_none_or(|not_before| known.begun >= not_before);
        let listing = {
            let mut state = self.state();
            let scope = state.scopes.entry(scope.to_owned()).or_default();
            if let Some(known) = scope.snapshot.clone().filter(is_enough) {
                return Ok(known);
            }
            Arc::clone(&scope.listing)
        };
        let came = Instant::now();
        let _turn = listing.lock().await;
        {
            let state = self.state();
            let of = state.scopes.get(scope);
            if let Some(known) = of.and_then(|of| of.snapshot.clone()).filter(is_enough) {
                return Ok(known);
            }
            let failed = of.and_then(|of| of.failed.clone());
            if let Some((_, failure)) = failed.filter(|(at, _)| *at >= came || at.elapsed() < FAILURE_COUNTS) {
                return Err(failure);
            }
        }
        let begun = Instant::now();
        match self.read(scope).await {
            Ok(items) => Ok(self.replace(scope, items, begun)),
            Err(failure) => {
                if let Some(scope) = self.state().scopes.get_mut(scope) {
                    scope.failed = Some((Instant::now(), failure.clone()));
                }
                Err(failure)
            }
        }
    }

    /// Lists. An empty answer after one with items is asked for again.
    async fn read(&self, scope: &str) -> Result<Items<R::Item>, Failure> {
        let items = self.remote.list(scope).await?;
        let had_some = {
            let state = self.state();
            let known = state.scopes.get(scope).and_then(|scope| scope.snapshot.as_ref());
            known.is_some_and(|known| !known.items.is_empty())
        };
        let items = if items.is_empty() && had_some { self.remote.list(scope).await? } else { items };
        Ok(items.into_iter().map(|item| (R::id(&item).to_owned(), Arc::new(item))).collect())
    }

    /// Takes a new list, with own writes that it may not show, and wakes the objects that the differences concern.
    fn replace(&self, name: &str, mut items: Items<R::Item>, begun: Instant) -> Snapshot<R::Item> {
        let mut state = self.state();
        let State { scopes, relations, drifted, wakers, .. } = &mut *state;
        drifted.retain(|item, _| relations.is_held(item));
        let scope = scopes.entry(name.to_owned()).or_default();
        scope.writes.retain(|(_, _, ended)| *ended + self.settle >= begun);
        for (id, item, _) in &scope.writes {
            match item {
                Some(item) => drop(items.insert(id.clone(), Arc::clone(item))),
                None => drop(items.remove(id)),
            }
        }
        let snapshot = Snapshot { items: Arc::new(items), begun };
        let mut concerned = BTreeSet::new();
        if let Some(before) = &scope.snapshot {
            for id in before.items.keys().chain(snapshot.items.keys()) {
                let pair = [before.items.get(id), snapshot.items.get(id)];
                if pair[0] != pair[1] {
                    let item = (name.to_owned(), id.clone());
                    if pair[0].is_some() && relations.is_held(&item) {
                        drifted.entry(item).or_default();
                    }
                    concerned.extend(relations.concerned(name, id, pair.iter().flatten().map(|item| R::name(item))));
                }
            }
        }
        scope.snapshot = Some(snapshot.clone());
        scope.failed = None;
        scope.is_stale = false;
        wake(wakers, concerned);
        snapshot
    }

    /// Notes an own write: the item as the server answered, or `None` after a deletion. Wakes the other objects that it concerns.
    pub(crate) fn wrote(&self, name: &str, id: &str, item: Option<Arc<R::Item>>, by: &Subject) {
        let mut state = self.state();
        let State { scopes, relations, wakers, .. } = &mut *state;
        let scope = scopes.entry(name.to_owned()).or_default();
        let mut before = None;
        if let Some(snapshot) = &mut scope.snapshot {
            let items = Arc::make_mut(&mut snapshot.items);
            before = match &item {
                Some(item) => items.insert(id.to_owned(), Arc::clone(item)),
                None => items.remove(id),
            };
        }
        let mut concerned = BTreeSet::new();
        if before != item {
            let names = before.iter().chain(&item).map(|item| R::name(item));
            concerned = relations.concerned(name, id, names);
            concerned.remove(by);
        }
        scope.writes.retain(|(written, _, _)| written != id);
        scope.writes.push((id.to_owned(), item, Instant::now()));
        wake(wakers, concerned);
    }

    /// Notes what the server said of one item that the list does not show.
    pub(crate) fn saw(&self, scope: &str, item: R::Item, by: &Subject) {
        let id = R::id(&item).to_owned();
        self.wrote(scope, &id, Some(Arc::new(item)), by);
    }

    /// Whether somebody else has changed the item of an object since it was as the object says.
    pub(crate) fn is_drifted(&self, scope: &str, id: &str) -> bool {
        self.state().drifted.contains_key(&(scope.to_owned(), id.to_owned()))
    }

    /// Notes that an item of an object needs a write because somebody else has changed or deleted it, if that is the reason.
    pub(crate) fn drift_found(&self, scope: &str, id: &str) {
        let State { drifted, counts, .. } = &mut *self.state();
        if let Some(is_found) = drifted.get_mut(&(scope.to_owned(), id.to_owned()))
            && !*is_found
        {
            *is_found = true;
            counts.drift_found += 1;
        }
    }

    /// Notes that the item of this id is as its object says, or that another one has taken its place.
    pub(crate) fn drift_settled(&self, scope: &str, id: &str) {
        let State { drifted, counts, .. } = &mut *self.state();
        if drifted.remove(&(scope.to_owned(), id.to_owned())) == Some(true) {
            counts.drift_corrected += 1;
        }
    }

    /// Counts what was done.
    pub(crate) fn count(&self, count: impl FnOnce(&mut Counts)) {
        count(&mut self.state().counts);
    }

    /// Returns the counts so far, and the age of the list of each scope that somebody [polls](Self::poll).
    pub(crate) fn figures(&self) -> (Counts, BTreeMap<String, Duration>) {
        let state = self.state();
        let Some(polls_since) = state.polls_since else { return (state.counts, BTreeMap::new()) };
        let ages = state.relations.scopes().into_iter().map(|name| {
            let listed = state.scopes.get(&name).and_then(|scope| Some(scope.snapshot.as_ref()?.begun));
            let age = listed.unwrap_or(polls_since).elapsed();
            (name, age)
        });
        (state.counts, ages.collect())
    }

    /// Lists each scope again in each interval, for ever. Failures are logged and told to the objects once the list is too old.
    pub(crate) async fn poll(self: &Arc<Self>) {
        let _polling = Polling::begin(self);
        loop {
            tokio::time::sleep(self.interval).await;
            let scopes = self.state().relations.scopes();
            self.state().scopes.retain(|scope, _| scopes.contains(scope));
            let mut calls = JoinSet::new();
            for scope in scopes {
                let collection = Arc::clone(self);
                calls.spawn(async move { collection.look(&scope).await });
            }
            calls.join_all().await;
        }
    }

    async fn look(&self, scope: &str) {
        // A list that an object asked for a moment ago is as good.
        let not_before = Instant::now().checked_sub(self.interval / 10);
        if let Err(failure) = self.list(scope, not_before).await {
            tracing::warn!(collection = R::NOUN, scope, "cannot list: {failure}");
            self.report_stale(scope);
        }
    }

    /// Wakes the objects of a scope whose list has become too old, once.
    fn report_stale(&self, name: &str) {
        let oldest = self.oldest();
        let mut state = self.state();
        let State { scopes, relations, wakers, .. } = &mut *state;
        let Some(scope) = scopes.get_mut(name) else { return };
        let begun = scope.snapshot.as_ref().map(|snapshot| snapshot.begun);
        if begun < oldest && !scope.is_stale {
            scope.is_stale = true;
            wake(wakers, relations.in_scope(name));
        }
    }

    /// The objects of this kind that differences concern, from now on.
    pub(crate) fn changes(&self, kind: &str) -> mpsc::UnboundedReceiver<Subject> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.state().wakers.insert(kind.to_owned(), sender);
        receiver
    }

    /// Sets or removes the interest of an object.
    pub(crate) fn interest(&self, subject: &Subject, interest: Option<Interest>) {
        let mut state = self.state();
        let concerned = state.relations.set(subject, interest);
        wake(&state.wakers, concerned);
    }

    /// Reads the relations.
    pub(crate) fn relations<T>(&self, read: impl FnOnce(&mut Relations) -> T) -> T {
        read(&mut self.state().relations)
    }

    fn state(&self) -> MutexGuard<'_, State<R::Item>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody polls until this is dropped.
struct Polling<'a, R: Remote>(&'a Collection<R>);

impl<'a, R: Remote> Polling<'a, R> {
    fn begin(collection: &'a Collection<R>) -> Self {
        collection.state().polls_since = Some(Instant::now());
        Self(collection)
    }
}

impl<R: Remote> Drop for Polling<'_, R> {
    fn drop(&mut self) {
        self.0.state().polls_since = None;
    }
}

fn wake(wakers: &BTreeMap<String, mpsc::UnboundedSender<Subject>>, concerned: BTreeSet<Subject>) {
    for subject in concerned {
        if let Some(waker) = wakers.get(&subject.kind) {
            // A receiver that is gone belongs to a controller that has ended.
            drop(waker.send(subject));
        }
    }
}
