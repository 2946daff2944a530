//! One run: the facts for its decision, and the record that it writes.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    binding::{Binding, DeletionPolicy},
    collection::{Collection, Items},
    deletions::{Deletions, Doomed, doomed},
    failure::Failure,
    ledger::{Ledger, ObjectEvent},
    mark::Mark,
    plan::{Facts, Step},
    record::{Entry, Origin, Record},
    relations::{Interest, Subject},
    remote::Remote,
};

/// A collection at work.
pub(crate) struct Begun<R: Remote> {
    pub(crate) collection: Arc<Collection<R>>,
    pub(crate) settle: Duration,
    pub(crate) deletions: Deletions,
    pub(crate) at: Instant,
}

impl<R: Remote> Begun<R> {
    /// Sets or removes the interest of an object.
    pub(crate) fn interest(&self, subject: &Subject, interest: Option<Interest>) {
        self.deletions.follow(subject, interest.as_ref());
        self.collection.interest(subject, interest);
    }
}

/// The knowledge of one run.
pub(crate) struct Run<'a, R: Remote, L> {
    pub(crate) begun: &'a Begun<R>,
    pub(crate) ledger: &'a L,
    pub(crate) binding: &'a Binding,
    pub(crate) mark: Mark,
    pub(crate) subject: Subject,
    pub(crate) record: Record,
    has_foreign_record: bool,
    is_held: bool,
    /// Whether this run has written the intent, so that no create can have been sent for it.
    pub(crate) is_own_intent: bool,
    pub(crate) absent: Option<String>,
    pub(crate) not_before: Option<Instant>,
}

impl<'a, R: Remote, L: Ledger> Run<'a, R, L> {
    pub(crate) fn new(begun: &'a Begun<R>, ledger: &'a L, binding: &'a Binding) -> Self {
        let (cluster, uid) = (ledger.cluster(), ledger.uid());
        let read = Record::read(ledger.record().as_deref(), cluster, uid);
        Self {
            begun,
            ledger,
            binding,
            mark: Mark::new(cluster, uid, &binding.part),
            subject: ledger.subject(),
            has_foreign_record: read.is_err(),
            record: read.unwrap_or_else(|_| Record::new(cluster, uid)),
            is_held: ledger.is_held(),
            is_own_intent: false,
            absent: None,
            not_before: None,
        }
    }

    /// Decides with this list.
    pub(crate) fn decide(
        &self,
        items: &Items<R::Item>,
        is_fresh: bool,
        decision: impl Fn(&Facts<'_, R>) -> Step<R::Item>,
    ) -> Step<R::Item> {
        let binding = self.binding;
        let (older, users) = self.begun.collection.relations(|relations| {
            let name_of = |id: &str| items.get(id).map(|item| R::name_for_rules(item));
            let older = relations.older(&self.subject, &binding.scope, binding.claims(), name_of);
            (older, relations.users(&self.subject, &binding.scope, &binding.name))
        });
        let older = older.map(|older| older.to_string());
        decision(&Facts {
            binding,
            desired: None,
            mark: &self.mark,
            entry: self.record.part(&self.key()),
            has_foreign_record: self.has_foreign_record,
            is_held: self.is_held,
            items,
            is_fresh,
            absent: self.absent.as_deref(),
            older: older.as_deref(),
            users: &users,
        })
    }

    /// Returns the id of the item that is gone and that a new one is to replace.
    pub(crate) fn replaced_id(&self) -> Option<String> {
        let replaced = || self.record.part(&self.key()).and_then(|entry| entry.replaces.clone());
        self.absent.clone().or_else(replaced)
    }

    /// The mark to write into an item of this origin.
    pub(crate) fn mark_of(&self, origin: Origin) -> Mark {
        self.mark.clone().with_stay(self.binding.leaves(origin))
    }

    /// The name of the part in the record, which is shared with other collections.
    pub(crate) fn key(&self) -> String {
        if self.binding.part.is_empty() { R::NOUN.to_owned() } else { format!("{}/{}", R::NOUN, self.binding.part) }
    }

    /// Returns the deletion of this part of an object that stays.
    pub(crate) fn doomed(&self) -> Doomed {
        doomed(&self.subject, self.ledger.uid(), Some(self.key()))
    }

    /// Writes an entry of the record. An object with an item to delete one day gets the finalizer in the same write.
    pub(crate) async fn write(&mut self, entry: Entry) -> Result<(), Failure> {
        let is_made = entry.origin == Origin::Made;
        let hold = is_made || self.binding.deletion == DeletionPolicy::DeleteAdopted;
        let adopted = (!is_made).then(|| {
            format!("adopted the {} {} ({})", R::NOUN, entry.name, entry.id.as_deref().unwrap_or("unknown id"))
        });
        let is_intent = is_made && entry.id.is_none();
        self.record.set(&self.key(), Some(entry));
        self.ledger.write(&self.record.text(), hold).await?;
        self.is_held |= hold;
        self.is_own_intent = is_intent;
        self.has_foreign_record = false;
        if let Some(message) = adopted {
            self.publish("Adopted", message);
        }
        Ok(())
    }

    /// Decides as if an intent were not recorded. Returns whether one is.
    pub(crate) fn forget_intent(&mut self) -> bool {
        let key = self.key();
        let is_recorded = self.record.part(&key).is_some_and(|entry| entry.id.is_none());
        if is_recorded {
            self.record.set(&key, None);
        }
        is_recorded
    }

    /// Takes the entry of the part out of the record.
    pub(crate) async fn retract(&mut self) -> Result<(), Failure> {
        self.record.set(&self.key(), None);
        self.ledger.write(&self.record.text(), false).await
    }

    pub(crate) fn holds(&self, id: &str) {
        self.begun.collection.relations(|relations| relations.hold(&self.binding.scope, id, &self.subject));
    }

    pub(crate) fn publish(&self, reason: &'static str, message: String) {
        self.ledger.publish(ObjectEvent { reason, message });
    }
}
