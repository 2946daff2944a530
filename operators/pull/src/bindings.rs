//! The annotated Secrets, from what the watch shows of them. Nothing about any other Secret is kept.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use konverge_zopp_client::EnvironmentName;
use tokio::time::Instant;

use crate::{annotations::Declaration, hub::Hub, messages::Message, metrics::Metrics, plan::Verified};

/// Which Secret.
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

/// Where a Secret's data is to come from.
#[derive(Clone)]
pub enum Source {
    /// The annotations are incomplete.
    Incomplete(Vec<&'static str>),
    /// The platform's rules forbid it.
    NotAllowed(EnvironmentName),
    /// The environment, and the subscription that keeps it followed.
    Environment(EnvironmentName, Arc<Hub>),
}

impl Source {
    /// Whether annotations that say this would still bind the Secret to it.
    pub fn is_declared_by(&self, declared: &Declaration) -> bool {
        match (self, declared) {
            (Self::Environment(name, _) | Self::NotAllowed(name), Declaration::Bound(declared)) => name == declared,
            (Self::Incomplete(missing), Declaration::Incomplete { missing: declared }) => missing == declared,
            _ => false,
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Incomplete(left), Self::Incomplete(right)) => left == right,
            (Self::NotAllowed(left), Self::NotAllowed(right))
            | (Self::Environment(left, _), Self::Environment(right, _)) => left == right,
            _ => false,
        }
    }
}

/// What is known of a bound Secret. All of it can be lost at any time: the cluster and the server have the truth.
#[derive(Clone)]
pub struct Binding {
    /// The object's uid; another one under the same name is another binding.
    pub uid: String,
    /// Where its data comes from.
    pub source: Source,
    /// The resource version that the watch showed last.
    pub seen: String,
    /// Somebody else may have written since it was verified.
    pub touched: bool,
    /// What it held when it was last verified.
    pub verified: Option<Verified>,
    /// What was last said of it.
    pub said: Vec<Message>,
    /// When it was last written by us.
    pub written_at: Option<Instant>,
    /// When its environment was first seen empty, while that is not confirmed.
    pub empty_since: Option<Instant>,
    /// Resource versions whose content is known: the one last read and the one last written.
    known: Vec<String>,
}

impl Binding {
    fn new(uid: String, source: Source, seen: String) -> Self {
        Self {
            uid,
            source,
            seen,
            touched: true,
            verified: None,
            said: Vec::new(),
            written_at: None,
            empty_since: None,
            known: Vec::new(),
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        self.uid == other.uid && self.source.is_same(&other.source)
    }

    /// The newest resource version whose content is known: the one that this process wrote or read last.
    pub fn newest_known(&self) -> Option<&str> {
        self.known.last().map(String::as_str)
    }

    /// The content of these resource versions is known now. `seen_before` is what the watch had shown when the work began: if it
    /// shows the same still, or one of these, then nobody else wrote.
    pub fn knows(&mut self, resource_versions: Vec<String>, seen_before: &str) {
        self.touched = self.seen != seen_before && !resource_versions.contains(&self.seen);
        self.known = resource_versions;
    }
}

/// All bindings.
pub struct Bindings {
    bindings: Mutex<HashMap<SecretRef, Binding>>,
    metrics: Metrics,
}

impl Bindings {
    /// No bindings yet.
    pub fn new(metrics: Metrics) -> Self {
        Self { bindings: Mutex::default(), metrics }
    }

    /// The watch shows a bound Secret. Returns whether there is something to do: it is new, or somebody else wrote to it.
    pub fn show(&self, key: SecretRef, uid: String, resource_version: String, source: Source) -> bool {
        let mut bindings = self.lock();
        let same = |binding: &&mut Binding| binding.uid == uid && binding.source.is_same(&source);
        let Some(binding) = bindings.get_mut(&key).filter(same) else {
            // Also what was said goes: of another object or another source, the same words would be news.
            let before = bindings.insert(key, Binding::new(uid, source, resource_version));
            self.metrics.rebound(before.as_ref().and_then(last_word), None);
            return true;
        };
        if binding.seen == resource_version {
            return false;
        }
        binding.touched = !binding.known.contains(&resource_version);
        binding.seen = resource_version;
        binding.touched
    }

