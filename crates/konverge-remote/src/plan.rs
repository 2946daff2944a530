//! The decision about one object and its item: a pure function, without a client and without a clock.

use std::sync::Arc;

use konverge_core::names::few;

use crate::{
    binding::{Adoption, Binding, DeletionPolicy},
    collection::Items,
    failure::Failure,
    mark::Mark,
    record::{Entry, Origin},
    remote::{Life, Remote},
};

/// All that a decision rests on.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Facts<'a, R: Remote> {
    /// The item that the object stands for.
    pub binding: &'a Binding,
    /// The desired content; `None` if the object is being deleted.
    pub desired: Option<&'a R::Desired>,
    /// The mark of the object.
    pub mark: &'a Mark,
    /// The record on the object.
    pub entry: Option<&'a Entry>,
    /// Whether the object bears the record of another object or cluster. Then its status counts for nothing either.
    pub has_foreign_record: bool,
    /// Whether the object has the finalizer, so that an earlier run may have created something.
    pub is_held: bool,
    /// The items of the scope.
    pub items: &'a Items<R::Item>,
    /// Whether the list began after every create that may have been sent for the object.
    pub is_fresh: bool,
    /// An id of which the server itself has said that there is no such item.
    pub absent: Option<&'a str>,
    /// The older object that claims the same item.
    pub older: Option<&'a str>,
    /// The objects that refer to the item.
    pub users: &'a [String],
}

