//! The objects with a request, as the watches show them, and the versions of the Secrets that they use. Nothing else is kept.

mod binding;
mod claims;
mod pace;
mod selections;
mod shares;
mod tracked_record;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use konverge_apply::announce::ReasonGauge;
use konverge_core::{digest::ContentDigest, reverse_index::ReverseIndex};
use konverge_vault::{
    Mount,
    boundaries::{Place, Rule, is_allowed},
};
use tokio::time::Instant;

use crate::{
    desired::Wanted,
    object::{Kind, ObjectRef, SecretRef},
    record::{Record, Written},
};
pub use binding::{Announced, Binding, ParsedSpec, Push, SecretChange, WatchedObject};
use claims::{Claims, location_of};
pub use claims::{Share, key_of};
pub use pace::{FailureCount, Verified};
pub(crate) use pace::{LOOK_AGAIN, earlier, look_again};
use selections::{SelectionChange, Selections};
use shares::Shares;

/// All bindings. The lock covers only lookups and updates.
#[derive(Default)]
pub struct Bindings(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    bindings: HashMap<ObjectRef, Binding>,
    /// The names of objects that went past our finalizer and are not cleared yet, each with the object that has the name by now.
    ///
    /// To delete an object, the API server reads it, asks the webhooks, and deletes it. A finalizer that comes in between holds nothing
    /// (kubernetes/kubernetes issue 77988). The run that added it still writes to Vault, and nothing would clear that. So the binding of such an
    /// object stays, as that of an object that is being deleted, until its paths are cleared or in the list of orphans. Another object that has
    /// the name by then waits for that, as it would have waited for the finalizer. A process that ends before forgets it.
    escaped: HashMap<ObjectRef, Option<Binding>>,
    /// Which Secrets an object uses.
    uses: ReverseIndex<ObjectRef, SecretRef>,
    /// The versions of used Secrets, as far as they were seen. A Secret that does not exist has none.
    versions: HashMap<SecretRef, Option<String>>,
    shares: Shares,
    selections: Selections,
    claims: Claims,
    /// The locations in which several objects have keys and that are being read: the response to one read counts for all of them.
    reading: HashSet<String>,
    /// Which namespaces may write where, and what the cluster is called there.
    rules: Vec<Rule>,
    cluster: Option<String>,
    /// The engines of all recorded paths, also of objects that are gone.
    mounts: BTreeSet<Mount>,
    /// The kinds of which a complete list was seen.
    listed: BTreeSet<Kind>,
    /// Counts the objects by the reason of their state.
    reasons: ReasonGauge,
    /// How many paths all objects have.
    paths: usize,
}

/// Another object with keys at a location, and its content there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sharer {
    /// The object.
    pub key: ObjectRef,
    /// Its uid.
    pub uid: String,
    /// Its record of the location.
    pub written: Written,
    /// The content of its keys.
    pub held: ContentDigest,
}

/// The relation of content in Vault to the object that its mark names, as far as this process knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MarkedContent {
    /// The record of the object has the location.
    Requested,
    /// The object is in sync without the location.
    Left,
    /// No watch shows the object, or it requests nothing.
    OfUnknownObject,
    /// The object is not in sync yet, or no complete list of its kind was seen.
    Undecided,
}

/// An object that requests a path, or keys of it, that another object leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Heir {
    pub(crate) key: ObjectRef,
    pub(crate) uid: String,
}

/// The heirs of a location: the objects that request it when its owner leaves it.
#[derive(Debug, Default)]
pub(crate) struct Heritage {
    /// The heir of the whole location.
    pub(crate) whole: Option<Heir>,
    /// The heirs of keys of the location.
    pub(crate) keys: BTreeMap<String, Heir>,
}

/// A read that is under way of a location in which several objects have keys. No other read of it begins until this one ends, because the
/// response counts for all of them.
pub struct OngoingRead<'a> {
    bindings: &'a Bindings,
    location: &'a str,
}

