//! The Secrets that pull fills, as the watch shows them. Nothing about any other Secret is kept.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use konverge_apply::Statement;
use konverge_core::{reverse_index::ReverseIndex, revert_backoff::RevertBackoff};
use konverge_runtime::{
    own_writes::{Freshness, OwnWrites},
    watch::Origin,
};
use tokio::time::Instant;

use crate::{
    annotations::Declaration,
    hub::Hub,
    metrics::Metrics,
    plan::Verified,
    record::proofs,
    source::Reference,
    wanted::{Made, Owner},
};

/// The namespace and the name of a Secret.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SecretRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for SecretRef {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.namespace, self.name)
    }
}

/// A subscription, or a statement for the owner of the Secret that has none.
pub type Subscribed = Result<Arc<Hub>, Arc<Statement>>;

/// A bound Secret. All of it can be lost at any time: the cluster and the server have the truth.
#[derive(Clone)]
pub struct Binding {
    /// The object's uid; another one under the same name is another binding. `None` until a Secret is seen that a custom resource has made.
    pub uid: Option<String>,
    /// Where its data is to come from.
    pub declared: Declaration,
    /// The subscriptions that keep the contents followed, in the order of the sources, or why there are none.
    pub hubs: Vec<Subscribed>,
    /// The resource version that the watch has shown last.
    pub shown: Option<String>,
    /// Whether another client may have written since it was verified.
    pub is_touched: bool,
    /// Its content when it was last verified.
    pub verified: Option<Verified>,
    /// Its annotations with a prefix of this operator that nobody reads.
    pub unknown: Vec<String>,
    /// The statements of the last run.
    pub said: Vec<Statement>,
    /// When this process last wrote it.
    pub written_at: Option<Instant>,
    /// When its sources were first seen empty, while that is not confirmed.
    pub empty_since: Option<Instant>,
    /// The record on the Secret, as last seen by the watch or written by this process.
    pub record: Option<String>,
    /// The series of reverts by another client.
    pub reverts: Option<Reverts>,
    /// The newest resource version whose content is known: the one that this process wrote or read last.
    pub known: Option<String>,
}

/// A series of reverts of this process's writes.
#[derive(Debug, Clone)]
pub struct Reverts {
    /// The number of reverts, and the resulting pause.
    pub row: RevertBackoff,
    /// The time at which the last revert was noticed.
    pub last: Instant,
    /// The field manager of the other client, once seen. The API server updates the time of a manager's entry only when its fields change, so later
    /// reverts need not show it.
    pub by: Option<String>,
}

/// A Secret, as the watch shows it.
pub struct WatchedSecret {
    /// The object's uid.
    pub uid: String,
    /// Its resource version.
    pub shown: String,
    /// Where its data is to come from.
    pub declared: Declaration,
    /// The subscriptions to its contents, or why there are none.
    pub hubs: Vec<Subscribed>,
    /// Its annotations that nobody reads.
    pub unknown: Vec<String>,
    /// The record on the Secret.
    pub record: Option<String>,
}

impl Binding {
    /// The binding of an object that the watch shows for the first time.
    fn new(seen: WatchedSecret) -> Self {
        let WatchedSecret { uid, shown, declared, hubs, unknown, record } = seen;
        Self { uid: Some(uid), shown: Some(shown), unknown, record, ..Self::unseen(declared, hubs) }
    }

    /// The binding of a Secret that may not exist.
    fn unseen(declared: Declaration, hubs: Vec<Subscribed>) -> Self {
        Self {
            uid: None,
            declared,
            hubs,
            shown: None,
            is_touched: true,
            verified: None,
            unknown: Vec::new(),
            said: Vec::new(),
            written_at: None,
            empty_since: None,
            record: None,
            reverts: None,
            known: None,
        }
    }

    /// Returns how the Secret is made, if a custom resource has it made.
    pub fn made(&self) -> Option<&Made> {
        self.declared.wanted()?.made.as_ref()
    }

    /// Whether it is of this object with these sources. The rules decide the same for both. An unseen Secret may be any.
    fn is_of(&self, uid: Option<&str>, declared: &Declaration) -> bool {
        let is_same_object = self.uid.is_none() || uid.is_none() || self.uid.as_deref() == uid;
        is_same_object && self.declared == *declared
    }

    fn last_reason(&self) -> Option<&'static str> {
        self.said.first().map(|statement| statement.reason)
    }
}