/// The next step for an object.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step<I> {
    /// List again: a create may have been sent since the list began.
    Refresh,
    /// Ask for the item with this id alone, because the list does not have it.
    Confirm(String),
    /// Write this entry of the record, with the finalizer if an item is or will be made.
    Record(Entry),
    /// Create the item.
    Create,
    /// Update the item, which differs in these fields.
    Update(Arc<I>, Vec<&'static str>),
    /// Nothing: the item is as desired.
    InSync(Arc<I>, Origin),
    /// Delete the item.
    Delete(Arc<I>),
    /// Take the mark off the item, so that another object can have it.
    Unmark(Arc<I>),
    /// Wait: the reason and the message say for what.
    Wait(&'static str, String),
    /// Nothing, because something or somebody stands against it.
    Refuse(Failure),
    /// The object can go. The text says what stays behind, and why, if anything that may be ours does.
    Release(Option<String>),
}

/// Decides the next step.
pub fn plan<R: Remote>(facts: &Facts<'_, R>) -> Step<R::Item> {
    let binding = facts.binding;
    let origin = facts.entry.map_or(Origin::Made, |entry| entry.origin);
    if facts.desired.is_none() && binding.leaves(origin) {
        return Step::Release(None);
    }
    if let Some(entry) = facts.entry
        && entry.scope != binding.scope
    {
        // The list of another scope says nothing about the item, and an empty one would look as if it were gone.
        let message = format!(
            "the {} {} is in {:?} and cannot move to {:?}; set the former value, or delete the object and create it again",
            R::NOUN,
            entry.name,
            entry.scope,
            binding.scope
        );
        return Step::Refuse(Failure::permanent("ScopeChanged", message));
    }
    match (facts.find(), facts.desired) {
        (Some(item), Some(desired)) => facts.keep(item, desired),
        (Some(item), None) => facts.remove(item),
        (None, Some(_)) => facts.make(),
        (None, None) => facts.confirm_absence(|| Step::Release(None)),
    }
}

/// Decides the next step for an object that is being deleted and whose item other objects share: what would be deleted keeps its content and loses its
/// mark.
pub fn hand_over<R: Remote>(facts: &Facts<'_, R>) -> Step<R::Item> {
    let binding = facts.binding.clone().with(|binding| binding.deletes_foreign_content = true);
    match plan(&Facts { binding: &binding, desired: None, users: &[], ..*facts }) {
        Step::Delete(item) if R::mark(&item).is_none() => Step::Release(None),
        Step::Delete(item) => Step::Unmark(item),
        step => step,
    }
}

impl<'a, R: Remote> Facts<'a, R> {
    /// The id in the status. It counts for nothing beside the record of another object.
    fn status_id(&self) -> Option<&'a str> {
        self.binding.id.as_deref().filter(|_| !self.has_foreign_record)
    }

    /// The id under which the item was known.
    fn known_id(&self) -> Option<&'a str> {
        self.entry.and_then(|entry| entry.id.as_deref()).or_else(|| {
            self.status_id().filter(|id| self.entry.is_none_or(|entry| entry.replaces.as_deref() != Some(*id)))
        })
    }

    /// The item of the object: by its id, by its mark, or by the name under which it was about to be made.
    fn find(&self) -> Option<&'a Arc<R::Item>> {
        let by_id = || self.known_id().and_then(|id| self.items.get(id));
        let by_mark = || self.items.values().find(|item| self.own_mark(item).is_some());
        by_id().or_else(by_mark).or_else(|| self.find_intended())
    }

    /// The mark of the item, if it is that of the object.
    fn own_mark(&self, item: &R::Item) -> Option<Mark> {
        R::mark(item).filter(|mark| mark.is_of_same_object(self.mark))
    }

    /// The item of a kind without marks that was about to be made, after a lost reply or a lost status. An item of that name that was there
    /// before is never found so, because the intent is only recorded when there is none.
    fn find_intended(&self) -> Option<&'a Arc<R::Item>> {
        let entry = self.entry.filter(|entry| entry.origin == Origin::Made && entry.id.is_none() && !R::IS_MARKED)?;
        let is_about_this = self.status_id().is_none() || self.status_id() == entry.replaces.as_deref();
        self.items.values().find(|item| is_about_this && R::name(item) == entry.name)
    }

    /// The origin of the item, `None` if nothing tells.
    fn origin(&self, item: &R::Item) -> Option<Origin> {
        // Without a record, a mark that has the item stay is that of an adopted or released item, which no object may delete.
        let by_mark = || self.own_mark(item).map(|mark| if mark.stays() { Origin::Adopted } else { Origin::Made });
        let is_inherited =
            || self.status_id() == Some(R::id(item)) && (self.binding.id_is_proof || R::is_of_former_operator(item));
        self.entry.map(|entry| entry.origin).or_else(by_mark).or_else(|| is_inherited().then_some(Origin::Made))
    }

    /// Why the item must not be touched: it bears the mark of somebody else.
    fn foreign_owner(&self, item: &R::Item) -> Option<Failure> {
        let mark = R::mark(item).filter(|mark| !mark.is_of_same_object(self.mark))?;
        let whose = if mark.cluster() == self.mark.cluster() {
            format!("belongs to the object with the uid {}", mark.uid())
        } else {
            format!("belongs to the cluster {}", mark.cluster())
        };
        let (noun, name, id) = (R::NOUN, R::name(item), R::id(item));
        Some(Failure::refused("NotOurs", format!("the {noun} {name} ({id}) {whose}; choose another name")))
    }

    /// Returns the failure if neither the object's mark nor a rule for the name permits the item.
    fn forbidden(&self, item: &R::Item) -> Option<Failure> {
        if self.own_mark(item).is_some() || self.binding.permits(R::name_for_rules(item)) {
            return None;
        }
        let (noun, name, id) = (R::NOUN, R::name(item), R::id(item));
        let message = format!(
            "no rule permits this object to use the {noun} {name} ({id}), which was not changed; choose another name, or ask the administrators for a rule"
        );
        Some(Failure::refused("NotAllowed", message))
    }

    /// An older object that wants the same item keeps it.
    fn claimed(&self) -> Option<Step<R::Item>> {
        // Where names repeat and nothing is adopted, two objects of one name stand for two items.
        let is_shared = R::NAMES_ARE_UNIQUE || self.binding.adoption != Adoption::Never;
        let older = self.older.filter(|_| is_shared)?;
        let message = format!(
            "the older {older} stands for the {} {}; choose another name, or delete one of them",
            R::NOUN,
            self.binding.name
        );
        Some(Step::Refuse(Failure::permanent("Claimed", message)))
    }

    /// Decides about an item that is there.
    fn keep(&self, item: &Arc<R::Item>, desired: &R::Desired) -> Step<R::Item> {
        if let Some(failure) = self.foreign_owner(item).or_else(|| self.forbidden(item)) {
            return Step::Refuse(failure);
        }
        // An item with our mark is ours, even if an older object wants one of its name.
        let is_marked = R::mark(item).is_some();
        if let Some(refusal) = self.claimed().filter(|_| !is_marked) {
            return refusal;
        }
        if R::life(item) == Life::Deleting {
            return Step::Wait(
                "Deleting",
                format!("the server still deletes the former {} {}", R::NOUN, R::name(item)),
            );
        }
        let origin = self.origin(item).unwrap_or(Origin::Adopted);
        let entry = Entry {
            origin,
            scope: self.binding.scope.clone(),
            name: self.binding.name.clone(),
            id: Some(R::id(item).to_owned()),
            replaces: None,
        };
        // An object whose item is to be deleted one day needs the finalizer, also if somebody has removed it.
        let needs_hold = origin == Origin::Made || self.binding.deletion == DeletionPolicy::DeleteAdopted;
        let has_other_name = !R::IS_MARKED && self.entry.is_some_and(|known| known.name != entry.name);
        // Nothing but the recorded name leads to the item, so the item does not get another name before the record has it.
        let is_found_by_name = self.known_id() != Some(R::id(item));
        let is_due = self.entry.is_none() || (needs_hold && !self.is_held) || (has_other_name && is_found_by_name);
        if origin == Origin::Adopted && self.binding.observe_adopted {
            return if is_due { Step::Record(entry) } else { Step::InSync(Arc::clone(item), origin) };
        }
        let mark = self.mark.clone().with_stay(self.binding.leaves(origin));
        let differing = match R::differences(item, desired, &mark) {
            Ok(differing) => differing,
            Err(failure) => return Step::Refuse(failure),
        };
        if is_due {
            Step::Record(entry)
        } else if !differing.is_empty() {
            Step::Update(Arc::clone(item), differing)
        } else if has_other_name {
            Step::Record(entry)
        } else {
            Step::InSync(Arc::clone(item), origin)
        }
    }

    /// Decides where the list shows no item of the object.
    fn make(&self) -> Step<R::Item> {
        self.confirm_absence(|| {
            let gone = self.known_id().or_else(|| self.entry.and_then(|entry| entry.replaces.as_deref()));
            let intent = Entry {
                origin: Origin::Made,
                scope: self.binding.scope.clone(),
                name: self.binding.name.clone(),
                id: None,
                replaces: gone.map(str::to_owned),
            };
            if let Some(step) = self.claimed().or_else(|| self.adopt_or_refuse()) {
                step
            } else if self.entry == Some(&intent) {
                Step::Create
            } else {
                Step::Record(intent)
            }
        })
    }

    /// Decides about items that have the wanted name or id already. Returns `None` if none of them matters.
    fn adopt_or_refuse(&self) -> Option<Step<R::Item>> {
        let (noun, name) = (R::NOUN, &self.binding.name);
        let candidates: Vec<_> = match &self.binding.adoption {
            Adoption::ById(id) => self.items.get(id).into_iter().collect(),
            Adoption::ByName | Adoption::Never => self.items.values().filter(|item| R::name(item) == name).collect(),
        };
        let refuse = |reason, message| Some(Step::Refuse(Failure::refused(reason, message)));
        match (&self.binding.adoption, candidates.as_slice()) {
            (Adoption::Never, [item, ..]) if R::NAMES_ARE_UNIQUE => {
                let id = R::id(item);
                let taken = || {
                    let message =
                        format!("the {noun} {name} ({id}) is there already; choose another name, or let it be adopted");
                    Failure::refused("NameTaken", message)
                };
                Some(Step::Refuse(self.foreign_owner(item).unwrap_or_else(taken)))
            }
            (Adoption::Never, _) | (Adoption::ByName, []) => None,
            (Adoption::ById(id), []) => refuse("NotFound", format!("there is no {noun} with the id {id} to adopt")),
            (Adoption::ByName | Adoption::ById(_), [item]) => {
                if let Some(failure) = self.foreign_owner(item).or_else(|| self.forbidden(item)) {
                    return Some(Step::Refuse(failure));
                }
                Some(Step::Record(Entry {
                    origin: Origin::Adopted,
                    scope: self.binding.scope.clone(),
                    name: R::name(item).to_owned(),
                    id: Some(R::id(item).to_owned()),
                    replaces: None,
                }))
            }
            (_, several) => {
                let message = format!("there are {} with the name {name}; adopt one by its id", several.len());
                refuse("Ambiguous", format!("{noun}: {message}"))
            }
        }
    }

    /// Goes on only if a list that is new enough, and the server itself, say that there is no item of the object.
    fn confirm_absence(&self, go_on: impl FnOnce() -> Step<R::Item>) -> Step<R::Item> {
        let may_exist = self.entry.is_some() || self.is_held || self.status_id().is_some();
        if may_exist && !self.is_fresh {
            return Step::Refresh;
        }
        match self.known_id() {
            Some(id) if self.absent != Some(id) => Step::Confirm(id.to_owned()),
            _ => go_on(),
        }
    }

    /// Decides about the item of an object that is being deleted.
    fn remove(&self, item: &Arc<R::Item>) -> Step<R::Item> {
        let (noun, name, id) = (R::NOUN, R::name(item), R::id(item));
        if self.foreign_owner(item).is_some() {
            return Step::Release(None);
        }
        if self.forbidden(item).is_some() {
            return Step::Release(Some(format!("the {noun} {name} ({id}), because no rule lets this object use it")));
        }
        match self.origin(item) {
            Some(Origin::Made) => {}
            _ if self.binding.deletion == DeletionPolicy::DeleteAdopted => {}
            Some(Origin::Adopted) => return Step::Release(None),
            None => {
                let why = format!(
                    "the {noun} {name} ({id}), because nothing proves any more that it was made for the object"
                );
                return Step::Release(Some(why));
            }
        }
        if R::life(item) == Life::Deleting {
            return Step::Wait("Deleting", format!("the server deletes the {noun} {name} ({id})"));
        }
        if !self.users.is_empty() {
            let users = few(self.users);
            return Step::Wait("InUse", format!("the {noun} {name} ({id}) is in use by {users}"));
        }
        match R::foreign_content(item).filter(|_| !self.binding.deletes_foreign_content) {
            Some(content) => {
                Step::Release(Some(format!("the {noun} {name} ({id}), because others have put {content} into it")))
            }
            None => Step::Delete(Arc::clone(item)),
        }
    }
}