impl Heritage {
    /// Whether other objects get all that was written there.
    pub(crate) fn is_complete(&self, written: &Written) -> bool {
        let mut keys = written.keys.iter().flatten().chain(&written.pending).peekable();
        self.whole.is_some() || keys.peek().is_some() && keys.all(|name| self.keys.contains_key(name))
    }
}

impl Drop for OngoingRead<'_> {
    fn drop(&mut self) {
        self.bindings.lock().reading.remove(self.location);
    }
}

impl Bindings {
    /// No object is known yet. The record of a path counts only where these rules allow the path, because a user who may annotate an object may
    /// have written its record.
    pub fn within(rules: Vec<Rule>, cluster: Option<String>, reasons: ReasonGauge) -> Self {
        Self(Mutex::new(Inner { rules, cluster, reasons, ..Inner::default() }))
    }

    /// A watch shows an object that has a request or our finalizer. Returns whether there is something to do.
    pub fn apply(&self, object: WatchedObject) -> bool {
        let mut inner = self.lock();
        if inner.must_wait(&object) {
            return inner.apply_waiting(object);
        }
        let key = object.key.clone();
        let before = inner.paths_of(&key);
        let known = inner.bindings.get_mut(&key);
        let reason = known.as_ref().and_then(|known| known.announced.reason);
        let work = if let Some(binding) = known.filter(|known| known.uid == object.uid) {
            binding.apply(object)
        } else {
            let mut binding = Binding::new(object);
            // An object of the same name counts as the one before until something is stated about it.
            binding.announced.reason = reason;
            inner.bindings.insert(key.clone(), binding);
            true
        };
        inner.recount(&key, before);
        inner.index(&key);
        work
    }

    /// An object is gone, or requests nothing and has nothing to clear. Returns the objects that may have waited for its paths, or `None` if the
    /// object was not known, or only waited.
    pub fn remove(&self, key: &ObjectRef) -> Option<Vec<ObjectRef>> {
        let mut inner = self.lock();
        if let Some(waiting) = inner.escaped.get_mut(key) {
            *waiting = None;
            return None;
        }
        inner.forget(key)
    }

    /// Removes the binding of an object whose paths are cleared or listed as orphans. Returns the objects that may have waited for its paths, and the
    /// one that has its name by now. Returns `None` if the object with this uid is not known any more.
    pub fn cleared(&self, key: &ObjectRef, uid: &str) -> Option<Vec<ObjectRef>> {
        let mut inner = self.lock();
        inner.bindings.get(key).filter(|binding| binding.uid == uid)?;
        inner.forget(key)
    }

    /// A watch shows that an object is gone. If it had our finalizer and nobody had begun to delete it, keeps its binding as that of an object that is
    /// being deleted, and returns `true`.
    ///
    /// The watches select no objects, so none can have left a selection instead.
    pub fn escape(&self, key: &ObjectRef, now: Timestamp) -> bool {
        let mut inner = self.lock();
        let Inner { bindings, escaped, .. } = &mut *inner;
        let Some(binding) = bindings.get_mut(key).filter(|binding| binding.is_held()) else { return false };
        binding.deleting = Some(now);
        escaped.insert(key.clone(), None);
        true
    }

    /// Returns the record of an object that our finalizer held, and that is gone or has a successor with this uid, if no watch showed its deletion.
    pub fn lost(&self, key: &ObjectRef, successor: Option<&str>) -> Option<Record> {
        let inner = self.lock();
        let held = inner.bindings.get(key).filter(|binding| binding.is_held());
        held.filter(|held| successor != Some(held.uid.as_str())).and_then(|held| held.record.clone())
    }

    /// Whether the object with this uid went past our finalizer and is not cleared yet.
    pub fn has_escaped(&self, key: &ObjectRef, uid: &str) -> bool {
        let inner = self.lock();
        inner.escaped.contains_key(key) && inner.bindings.get(key).is_some_and(|binding| binding.uid == uid)
    }