/// The resource versions whose content a run has learned, if there are any.
#[derive(Debug, Clone, Copy, Default)]
pub struct Learned<'a> {
    /// The version that it read.
    pub read: Option<&'a str>,
    /// The version that it wrote.
    pub written: Option<&'a str>,
    /// The uid, if it has created the Secret.
    pub uid: Option<&'a str>,
}

/// All bindings.
pub struct Bindings {
    inner: Mutex<Inner>,
    metrics: Metrics,
}

#[derive(Default)]
struct Inner {
    bindings: HashMap<SecretRef, Binding>,
    /// The contents that each Secret is bound to.
    uses: ReverseIndex<SecretRef, Reference>,
    own_writes: OwnWrites<SecretRef>,
}

impl Inner {
    /// Puts a binding in place of another one.
    fn insert(&mut self, key: SecretRef, binding: Binding) -> Option<Binding> {
        self.own_writes.forget(&key);
        let sources = binding.declared.wanted().filter(|_| binding.hubs.iter().all(Result::is_ok));
        let references = sources.iter().flat_map(|wanted| &wanted.sources).map(|source| (source.reference.clone(), ()));
        self.uses.set(&key, references);
        self.bindings.insert(key, binding)
    }
}

impl Bindings {
    /// No bindings yet.
    pub fn new(metrics: Metrics) -> Self {
        Self { inner: Mutex::default(), metrics }
    }

    /// The watch shows a bound Secret. Returns whether there is work: the binding is new, or another client wrote to the Secret.
    pub fn apply(&self, key: SecretRef, seen: WatchedSecret, origin: Origin) -> bool {
        let inner = &mut *self.lock();
        let Inner { bindings, own_writes, .. } = inner;
        let Some(binding) = current(bindings, &key, Some(&seen.uid), &seen.declared) else {
            // The statements go, too: about another object or another source, the same words are news.
            let before = inner.insert(key, Binding::new(seen));
            self.metrics.reason_changed(before.as_ref().and_then(Binding::last_reason), None);
            return true;
        };
        binding.unknown = seen.unknown;
        if binding.shown.as_ref() == Some(&seen.shown) {
            return false;
        }
        binding.uid = Some(seen.uid.clone());
        let freshness = own_writes.classify(&key, Some(&seen.uid), &seen.shown, Instant::now());
        let is_known = binding.known.as_ref() == Some(&seen.shown) || freshness == Freshness::Echo;
        binding.shown = Some(seen.shown);
        if is_known {
            binding.is_touched = false;
        } else if origin == Origin::List || freshness == Freshness::New {
            // A list is the state of the API server, also if it is older than a write of ours.
            own_writes.forget(&key);
            binding.is_touched = true;
            binding.record = seen.record;
            return true;
        }
        false
    }

    /// A run that began with `before` has learned the content of these resource versions.
    pub fn learned(&self, key: &SecretRef, before: &Binding, learned: Learned<'_>) {
        let Some(known) = learned.written.or(learned.read) else { return };
        let Inner { bindings, own_writes, .. } = &mut *self.lock();
        let Some(binding) = current(bindings, key, before.uid.as_deref(), &before.declared) else { return };
        if binding.uid.is_none() {
            binding.uid = learned.uid.map(str::to_owned);
        }
        let (uid, now) = (binding.uid.as_deref(), Instant::now());
        if let Some(version) = learned.written {
            own_writes.wrote(key, uid, version, now);
        }
        // The watch may have been faster than the answer, and may have shown the changes of others meanwhile.
        binding.is_touched = binding.shown != before.shown
            && binding.shown.as_ref().is_some_and(|shown| {
                own_writes.classify(key, uid, shown, now) == Freshness::New && learned.read != Some(shown)
            });
        binding.known = Some(known.to_owned());
    }

    /// A custom resource has the Secret made. Returns `false` if annotations on the Secret itself precede that.
    pub fn bind(&self, key: &SecretRef, declared: Declaration, hubs: impl FnOnce() -> Vec<Subscribed>) -> bool {
        let mut inner = self.lock();
        let before = inner.bindings.get(key);
        if let Some(before) = before
            && (before.declared == declared || before.made().is_none())
        {
            return before.declared == declared;
        }
        let seen = before.map(|before| (before.uid.clone(), before.shown.clone()));
        let (uid, shown) = seen.unwrap_or_default();
        let before = inner.insert(key.clone(), Binding { uid, shown, ..Binding::unseen(declared, hubs()) });
        self.metrics.reason_changed(before.as_ref().and_then(Binding::last_reason), None);
        true
    }

