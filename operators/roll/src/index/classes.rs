//! What pods use by classes of the Secrets Store CSI driver: the Secrets in which it puts what it mounts for them.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashSet},
};

use konverge_workload::{SecretProviderClass, Usage};
use litemap::LiteMap;

use super::{Index, Inner, Known, Work};
use crate::{
    object::{SourceName, WorkloadRef},
    uses::MADE,
};

/// A class: its namespace and its name.
pub type ClassRef = (String, String);

impl Index {
    /// A watch shows a class. Returns which one; nothing if it has no name.
    pub fn show_class(&self, class: SecretProviderClass) -> (Option<ClassRef>, Work) {
        let Some(key) = class.metadata.namespace.zip(class.metadata.name) else { return (None, Work::default()) };
        let secrets = class.secrets.into_iter().map(SourceName::secret).collect();
        let work = self.lock().class_makes(&key, secrets);
        (Some(key), work)
    }

    /// A class is gone.
    pub fn forget_class(&self, key: &ClassRef) -> Work {
        self.lock().class_makes(key, BTreeSet::new())
    }

    /// A complete list of classes was seen: what is not in it is gone.
    pub fn retain_classes(&self, shown: &HashSet<ClassRef>) -> Work {
        let mut inner = self.lock();
        let gone: Vec<_> = inner.classes.keys().filter(|key| !shown.contains(*key)).cloned().collect();
        let mut work = Work::default();
        for key in gone {
            work.add(inner.class_makes(&key, BTreeSet::new()));
        }
        work
    }

    /// All that the pods of a workload use.
    pub fn referenced(&self, key: &WorkloadRef) -> Vec<SourceName> {
        let inner = self.lock();
        let known = inner.workloads.get(key);
        known.map(|known| inner.referenced(&key.namespace, known).keys().cloned().collect()).unwrap_or_default()
    }
}

impl Inner {
    /// The driver makes these Secrets for pods that mount a class, and no others.
    fn class_makes(&mut self, key: &ClassRef, secrets: BTreeSet<SourceName>) -> Work {
        let mut work = Work::default();
        if self.classes.get(key).map_or(secrets.is_empty(), |known| *known == secrets) {
            return work;
        }
        let users: Vec<_> = self.mounted.referrers(key).cloned().collect();
        if secrets.is_empty() {
            self.classes.remove(key);
        } else {
            self.classes.insert(key.clone(), secrets);
        }
        for user in &users {
            self.set_named(user);
            self.index(user, &mut work);
        }
        work
    }

    /// All that the pods of a workload use: what they name, and what the driver makes for them.
    pub(super) fn referenced<'a>(&self, namespace: &str, known: &'a Known) -> Cow<'a, LiteMap<SourceName, Usage>> {
        let of_class = |class: &String| self.classes.get(&(namespace.to_owned(), class.clone()));
        let mut all = Cow::Borrowed(&known.referenced);
        for secret in known.classes.iter().filter_map(of_class).flatten() {
            all.to_mut().insert(secret.clone(), MADE);
        }
        all
    }
}