    /// A complete list of a kind was seen: these are known and not in it, so they are gone.
    pub fn missing(&self, kind: Kind, listed: &HashSet<ObjectRef>) -> Vec<ObjectRef> {
        let mut inner = self.lock();
        inner.listed.insert(kind);
        let gone = |key: &&ObjectRef| key.kind == kind && !listed.contains(*key);
        inner.bindings.keys().filter(gone).cloned().collect()
    }

    /// Whether a complete list was seen of each of these kinds, so that it is known which paths their objects have.
    pub fn are_listed(&self, kinds: &[Kind]) -> bool {
        let inner = self.lock();
        kinds.iter().all(|kind| inner.listed.contains(kind))
    }

    /// A Secret has this version and these labels, or no version if it is gone. Returns the objects that use it, or that select or selected it
    /// by labels, unless they know this version.
    pub fn secret_is(
        &self,
        secret: &SecretRef,
        version: Option<&str>,
        labels: &BTreeMap<String, String>,
    ) -> Vec<ObjectRef> {
        let mut inner = self.lock();
        let mut selecting = inner.select(secret, version.map(|_| labels));
        if !inner.uses.is_referenced(secret) {
            return selecting;
        }
        let now = version.map(str::to_owned);
        let before = inner.versions.insert(secret.clone(), now.clone());
        if before.as_ref() == Some(&now) {
            return selecting;
        }
        let Inner { bindings, uses, .. } = &mut *inner;
        for user in uses.referrers(secret) {
            let Some(binding) = bindings.get_mut(user) else { continue };
            binding.failures.refusals = 0;
            if before.is_some() {
                // The first change that is not in Vault yet counts.
                let change = || SecretChange { at: Instant::now(), secret: secret.name.clone(), version: now.clone() };
                binding.pending.changed.get_or_insert_with(change);
            }
        }
        selecting.extend(uses.referrers(secret).cloned());
        selecting
    }

    /// The object requests a list of the Secrets that fit its selector.
    pub fn begin_selection(&self, key: &ObjectRef) {
        self.lock().selections.begin_list(key);
    }

    /// These Secrets match. Events of the watch since the request count more.
    pub fn selected(&self, key: &ObjectRef, names: BTreeSet<String>) {
        let mut inner = self.lock();
        let names = inner.selections.end_list(key, names);
        inner.use_only(key, names.iter().map(|name| key.secret(name)).collect());
    }

    /// Whether the object uses these Secrets and no other.
    pub fn uses_just(&self, key: &ObjectRef, sources: &BTreeMap<String, Option<String>>) -> bool {
        let inner = self.lock();
        inner.uses.targets(key).map(|secret| &secret.name).eq(sources.keys())
    }

    /// A Secret was read in this version. A version from the watch stays, because it may be newer.
    pub fn secret_was(&self, secret: &SecretRef, version: Option<&str>) {
        let mut inner = self.lock();
        if inner.uses.is_referenced(secret) {
            inner.versions.entry(secret.clone()).or_insert_with(|| version.map(str::to_owned));
        }
    }

    /// The version in which a used Secret is there, as far as that was seen.
    pub fn version(&self, secret: &SecretRef) -> Option<String> {
        self.lock().versions.get(secret).cloned().flatten()
    }

    /// Whether any object uses the Secret.
    pub fn is_used(&self, secret: &SecretRef) -> bool {
        self.lock().uses.is_referenced(secret)
    }

    /// A complete list showed these numbers of Secrets by namespace.
    pub fn secrets_listed(&self, counts: HashMap<String, usize>) {
        self.lock().shares.listed(counts);
    }

    /// Returns whether at least `least` Secrets of the namespace are used, and at least half of all.
    pub fn are_mostly_used(&self, namespace: &str, least: usize) -> bool {
        self.lock().shares.are_mostly_used(namespace, least)
    }

    /// A complete list of Secrets was seen: used ones that are not in it are gone. Returns the objects that use those.
    pub fn secrets_are(&self, listed: &HashSet<SecretRef>) -> Vec<ObjectRef> {
        let gone: Vec<_> = self.lock().uses.all_targets().filter(|secret| !listed.contains(*secret)).cloned().collect();
        gone.iter().flat_map(|secret| self.secret_is(secret, None, &BTreeMap::new())).collect()
    }

