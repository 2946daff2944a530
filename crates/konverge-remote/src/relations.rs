//! Which objects want which items: claims, references, and whom a change concerns.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use crate::binding::Binding;

/// An object of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject {
    /// The kind, such as `Bucket`.
    pub kind: String,
    /// The namespace, if the kind has one.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

/// The interest of an object in items of one collection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// The uid of the object.
    pub uid: String,
    /// When the object was created, in seconds since 1970. Of two objects that claim one item, the older keeps it.
    pub created: i64,
    /// Whether the object is being deleted.
    pub is_deleting: bool,
    /// The items that it stands for, as scope and name, or as scope and id where it adopts one by its id.
    pub claims: BTreeSet<(String, String)>,
    /// The items that it refers to, as scope and name.
    pub references: BTreeSet<(String, String)>,
}

impl Interest {
    /// Claims the item of a binding.
    #[must_use]
    pub fn claims(mut self, binding: &Binding) -> Self {
        self.claims.extend(binding.claims().map(|claim| (binding.scope.clone(), claim.to_owned())));
        self
    }

    /// Refers to the item of this name. The object is woken when it appears, changes or goes, and the item is not deleted before the object is.
    #[must_use]
    pub fn refers_to(mut self, scope: &str, name: &str) -> Self {
        self.references.insert((scope.to_owned(), name.to_owned()));
        self
    }
}

/// All interests in one collection.
#[derive(Debug, Default)]
pub(crate) struct Relations {
    interests: BTreeMap<Subject, Interest>,
    claimants: BTreeMap<(String, String), BTreeSet<Subject>>,
    users: BTreeMap<(String, String), BTreeSet<Subject>>,
    /// By scope and id: the object whose item it is.
    holders: BTreeMap<(String, String), Subject>,
}

impl Relations {
    /// Sets or removes the interest of an object. Returns the other objects that this concerns: what it no longer claims others may have, and what
    /// it no longer refers to may go.
    pub(crate) fn set(&mut self, subject: &Subject, interest: Option<Interest>) -> BTreeSet<Subject> {
        let before = self.interests.remove(subject).unwrap_or_default();
        remove(&mut self.claimants, &before.claims, subject);
        remove(&mut self.users, &before.references, subject);
        let after = interest.clone().unwrap_or_default();
        let released: Vec<_> =
            before.claims.difference(&after.claims).chain(before.references.difference(&after.references)).collect();
        let concerned =
            released.into_iter().flat_map(|item| self.claimants.get(item).into_iter().flatten().cloned()).collect();
        if let Some(interest) = interest {
            add(&mut self.claimants, &interest.claims, subject);
            add(&mut self.users, &interest.references, subject);
            self.interests.insert(subject.clone(), interest);
        } else {
            self.holders.retain(|_, holder| holder != subject);
        }
        concerned
    }

    /// Notes whose item this is.
    pub(crate) fn hold(&mut self, scope: &str, id: &str, subject: &Subject) {
        let item = (scope.to_owned(), id.to_owned());
        if self.interests.contains_key(subject) && self.holders.get(&item) != Some(subject) {
            self.holders.insert(item, subject.clone());
        }
    }

    /// Returns the objects that an item of this id and these names concerns.
    pub(crate) fn concerned<'a>(
        &self,
        scope: &str,
        id: &'a str,
        names: impl IntoIterator<Item = &'a str>,
    ) -> BTreeSet<Subject> {
        let holder = self.holders.get(&(scope.to_owned(), id.to_owned()));
        let by_name = names.into_iter().chain([id]).flat_map(|name| {
            let item = (scope.to_owned(), name.to_owned());
            self.claimants.get(&item).into_iter().chain(self.users.get(&item)).flatten()
        });
        holder.into_iter().chain(by_name).cloned().collect()
    }

    /// Returns the objects that claim an item of the scope.
    pub(crate) fn in_scope(&self, scope: &str) -> BTreeSet<Subject> {
        let claims = self.claimants.iter().filter(|((of, _), _)| of == scope);
        claims.flat_map(|(_, subjects)| subjects).cloned().collect()
    }

    /// Returns the scopes in which objects claim something or refer to something.
    pub(crate) fn scopes(&self) -> BTreeSet<String> {
        self.claimants.keys().chain(self.users.keys()).map(|(scope, _)| scope.clone()).collect()
    }

    /// Returns the oldest object that claims one of these, by name or id, if it is older than `subject`.
    pub(crate) fn older<'a>(
        &self,
        subject: &Subject,
        scope: &str,
        claims: impl IntoIterator<Item = &'a str>,
    ) -> Option<Subject> {
        let age =
            |subject: &Subject| self.interests.get(subject).map(|interest| (interest.created, interest.uid.as_str()));
        let own = age(subject)?;
        let claimants =
            claims.into_iter().filter_map(|claim| self.claimants.get(&(scope.to_owned(), claim.to_owned())));
        let oldest = claimants.flatten().filter_map(|other| Some((age(other)?, other))).min()?;
        (oldest.0 < own).then(|| oldest.1.clone())
    }

    /// Returns the other objects that refer to the item and are not being deleted themselves.
    pub(crate) fn users(&self, subject: &Subject, scope: &str, name: &str) -> Vec<String> {
        let users = self.users.get(&(scope.to_owned(), name.to_owned())).into_iter().flatten();
        let stays = |user: &&Subject| {
            *user != subject && self.interests.get(*user).is_some_and(|interest| !interest.is_deleting)
        };
        users.filter(stays).map(ToString::to_string).collect()
    }

    /// Whether an object with this uid has an interest.
    pub(crate) fn knows(&self, uid: &str) -> bool {
        self.interests.values().any(|interest| interest.uid == uid)
    }
}

fn add(map: &mut BTreeMap<(String, String), BTreeSet<Subject>>, items: &BTreeSet<(String, String)>, subject: &Subject) {
    for item in items {
        map.entry(item.clone()).or_default().insert(subject.clone());
    }
}

fn remove(
    map: &mut BTreeMap<(String, String), BTreeSet<Subject>>,
    items: &BTreeSet<(String, String)>,
    subject: &Subject,
) {
    for item in items {
        if let Some(subjects) = map.get_mut(item) {
            subjects.remove(subject);
            if subjects.is_empty() {
                map.remove(item);
            }
        }
    }
}