    /// The Secret is gone. Returns the custom resource that has it made. Without one, the binding ends.
    pub fn gone(&self, key: &SecretRef) -> Option<Owner> {
        let mut inner = self.lock();
        let owner = inner.bindings.get(key).and_then(|binding| Some(binding.made()?.owner.clone()));
        let Some(owner) = owner else {
            drop(inner);
            self.remove(key);
            return None;
        };
        if let Some(Binding { declared, hubs, said, .. }) = inner.bindings.remove(key) {
            inner.insert(key.clone(), Binding { said, ..Binding::unseen(declared, hubs) });
        }
        Some(owner)
    }

    /// Ends the binding of a Secret that this custom resource has made. The Secret stays as it is.
    pub fn release(&self, key: &SecretRef, owner: &Owner) {
        let is_of_owner = self.get(key).is_some_and(|binding| binding.made().is_some_and(|made| made.owner == *owner));
        if is_of_owner {
            self.remove(key);
        }
    }

    /// The Secret is not to be filled any more. Its subscriptions end with it.
    pub fn remove(&self, key: &SecretRef) {
        let mut inner = self.lock();
        inner.own_writes.forget(key);
        inner.uses.remove(key);
        let removed = inner.bindings.remove(key);
        drop(inner);
        if let Some(binding) = removed {
            self.metrics.reason_changed(binding.last_reason(), None);
        }
    }

    /// Returns the bound Secrets that are not in a complete list, and are therefore gone. Secrets that were never seen are not among them.
    pub fn vanished(&self, listed: &HashSet<SecretRef>) -> Vec<SecretRef> {
        let inner = self.lock();
        let gone = inner.bindings.iter().filter(|(key, binding)| binding.uid.is_some() && !listed.contains(*key));
        gone.map(|(key, _)| key.clone()).collect()
    }

    /// Returns the binding of the Secret, if it is bound.
    pub fn get(&self, key: &SecretRef) -> Option<Binding> {
        self.lock().bindings.get(key).cloned()
    }

    /// Whether it is still the same object with the same source, so that it may be written.
    pub fn is_current(&self, key: &SecretRef, before: &Binding) -> bool {
        self.lock().bindings.get(key).is_some_and(|now| now.is_of(before.uid.as_deref(), &before.declared))
    }

    /// Changes the binding if it is still of the same object with the same source.
    pub fn update_if_current(&self, key: &SecretRef, before: &Binding, change: impl FnOnce(&mut Binding)) {
        let mut inner = self.lock();
        if let Some(binding) = current(&mut inner.bindings, key, before.uid.as_deref(), &before.declared) {
            let reason = binding.last_reason();
            change(binding);
            self.metrics.reason_changed(reason, binding.last_reason());
        }
    }

    /// Returns the stores' own records on all bound Secrets.
    pub fn records(&self) -> Vec<String> {
        let inner = self.lock();
        let of = |binding: &Binding| {
            let is_made = binding.made().is_some();
            binding.record.iter().flat_map(|record| proofs(record, is_made)).collect::<Vec<_>>()
        };
        inner.bindings.values().flat_map(of).collect()
    }

    /// The Secrets that are bound to the content, each with the custom resource that has it made.
    pub fn bound_to(&self, reference: &Reference) -> Vec<(SecretRef, Option<Owner>)> {
        let inner = self.lock();
        let owner = |key: &SecretRef| inner.bindings.get(key).and_then(|binding| Some(binding.made()?.owner.clone()));
        inner.uses.referrers(reference).map(|key| (key.clone(), owner(key))).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the binding if it still is of this object with this source.
fn current<'a>(
    bindings: &'a mut HashMap<SecretRef, Binding>,
    key: &SecretRef,
    uid: Option<&str>,
    declared: &Declaration,
) -> Option<&'a mut Binding> {
    bindings.get_mut(key).filter(|binding| binding.is_of(uid, declared))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> SecretRef {
        SecretRef { namespace: "shop".into(), name: "backend".into() }
    }

    fn nothing() -> Arc<Statement> {
        Arc::new(crate::messages::invalid_annotation("nothing"))
    }

    fn bindings() -> Bindings {
        Bindings::new(Metrics::new(&mut prometheus_client::registry::Registry::default()))
    }