    /// A write of this operator changed only a Secret's metadata: the new version has the content of the old one.
    pub fn renamed_version(&self, secret: &SecretRef, from: &str, to: &str) {
        let mut inner = self.lock();
        if let Some(version) = inner.versions.get_mut(secret).filter(|version| version.as_deref() == Some(from)) {
            *version = Some(to.to_owned());
        }
        let Inner { bindings, uses, versions, .. } = &mut *inner;
        let shown = versions.get(secret);
        for user in uses.referrers(secret) {
            let Some(binding) = bindings.get_mut(user) else { continue };
            // The watch was faster than the response, so this write counted as a change of the content. Only later versions are changes.
            let is_own =
                |change: &mut SecretChange| change.secret == secret.name && change.version.as_deref() == Some(to);
            if binding.pending.changed.take_if(is_own).is_some()
                && let Some(version) = shown.filter(|shown| shown.as_deref() != Some(to))
            {
                let change = SecretChange { at: Instant::now(), secret: secret.name.clone(), version: version.clone() };
                binding.pending.changed = Some(change);
            }
            if let Some(version) = binding.verified.as_mut().and_then(|verified| verified.sources.get_mut(&secret.name))
                && version.as_deref() == Some(from)
            {
                *version = Some(to.to_owned());
            }
        }
    }

    /// Whether the Secrets are, as far as the watch has shown, in these versions.
    pub fn are_current(&self, namespace: &str, sources: &BTreeMap<String, Option<String>>) -> bool {
        let inner = self.lock();
        sources.iter().all(|(name, version)| {
            let secret = SecretRef { namespace: namespace.to_owned(), name: name.clone() };
            inner.versions.get(&secret) == Some(version)
        })
    }

    /// Whether an object is known.
    pub fn has(&self, key: &ObjectRef) -> bool {
        self.lock().bindings.contains_key(key)
    }

    /// Returns the number of recorded paths of all objects.
    pub(crate) fn paths(&self) -> usize {
        self.lock().paths
    }

    /// Returns the uids of all objects.
    pub(crate) fn uids(&self) -> HashSet<String> {
        self.lock().bindings.values().map(|binding| binding.uid.clone()).collect()
    }

    /// Returns the kinds of which a complete list was seen.
    pub(crate) fn listed(&self) -> BTreeSet<Kind> {
        self.lock().listed.clone()
    }

    /// Returns what the objects of these kinds no longer request: for each object its record with those paths, and the policy of deletion that counts.
    pub(crate) fn left(&self, kinds: &BTreeSet<Kind>) -> Vec<(ObjectRef, Record)> {
        let inner = self.lock();
        let of_kinds = inner.bindings.iter().filter(|(key, _)| kinds.contains(&key.kind));
        of_kinds.filter_map(|(key, binding)| Some((key.clone(), binding.left()?))).collect()
    }

    /// Whether the object no longer requests the location, which it still has.
    pub(crate) fn is_leaving(&self, key: &ObjectRef, location: &str) -> bool {
        let inner = self.lock();
        let record = inner.bindings.get(key).and_then(|binding| binding.record.as_ref());
        record.and_then(|record| record.paths.get(location)).is_some_and(|written| written.unwanted.is_some())
    }

    /// Returns the engines of all paths recorded since the process started.
    pub(crate) fn mounts(&self) -> BTreeSet<Mount> {
        self.lock().mounts.clone()
    }

    /// Returns `true` if a record says that an object has written the whole location.
    pub(crate) fn is_written(&self, location: &str) -> bool {
        let inner = self.lock();
        inner.claims.claimants(&location.to_owned()).filter_map(|key| inner.bindings.get(key)).any(|binding| {
            let written = binding.record.as_ref().and_then(|record| record.paths.get(location));
            written.is_some_and(|written| written.written && !written.left && written.keys.is_none())
        })
    }