    /// The watch shows that the Secret is gone, or no longer ours. Its subscription ends with it.
    pub fn remove(&self, key: &SecretRef) {
        let removed = self.lock().remove(key);
        if let Some(binding) = removed {
            self.metrics.rebound(last_word(&binding), None);
        }
    }

    /// Removes all that a complete list did not show.
    pub fn retain(&self, shown: &HashSet<SecretRef>) {
        let vanished: Vec<_> = self.lock().keys().filter(|key| !shown.contains(*key)).cloned().collect();
        for key in vanished {
            self.remove(&key);
        }
    }

    /// What is known of the Secret, if it is bound.
    pub fn get(&self, key: &SecretRef) -> Option<Binding> {
        self.lock().get(key).cloned()
    }

    /// Whether it is still the same object with the same source, so that it may be written.
    pub fn is_current(&self, key: &SecretRef, before: &Binding) -> bool {
        self.lock().get(key).is_some_and(|now| now.is_same(before))
    }

    /// Changes what is known of it, if it is still the same object with the same source.
    pub fn settle(&self, key: &SecretRef, before: &Binding, change: impl FnOnce(&mut Binding)) {
        let mut bindings = self.lock();
        if let Some(binding) = bindings.get_mut(key)
            && binding.is_same(before)
        {
            let word = last_word(binding);
            change(binding);
            let now = last_word(binding);
            if word != now {
                self.metrics.rebound(word, now);
            }
        }
    }

    /// The Secrets that are bound to the environment.
    pub fn bound_to(&self, name: &EnvironmentName) -> Vec<SecretRef> {
        let bindings = self.lock();
        let bound = bindings.iter().filter(
            |(_, binding)| matches!(&binding.source, Source::Environment(environment, _) if environment == name),
        );
        bound.map(|(key, _)| key.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SecretRef, Binding>> {
        self.bindings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn last_word(binding: &Binding) -> Option<&'static str> {
    binding.said.first().map(|message| message.reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> SecretRef {
        SecretRef { namespace: "shop".into(), name: "backend".into() }
    }

    fn bindings() -> Bindings {
        Bindings::new(Metrics::new(&mut prometheus_client::registry::Registry::default()))
    }

    fn show(bindings: &Bindings, uid: &str, resource_version: &str) -> bool {
        bindings.show(key(), uid.into(), resource_version.into(), Source::Incomplete(vec!["zopp.dev/project"]))
    }

    /// The worker read `read` and wrote `written`, having begun when the watch showed what it shows now.
    fn work(bindings: &Bindings, known: &[&str], meanwhile: impl FnOnce(&Bindings)) {
        let before = bindings.get(&key()).unwrap();
        meanwhile(bindings);
        let known = known.iter().map(|&version| version.to_owned()).collect();
        bindings.settle(&key(), &before, |binding| binding.knows(known, &before.seen));
    }

    #[test]
    fn a_new_object_and_a_foreign_write_are_work_and_our_own_write_is_none() {
        let bindings = bindings();
        assert!(show(&bindings, "one", "1"), "new");
        assert!(!show(&bindings, "one", "1"), "shown again by a list");
        work(&bindings, &["1", "2"], |_| {});
        assert!(!show(&bindings, "one", "2"), "our own write");
        assert!(show(&bindings, "one", "3"), "somebody else's");
        assert!(show(&bindings, "two", "4"), "created again");
    }

    #[test]
    fn our_own_write_is_recognised_when_the_watch_is_faster_than_the_answer() {
        let bindings = bindings();
        show(&bindings, "one", "1");
        work(&bindings, &["1", "2"], |bindings| {
            show(bindings, "one", "2");
        });
        assert!(!bindings.get(&key()).unwrap().touched);
    }

    #[test]
    fn a_foreign_write_after_ours_counts_even_when_shown_before_the_answer() {
        let bindings = bindings();
        show(&bindings, "one", "1");
        work(&bindings, &["1", "2"], |bindings| {
            show(bindings, "one", "2");
            show(bindings, "one", "3");
        });
        assert!(bindings.get(&key()).unwrap().touched);
    }

    #[test]
    fn a_list_removes_what_it_does_not_show() {
        let bindings = bindings();
        show(&bindings, "one", "1");
        bindings.retain(&HashSet::from([key()]));
        assert!(bindings.get(&key()).is_some());
        bindings.retain(&HashSet::new());
        assert!(bindings.get(&key()).is_none());
    }
}