impl<I> Step<I> {
    /// A sentence about what the step would do, for a dry run.
    pub fn describe<R: Remote<Item = I>>(&self, binding: &Binding) -> String {
        let (noun, name) = (R::NOUN, &binding.name);
        match self {
            Self::Refresh => format!("would list again to look for the {noun} {name}"),
            Self::Confirm(id) => format!("would ask whether the {noun} {name} ({id}) is gone"),
            Self::Record(Entry { origin: Origin::Adopted, id, .. }) => {
                format!("would adopt the {noun} {name} ({})", id.as_deref().unwrap_or("unknown id"))
            }
            Self::Record(_) | Self::Create => format!("would create the {noun} {name}"),
            Self::Update(item, differing) => {
                format!("would update the {noun} {name} ({}) in {}", R::id(item), differing.join(", "))
            }
            Self::InSync(item, _) => format!("the {noun} {name} ({}) is in sync", R::id(item)),
            Self::Delete(item) => format!("would delete the {noun} {name} ({})", R::id(item)),
            Self::Unmark(item) => format!("would take the mark off the {noun} {name} ({})", R::id(item)),
            Self::Wait(_, message) => message.clone(),
            Self::Refuse(failure) => failure.to_string(),
            Self::Release(None) => "would release the object".to_owned(),
            Self::Release(Some(left)) => format!("would release the object and leave behind {left}"),
        }
    }
}