    /// Returns what this process knows of content with the mark of an object. A successor of its name counts as the object.
    pub(crate) fn marked(&self, key: &ObjectRef, location: &str) -> MarkedContent {
        let inner = self.lock();
        match inner.bindings.get(key) {
            None if inner.listed.contains(&key.kind) => MarkedContent::OfUnknownObject,
            Some(binding) if binding.record.as_ref().is_some_and(|record| record.paths.contains_key(location)) => {
                MarkedContent::Requested
            }
            Some(binding) if binding.verified.is_some() => MarkedContent::Left,
            None | Some(_) => MarkedContent::Undecided,
        }
    }

    /// Returns `true` if this process knows of content in Vault of the object with this uid.
    pub fn has_content(&self, key: &ObjectRef, uid: &str) -> bool {
        self.lock().bindings.get(key).is_some_and(|binding| binding.uid == uid && binding.has_content())
    }

    /// Returns the heirs of a location: the other objects that request it, or recorded keys of it.
    pub(crate) fn heirs(&self, key: &ObjectRef, location: &str, written: &Written) -> Heritage {
        let inner = self.lock();
        let heir = |claimed: &str| {
            let others = inner.claims.claimants(&claimed.to_owned()).filter(|other| *other != key);
            others.map(|other| (other, inner.bindings.get(other))).find_map(|(other, binding)| {
                let binding = binding
                    .filter(|binding| binding.deleting.is_none() && matches!(binding.spec, ParsedSpec::Push(_)))?;
                Some(Heir { key: other.clone(), uid: binding.uid.clone() })
            })
        };
        let names = written.keys.iter().flatten().chain(&written.pending);
        Heritage {
            whole: if written.keys.is_none() { heir(location) } else { None },
            keys: names.filter_map(|name| Some((name.clone(), heir(&key_of(location, name))?))).collect(),
        }
    }

    /// The binding of an object.
    pub fn get(&self, key: &ObjectRef) -> Option<Binding> {
        self.lock().bindings.get(key).cloned()
    }

    /// Updates the binding, unless the object is another one or has another request by now.
    pub fn update_if_current(&self, key: &ObjectRef, before: &Binding, update: impl FnOnce(&mut Binding)) {
        self.on_object(key, &before.uid, |now| {
            if now.spec == before.spec {
                update(now);
            }
        });
    }

    /// Updates the binding, whatever the object requests by now, unless it is another object.
    pub fn on_object(&self, key: &ObjectRef, uid: &str, update: impl FnOnce(&mut Binding)) {
        let mut inner = self.lock();
        let paths = inner.paths_of(key);
        let Inner { bindings, reasons, .. } = &mut *inner;
        if let Some(now) = bindings.get_mut(key).filter(|now| now.uid == uid) {
            let before = now.announced.reason;
            update(now);
            reasons.moved(before, now.announced.reason);
        }
        inner.recount(key, paths);
    }

    /// Returns whether the object still has the same request.
    pub fn is_current(&self, key: &ObjectRef, before: &Binding) -> bool {
        let inner = self.lock();
        inner.bindings.get(key).is_some_and(|now| {
            now.uid == before.uid && now.spec == before.spec && now.deleting.is_some() == before.deleting.is_some()
        })
    }

    /// Lays claim to a location. Of two objects that were never there, the first gets it; one that has it keeps it.
    pub fn claim(&self, key: &ObjectRef, location: &str, share: Share) -> Result<(), ObjectRef> {
        self.lock().claims.claim(key, location.to_owned(), share)
    }

    /// Gives up the locations that an object has claimed and neither requests nor has recorded, such as a path that it could not have. Returns
    /// the objects that waited for them.
    pub fn release_unwanted(&self, key: &ObjectRef, is_wanted: impl Fn(&str) -> bool) -> Vec<ObjectRef> {
        let mut inner = self.lock();
        let Inner { bindings, claims, .. } = &mut *inner;
        let record = bindings.get(key).and_then(|binding| binding.record.as_ref());
        let is_recorded = |location: &str| record.is_some_and(|record| record.paths.contains_key(location));
        claims.release_unless(key, |claimed| is_wanted(location_of(claimed)) || is_recorded(location_of(claimed)))
    }