    fn shown_by(origin: Origin, bindings: &Bindings, uid: &str, resource_version: &str) -> bool {
        let declared = Declaration::Incomplete(vec!["zopp.dev/project"]);
        let (uid, shown) = (uid.into(), resource_version.into());
        let seen =
            WatchedSecret { uid, shown, declared, hubs: vec![Err(nothing())], unknown: Vec::new(), record: None };
        bindings.apply(key(), seen, origin)
    }

    fn show(bindings: &Bindings, uid: &str, resource_version: &str) -> bool {
        shown_by(Origin::Watch, bindings, uid, resource_version)
    }

    /// The worker read `read` and wrote `written`, having begun when the watch showed what it shows now.
    fn work(bindings: &Bindings, read: Option<&str>, written: Option<&str>, meanwhile: impl FnOnce(&Bindings)) {
        let before = bindings.get(&key()).unwrap();
        meanwhile(bindings);
        bindings.learned(&key(), &before, Learned { read, written, uid: None });
    }

    fn is_touched(bindings: &Bindings) -> bool {
        bindings.get(&key()).unwrap().is_touched
    }

    #[test]
    fn a_new_object_and_a_foreign_write_are_work_and_our_own_write_is_none() {
        let bindings = bindings();
        assert!(show(&bindings, "one", "1"), "new");
        assert!(!show(&bindings, "one", "1"), "shown again by a list");
        work(&bindings, Some("1"), Some("2"), |_| {});
        assert!(!show(&bindings, "one", "2"), "our own write");
        assert!(show(&bindings, "one", "3"), "somebody else's");
        assert!(show(&bindings, "two", "4"), "created again");
    }

    #[test]
    fn our_own_write_is_recognised_when_the_watch_is_faster_than_the_answer() {
        let bindings = bindings();
        show(&bindings, "one", "1");
        work(&bindings, Some("1"), Some("2"), |bindings| {
            show(bindings, "one", "2");
        });
        assert!(!is_touched(&bindings));
    }

    #[test]
    fn a_foreign_write_after_ours_counts_even_when_shown_before_the_answer() {
        let bindings = bindings();
        show(&bindings, "one", "1");
        work(&bindings, Some("1"), Some("2"), |bindings| {
            show(bindings, "one", "2");
            show(bindings, "one", "3");
        });
        assert!(is_touched(&bindings));
    }

    #[test]
    fn the_late_echoes_of_several_writes_are_no_work() {
        let bindings = bindings();
        show(&bindings, "one", "1");
        work(&bindings, Some("3"), Some("4"), |_| {});
        work(&bindings, None, Some("5"), |_| {});
        for version in ["2", "3", "4", "5"] {
            assert!(!show(&bindings, "one", version), "{version}");
            assert!(!is_touched(&bindings), "{version}");
        }
        assert_eq!(bindings.get(&key()).unwrap().known.as_deref(), Some("5"));
        assert!(show(&bindings, "one", "6"));
    }

    #[test]
    fn a_version_that_was_read_is_no_work_when_the_watch_shows_it() {
        let bindings = bindings();
        show(&bindings, "one", "1");
        work(&bindings, Some("2"), None, |_| {});
        assert!(!show(&bindings, "one", "2") && !is_touched(&bindings));
        work(&bindings, Some("3"), None, |bindings| {
            show(bindings, "one", "3");
        });
        assert!(!is_touched(&bindings));
    }

    #[test]
    fn a_list_counts_also_if_it_is_older_than_our_write() {
        let bindings = bindings();
        show(&bindings, "one", "8");
        work(&bindings, Some("8"), Some("9"), |_| {});
        assert!(shown_by(Origin::List, &bindings, "one", "5"), "a store that was restored from a backup");
        assert!(is_touched(&bindings));
        assert!(show(&bindings, "one", "6"), "what follows is news");
    }

    #[test]
    fn what_we_wrote_to_a_predecessor_hides_nothing() {
        let bindings = bindings();
        show(&bindings, "one", "1");
        work(&bindings, Some("1"), Some("9"), |_| {});
        assert!(show(&bindings, "two", "5"), "created again");
        assert!(show(&bindings, "two", "6"));
        bindings.remove(&key());
        assert!(show(&bindings, "two", "7"));
    }

    #[test]
    fn a_list_removes_what_it_does_not_show() {
        let bindings = bindings();
        show(&bindings, "one", "1");
        assert!(bindings.vanished(&HashSet::from([key()])).is_empty());
        assert_eq!(bindings.vanished(&HashSet::new()), [key()]);
        assert_eq!(bindings.gone(&key()), None);
        assert!(bindings.get(&key()).is_none());
    }
}
