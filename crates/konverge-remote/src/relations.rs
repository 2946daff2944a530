//! Which objects want which items: claims, references, and whom a change concerns.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, mem,
};

use konverge_core::{allow::Pattern, claims::Claims, reverse_index::ReverseIndex};

use crate::binding::Binding;

/// An object of the cluster. It gets no further field.
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
#[non_exhaustive]
pub struct Interest {
    /// The uid of the object.
    pub uid: String,
    /// When the object was created, in seconds since 1970. Of two objects that claim one item, the older keeps it.
    pub created: i64,
    /// Whether the object has a record of its own, and not a copy of another object's. Of two objects that were created in the same second, it keeps
    /// the item.
    pub is_recorded: bool,
    /// Whether the object is being deleted.
    pub is_deleting: bool,
    /// The items that it stands for, as scope and name, or as scope and id where it adopts one by its id.
    pub claims: BTreeSet<(String, String)>,
    /// The items that it refers to, as scope and name.
    pub references: BTreeSet<(String, String)>,
    /// The names of items that the object may use; `None` for all. A claim to another item keeps no other object from it.
    pub names: Option<Vec<Pattern>>,
}

impl Interest {
    /// Claims the item of a binding. Of an object with several bindings, either all or none limit the [names](Binding::names).
    #[must_use]
    pub fn claims(mut self, binding: &Binding) -> Self {
        self.claims.extend(binding.claims().map(|claim| (binding.scope.clone(), claim.to_owned())));
        if let Some(names) = &binding.names {
            self.names.get_or_insert_default().extend(names.iter().cloned());
        }
        self
    }

    /// Returns `true` if the object may use an item of one of these names.
    fn permits(&self, names: &[&str]) -> bool {
        let Some(patterns) = &self.names else { return true };
        patterns.iter().any(|pattern| names.iter().any(|name| pattern.matches(name)))
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
    /// The interests without their claims and references, which the indexes have.
    interests: BTreeMap<Subject, Interest>,
    claims: Claims<Subject, (String, String)>,
    references: ReverseIndex<Subject, (String, String)>,
    /// By scope and id: the object whose item it is.
    holders: BTreeMap<(String, String), Subject>,
}

impl Relations {
    /// Sets or removes the interest of an object. Returns the other objects that this concerns: what it no longer claims others may have, and what
    /// it no longer refers to may go.
    pub(crate) fn set(&mut self, subject: &Subject, interest: Option<Interest>) -> BTreeSet<Subject> {
        let is_gone = interest.is_none();
        let mut interest = interest.unwrap_or_default();
        let released = self.claims.set(subject, mem::take(&mut interest.claims));
        let references = mem::take(&mut interest.references).into_iter().map(|item| (item, ()));
        let unused = self.references.set(subject, references).removed;
        if is_gone {
            self.interests.remove(subject);
            self.holders.retain(|_, holder| holder != subject);
        } else {
            self.interests.insert(subject.clone(), interest);
        }
        let items = released.iter().chain(unused.iter().map(|item| &**item));
        let claimants = items.flat_map(|item| self.claims.claimants(item));
        claimants.filter(|claimant| *claimant != subject).cloned().collect()
    }

    /// Notes whose item this is.
    pub(crate) fn hold(&mut self, scope: &str, id: &str, subject: &Subject) {
        let item = (scope.to_owned(), id.to_owned());
        if self.interests.contains_key(subject) && self.holders.get(&item) != Some(subject) {
            self.holders.insert(item, subject.clone());
        }
    }

    /// Whether the item of this id is that of an object.
    pub(crate) fn is_held(&self, item: &(String, String)) -> bool {
        self.holders.contains_key(item)
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
            self.claims.claimants(&item).chain(self.references.referrers(&item))
        });
        holder.into_iter().chain(by_name).cloned().collect()
    }

    /// Returns the objects that claim an item of the scope.
    pub(crate) fn in_scope(&self, scope: &str) -> BTreeSet<Subject> {
        let claims = self.claims.things().filter(|(of, _)| of == scope);
        claims.flat_map(|item| self.claims.claimants(item)).cloned().collect()
    }

    /// Returns the scopes in which objects claim something or refer to something.
    pub(crate) fn scopes(&self) -> BTreeSet<String> {
        self.claims.things().chain(self.references.all_targets()).map(|(scope, _)| scope.clone()).collect()
    }

    /// Returns the oldest object that claims one of these, by name or id, and may use it, if it is older than `subject`. `name_of` returns the name
    /// of the item with an id.
    pub(crate) fn older<'a>(
        &self,
        subject: &Subject,
        scope: &str,
        claims: impl IntoIterator<Item = &'a str>,
        name_of: impl Fn(&str) -> Option<&'a str>,
    ) -> Option<Subject> {
        let has_item =
            |subject: &Subject| self.holders.iter().any(|((of, _), holder)| of == scope && holder == subject);
        let age = |subject: &Subject| {
            let interest = self.interests.get(subject)?;
            Some((interest.created, !(interest.is_recorded || has_item(subject)), interest.uid.as_str()))
        };
        let older = claims.into_iter().filter_map(|claim| {
            let names: Vec<&str> = [claim].into_iter().chain(name_of(claim)).collect();
            let is_permitted =
                |other: &Subject| self.interests.get(other).is_some_and(|interest| interest.permits(&names));
            let rank = |other: &Subject| age(other).filter(|_| other == subject || is_permitted(other));
            self.claims.preceding(subject, [(scope.to_owned(), claim.to_owned())], rank)
        });
        older.min_by_key(|other| age(other)).cloned()
    }

    /// Returns the other objects that refer to the item and are not being deleted themselves.
    pub(crate) fn users(&self, subject: &Subject, scope: &str, name: &str) -> Vec<String> {
        let users = self.references.referrers(&(scope.to_owned(), name.to_owned()));
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