    /// Gives up a location. Returns the objects that waited for it.
    pub fn release(&self, key: &ObjectRef, location: &str) -> Vec<ObjectRef> {
        self.lock().claims.release(key, &location.to_owned())
    }

    /// Begins a read of a location. `None` if one is under way.
    pub fn begin_read<'a>(&'a self, location: &'a str) -> Option<OngoingRead<'a>> {
        let is_first = self.lock().reading.insert(location.to_owned());
        is_first.then_some(OngoingRead { bindings: self, location })
    }

    /// The other objects whose keys were all at the location.
    pub fn sharers(&self, key: &ObjectRef, location: &str) -> Vec<Sharer> {
        let inner = self.lock();
        let found = inner.claims.sharing(key, &location.to_owned(), Share::Keys).filter_map(|other| {
            let binding = inner.bindings.get(other).filter(|binding| binding.verified.is_some())?;
            let written = binding.record.as_ref()?.paths.get(location)?.clone();
            Some(Sharer { key: other.clone(), uid: binding.uid.clone(), written, held: *binding.held.get(location)? })
        });
        found.collect()
    }

    /// All of a location was deleted while other objects may have had keys there. Returns these objects, which need a verification now.
    pub fn doubt_sharers(&self, key: &ObjectRef, location: &str) -> Vec<ObjectRef> {
        let mut inner = self.lock();
        let sharers: Vec<_> = inner.claims.sharing(key, &location.to_owned(), Share::Keys).cloned().collect();
        for sharer in &sharers {
            inner.doubt(sharer);
        }
        sharers
    }

    /// A path that the object has by now was cleared for an earlier owner. The object needs a verification now.
    pub fn doubt(&self, key: &ObjectRef) {
        self.lock().doubt(key);
    }

    /// When any object last verified the location for this one. `None` if this one has not been in sync since.
    pub fn seen(&self, key: &ObjectRef, location: &str) -> Option<Instant> {
        let inner = self.lock();
        let verified = inner.bindings.get(key)?.verified.as_ref();
        verified.map(|verified| verified.seen(location))
    }

    /// A read that began then found the keys of a sharer in sync. That counts only if its desired content is still the one that was compared.
    pub fn saw(&self, sharer: &Sharer, location: &str, begun: Instant) {
        self.on_object(&sharer.key, &sharer.uid, |now| {
            if now.held.get(location) == Some(&sharer.held)
                && let Some(verified) = &mut now.verified
            {
                let seen = |other: &String| if other == location { begun } else { verified.seen(other) };
                verified.see(now.held.keys().map(|other| (other.clone(), seen(other))).collect(), begun);
            }
        });
    }

    /// The objects whose last run failed.
    pub fn failing(&self) -> Vec<ObjectRef> {
        let inner = self.lock();
        inner.bindings.iter().filter(|(_, binding)| binding.failures.in_a_row > 0).map(|(key, _)| key.clone()).collect()
    }

    /// The time since the oldest verification of all objects with an interval.
    pub fn oldest_look(&self) -> Duration {
        let now = Timestamp::now();
        self.lock().bindings.values().filter_map(|binding| binding.unseen(now)).max().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn paths_of(&self, key: &ObjectRef) -> usize {
        let record = self.bindings.get(key).and_then(|binding| binding.record.as_ref());
        record.map_or(0, |record| record.paths.len())
    }

    /// The object had this number of paths before a change.
    fn recount(&mut self, key: &ObjectRef, before: usize) {
        self.paths = (self.paths + self.paths_of(key)).saturating_sub(before);
    }

    /// Whether the object has the name of another one that is still to be cleared. That other one may also be there again, out of a backup.
    fn must_wait(&mut self, object: &WatchedObject) -> bool {
        let is_back = self.bindings.get(&object.key).is_some_and(|former| former.uid == object.uid);
        if is_back {
            self.escaped.remove(&object.key);
        }
        self.escaped.contains_key(&object.key)
    }

    /// Takes in an object that must wait. Returns whether there is something to do.
    fn apply_waiting(&mut self, object: WatchedObject) -> bool {
        match self.escaped.get_mut(&object.key) {
            Some(Some(known)) if known.uid == object.uid => known.apply(object),
            _ => {
                self.escaped.insert(object.key.clone(), Some(Binding::new(object)));
                true
            }
        }
    }

    /// Forgets an object. The one that waited for it takes its place.
    fn forget(&mut self, key: &ObjectRef) -> Option<Vec<ObjectRef>> {
        let before = self.paths_of(key);
        let binding = self.bindings.remove(key)?;
        self.reasons.moved(binding.announced.reason, None);
        let successor = self.escaped.remove(key).flatten().map(|successor| (key.clone(), successor));
        let mut waiting = self.claims.release_unless(key, |_| false);
        waiting.extend(successor.as_ref().map(|(key, _)| key.clone()));
        self.bindings.extend(successor);
        self.recount(key, before);
        self.index(key);
        Some(waiting)
    }

    /// Updates the indexes: the Secrets that the object uses, and its locations.
    fn index(&mut self, key: &ObjectRef) {
        let Some(binding) = self.bindings.get(key) else {
            self.selections.set(key, None);
            return self.use_only(key, Vec::new());
        };
        let wanted = match &binding.spec {
            ParsedSpec::Push(push) => Some(&push.wanted),
            ParsedSpec::Nothing { .. } | ParsedSpec::Invalid(..) => None,
        };
        let used = wanted.into_iter().flat_map(Wanted::names).map(|name| key.secret(name)).collect();
        let selector = wanted.and_then(Wanted::selector);
        let place = Place { namespace: &key.namespace, name: &key.name, cluster: self.cluster.as_deref() };
        let recorded = binding.record.iter().flat_map(Record::locations);
        for (location, written) in recorded.filter(|(location, _)| is_allowed(&self.rules, &place, location)) {
            let text = location.to_string();
            for name in written.keys.iter().flatten() {
                self.claims.recall(key, key_of(&text, name), Share::Whole);
            }
            self.claims.recall(key, text, Share::of(written));
            if !self.mounts.contains(location.mount()) {
                self.mounts.insert(location.mount().clone());
            }
        }
        let selects = selector.is_some();
        let is_new = self.selections.set(key, selector);
        // The Secrets that fit a selector are known already, or the next run lists them.
        if !selects || is_new {
            self.use_only(key, used);
        }
    }

    /// A Secret has these labels, or is gone. Returns the objects whose selection that changes.
    fn select(&mut self, secret: &SecretRef, labels: Option<&BTreeMap<String, String>>) -> Vec<ObjectRef> {
        let mut changed = Vec::new();
        for SelectionChange { by, fits, is_listing } in self.selections.apply(secret, labels) {
            let is_new = self.uses.get(&by, secret).is_some() != fits;
            if is_new {
                let others = self.uses.targets(&by).filter(|used| *used != secret).cloned();
                let used = others.chain(fits.then(|| secret.clone())).collect();
                self.use_only(&by, used);
            }
            if is_new || is_listing {
                changed.push(by);
            }
        }
        changed
    }

    fn doubt(&mut self, key: &ObjectRef) {
        if let Some(binding) = self.bindings.get_mut(key) {
            binding.verified = None;
        }
    }

    fn use_only(&mut self, key: &ObjectRef, used: Vec<SecretRef>) {
        let changes = self.uses.set(key, used.into_iter().map(|secret| (secret, ())));
        for secret in changes.added {
            if self.uses.referrers(&secret).len() == 1 {
                self.shares.used(&secret.namespace);
            }
        }
        for secret in changes.removed {
            if !self.uses.is_referenced(&secret) {
                self.shares.unused(&secret.namespace);
                self.versions.remove(&*secret);
            }
        }
    }
}

#[cfg(test)]
mod tests;
