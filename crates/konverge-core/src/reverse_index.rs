//! Reverse indexes: from a thing to the things that refer to it.
//!
//! An operator reads references in one direction: a Deployment names the Secrets that its pods use. It needs the other direction when a Secret
//! changes: which Deployments use it? [`ReverseIndex`] keeps both directions equal.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
    sync::Arc,
};

/// A reverse index from targets to the referrers that name them, with data of type `D` on each reference.
///
/// - [`set`](Self::set) replaces all references of one referrer. No reference of an earlier `set` stays behind. [`add`](Self::add) and
///   [`discard`](Self::discard) change a single one.
///
/// - [`referrers`](Self::referrers) returns the referrers of one target, in their order.
///
/// - A target without referrers, or a referrer without targets, takes no memory.
///
/// Each key is stored once, however many references it has. Most targets have one referrer, and that one needs no allocation of its own.
/// A lookup costs one hash. Adding or removing a reference costs one binary search and one move among the referrers of its target.
///
/// For references by **selector**, the target is the scope in which the selector is valid, such as a namespace, and the data is the selector.
/// The method [`matching`](Self::matching) returns the referrers whose selector fits an object of that scope.
///
/// ```
/// use konverge_core::reverse_index::ReverseIndex;
///
/// let mut uses = ReverseIndex::new();
/// uses.set(&"web", [("db", ()), ("api", ())]);
/// uses.set(&"cart", [("db", ())]);
/// assert_eq!(uses.referrers(&"db").collect::<Vec<_>>(), [&"cart", &"web"]);
///
/// let changes = uses.set(&"web", [("api", ()), ("cache", ())]);
/// assert_eq!((changes.added, changes.removed), (vec!["cache".into()], vec!["db".into()]));
/// assert_eq!(uses.referrers(&"db").collect::<Vec<_>>(), [&"cart"]);
/// ```
#[derive(Debug, Clone)]
pub struct ReverseIndex<R, T, D = ()> {
    by_target: HashMap<Arc<T>, Few<(Arc<R>, D)>>,
    by_referrer: HashMap<Arc<R>, Few<Arc<T>>>,
}

/// The difference that one [`set`](ReverseIndex::set) has made, in the order of the targets.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Changes<T> {
    /// Targets that the referrer did not name before.
    pub added: Vec<Arc<T>>,
    /// Targets that the referrer names no more. [`is_referenced`](ReverseIndex::is_referenced) tells whether another referrer still does.
    pub removed: Vec<Arc<T>>,
}

impl<T> Default for Changes<T> {
    fn default() -> Self {
        Self { added: Vec::new(), removed: Vec::new() }
    }
}

impl<R, T, D> Default for ReverseIndex<R, T, D> {
    fn default() -> Self {
        Self { by_target: HashMap::new(), by_referrer: HashMap::new() }
    }
}

impl<R: Ord + Hash, T: Ord + Hash, D> ReverseIndex<R, T, D> {
    /// Returns an empty index.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces all references of `referrer` by these. The data of a target that stays is replaced, too. Of two references to the same target, the
    /// later one counts. Without references, this is [`remove`](Self::remove).
    pub fn set(&mut self, referrer: &R, targets: impl IntoIterator<Item = (T, D)>) -> Changes<T>
    where
        R: Clone,
    {
        let mut wanted: BTreeMap<T, D> = targets.into_iter().collect();
        let mut changes = Changes::default();
        let (referrer, before) = match self.by_referrer.remove_entry(referrer) {
            Some((referrer, before)) => (referrer, before.into_vec()),
            None if wanted.is_empty() => return changes,
            None => (Arc::new(referrer.clone()), Vec::new()),
        };
        let mut now = Vec::with_capacity(wanted.len());
        for target in before {
            if let Some(data) = wanted.remove(&*target) {
                self.link(Arc::clone(&target), Arc::clone(&referrer), data);
                now.push(target);
            } else {
                self.unlink(&target, &referrer);
                changes.removed.push(target);
            }
        }
        for (target, data) in wanted {
            let target = self.shared_target(target);
            self.link(Arc::clone(&target), Arc::clone(&referrer), data);
            now.push(Arc::clone(&target));
            changes.added.push(target);
        }
        now.sort();
        if let Some(now) = Few::of(now) {
            self.by_referrer.insert(referrer, now);
        }
        changes
    }

    /// Adds a reference, or replaces its data. Returns whether the reference is new.
    pub fn add(&mut self, referrer: &R, target: T, data: D) -> bool
    where
        R: Clone,
    {
        let is_new = self.get(referrer, &target).is_none();
        let target = self.shared_target(target);
        let known = self.by_referrer.get_key_value(referrer).map(|(known, _)| Arc::clone(known));
        let referrer = known.unwrap_or_else(|| Arc::new(referrer.clone()));
        self.link(Arc::clone(&target), Arc::clone(&referrer), data);
        match self.by_referrer.get_mut(&referrer) {
            Some(targets) => targets.insert_by(target, Ord::cmp),
            None => drop(self.by_referrer.insert(referrer, Few::One(target))),
        }
        is_new
    }

    /// Removes a reference. Returns whether there was one.
    pub fn discard(&mut self, referrer: &R, target: &T) -> bool {
        if self.get(referrer, target).is_none() {
            return false;
        }
        self.unlink(target, referrer);
        if self.by_referrer.get_mut(referrer).is_some_and(|targets| targets.remove_by(|known| (**known).cmp(target))) {
            self.by_referrer.remove(referrer);
        }
        true
    }

    /// Removes all references of `referrer`. Returns the targets that it named.
    pub fn remove(&mut self, referrer: &R) -> Vec<Arc<T>> {
        let targets = self.by_referrer.remove(referrer).map_or_else(Vec::new, Few::into_vec);
        for target in &targets {
            self.unlink(target, referrer);
        }
        targets
    }

    /// Returns the referrers of `target`, in their order.
    pub fn referrers<'a>(
        &'a self,
        target: &T,
    ) -> impl ExactSizeIterator<Item = &'a R> + DoubleEndedIterator + Clone + use<'a, R, T, D> {
        self.members(target).iter().map(|(referrer, _)| &**referrer)
    }

    /// Returns the referrers of `target` with the data of their references, in the order of the referrers.
    pub fn references<'a>(
        &'a self,
        target: &T,
    ) -> impl ExactSizeIterator<Item = (&'a R, &'a D)> + DoubleEndedIterator + Clone + use<'a, R, T, D> {
        self.members(target).iter().map(|(referrer, data)| (&**referrer, data))
    }

    /// Returns the referrers whose data `fits`, in their order. For references by selector, `scope` is where the selectors are valid.
    pub fn matching<'a, F: Fn(&R, &D) -> bool + 'a>(
        &'a self,
        scope: &T,
        fits: F,
    ) -> impl Iterator<Item = &'a R> + use<'a, R, T, D, F> {
        self.members(scope).iter().filter(move |(referrer, data)| fits(referrer, data)).map(|(referrer, _)| &**referrer)
    }

    /// Returns the targets that `referrer` names, in their order.
    pub fn targets<'a>(
        &'a self,
        referrer: &R,
    ) -> impl ExactSizeIterator<Item = &'a T> + DoubleEndedIterator + Clone + use<'a, R, T, D> {
        self.by_referrer.get(referrer).map_or(&[][..], Few::as_slice).iter().map(|target| &**target)
    }

    /// Returns all targets that have a referrer, in no particular order.
    pub fn all_targets(&self) -> impl ExactSizeIterator<Item = &T> + Clone {
        self.by_target.keys().map(|target| &**target)
    }

    /// Returns the data of one reference. Returns `None` if `referrer` does not name `target`.
    pub fn get(&self, referrer: &R, target: &T) -> Option<&D> {
        let members = self.members(target);
        let place = members.binary_search_by(|(known, _)| (**known).cmp(referrer)).ok()?;
        members.get(place).map(|(_, data)| data)
    }

    /// Returns whether any referrer names `target`.
    pub fn is_referenced(&self, target: &T) -> bool {
        self.by_target.contains_key(target)
    }

    /// Returns the number of targets that have a referrer.
    pub fn target_count(&self) -> usize {
        self.by_target.len()
    }

    /// Returns the number of referrers that have a target.
    pub fn referrer_count(&self) -> usize {
        self.by_referrer.len()
    }

    /// Returns whether there is no reference.
    pub fn is_empty(&self) -> bool {
        self.by_referrer.is_empty()
    }

    fn members(&self, target: &T) -> &[(Arc<R>, D)] {
        self.by_target.get(target).map_or(&[], Few::as_slice)
    }

    fn link(&mut self, target: Arc<T>, referrer: Arc<R>, data: D) {
        match self.by_target.get_mut(&target) {
            Some(members) => members.insert_by((referrer, data), |one, other| one.0.cmp(&other.0)),
            None => drop(self.by_target.insert(target, Few::One((referrer, data)))),
        }
    }

    fn unlink(&mut self, target: &T, referrer: &R) {
        let remove = |members: &mut Few<(Arc<R>, D)>| members.remove_by(|(known, _)| (**known).cmp(referrer));
        if self.by_target.get_mut(target).is_some_and(remove) {
            self.by_target.remove(target);
        }
    }

    /// Returns the target as it is stored, if any referrer names it already.
    fn shared_target(&self, target: T) -> Arc<T> {
        let known = self.by_target.get_key_value(&target).map(|(known, _)| Arc::clone(known));
        known.unwrap_or_else(|| Arc::new(target))
    }
}

/// A sorted set with at least one member. A single member needs no allocation.
#[derive(Debug, Clone)]
enum Few<M> {
    One(M),
    /// Two or more.
    Many(Vec<M>),
}

impl<M> Few<M> {
    /// Returns the set of these sorted members. Returns `None` if there are none.
    fn of(mut sorted: Vec<M>) -> Option<Self> {
        match sorted.len() {
            0 | 1 => sorted.pop().map(Self::One),
            _ => {
                sorted.shrink_to_fit();
                Some(Self::Many(sorted))
            }
        }
    }

    fn as_slice(&self) -> &[M] {
        match self {
            Self::One(member) => std::slice::from_ref(member),
            Self::Many(members) => members,
        }
    }

    fn into_vec(self) -> Vec<M> {
        match self {
            Self::One(member) => vec![member],
            Self::Many(members) => members,
        }
    }

    /// Adds a member, or replaces the one that is equal to it.
    fn insert_by(&mut self, member: M, order: impl Fn(&M, &M) -> std::cmp::Ordering) {
        match self.as_slice().binary_search_by(|known| order(known, &member)) {
            Ok(place) => match self {
                Self::One(known) => *known = member,
                Self::Many(members) => members[place] = member,
            },
            Err(place) => {
                // A set of one has a place of its own, so it becomes an empty vector for the moment.
                let mut members = std::mem::replace(self, Self::Many(Vec::new())).into_vec();
                members.insert(place, member);
                *self = Self::Many(members);
            }
        }
    }

    /// Removes the member that `order` finds equal. The last member stays. Returns whether it is the last.
    fn remove_by(&mut self, order: impl Fn(&M) -> std::cmp::Ordering) -> bool {
        let Self::Many(members) = self else { return true };
        if let Ok(place) = members.binary_search_by(order) {
            members.remove(place);
        }
        if members.len() == 1
            && let Some(last) = members.pop()
        {
            *self = Self::One(last);
        } else if members.capacity() > 4 * members.len() {
            members.shrink_to(2 * members.len());
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_set_replaces_all_references_of_its_referrer_and_of_no_other() {
        let mut index = ReverseIndex::new();
        assert_eq!(
            index
                .set(&"web", [("db", 1), ("api", 2), ("db", 3)])
                .added
                .iter()
                .map(|target| **target)
                .collect::<Vec<_>>(),
            ["api", "db"]
        );
        assert_eq!(index.get(&"web", &"db"), Some(&3), "the later one counts");
        index.set(&"cart", [("db", 4)]);
        let changes = index.set(&"web", [("db", 5), ("cache", 6)]);
        assert_eq!((&*changes.added, &*changes.removed), (&[Arc::new("cache")][..], &[Arc::new("api")][..]));
        assert_eq!(index.references(&"db").collect::<Vec<_>>(), [(&"cart", &4), (&"web", &5)]);
        assert_eq!(index.targets(&"web").collect::<Vec<_>>(), [&"cache", &"db"]);
        assert!(!index.is_referenced(&"api"));
        assert_eq!(index.remove(&"web"), [Arc::new("cache"), Arc::new("db")]);
        assert_eq!((index.target_count(), index.referrer_count()), (1, 1));
        assert_eq!(index.set(&"cart", []).removed, [Arc::new("db")]);
        assert!(index.is_empty() && index.target_count() == 0);
        assert_eq!(index.set(&"nobody", []), Changes::default());
    }

    #[test]
    fn a_single_reference_comes_and_goes_without_the_others() {
        let mut index = ReverseIndex::new();
        assert!(index.add(&"web", "db", 1) && index.add(&"web", "api", 2) && index.add(&"cart", "db", 3));
        assert!(!index.add(&"web", "db", 4), "its data alone is new");
        assert_eq!(index.references(&"db").collect::<Vec<_>>(), [(&"cart", &3), (&"web", &4)]);
        assert_eq!(index.targets(&"web").collect::<Vec<_>>(), [&"api", &"db"]);
        assert!(index.discard(&"web", &"db") && !index.discard(&"web", &"db") && !index.discard(&"nobody", &"db"));
        assert_eq!(index.targets(&"web").collect::<Vec<_>>(), [&"api"]);
        assert_eq!(index.all_targets().collect::<std::collections::BTreeSet<_>>(), [&"api", &"db"].into());
        assert!(index.discard(&"web", &"api") && index.discard(&"cart", &"db"));
        assert!(index.is_empty() && index.all_targets().len() == 0);
    }

    #[test]
    fn selectors_are_matched_within_their_scope() {
        let mut index: ReverseIndex<_, _, &[&str]> = ReverseIndex::new();
        index.set(&"all", [("shop", &["a", "b"][..]), ("office", &["a"][..])]);
        index.set(&"only-b", [("shop", &["b"][..])]);
        let matching = |scope: &'static str, label: &'static str| {
            index.matching(&scope, move |_, labels| labels.contains(&label)).copied().collect::<Vec<_>>()
        };
        assert_eq!(matching("shop", "b"), ["all", "only-b"]);
        assert_eq!(matching("shop", "a"), ["all"]);
        assert_eq!(matching("office", "b"), [""; 0]);
        assert_eq!(matching("elsewhere", "a"), [""; 0]);
    }

    #[test]
    fn one_referrer_needs_no_allocation_and_many_give_their_room_back() {
        let mut index = ReverseIndex::new();
        for number in 0..1000 {
            index.set(&number, [("db", ())]);
        }
        assert!(matches!(index.by_target.get(&"db"), Some(Few::Many(members)) if members.len() == 1000));
        for number in 1..999 {
            index.remove(&number);
        }
        assert!(matches!(index.by_target.get(&"db"), Some(Few::Many(members)) if members.capacity() <= 8));
        index.remove(&0);
        assert!(matches!(index.by_target.get(&"db"), Some(Few::One((last, ()))) if **last == 999));
    }

    #[test]
    fn a_key_is_stored_once_however_many_references_it_has() {
        let mut index = ReverseIndex::new();
        index.set(&"web", [("db", ()), ("api", ())]);
        index.set(&"cart", [("db", ())]);
        let stored = |referrer: &'static str, place: usize| Arc::clone(&index.by_referrer[&referrer].as_slice()[place]);
        assert!(Arc::ptr_eq(&stored("web", 1), &stored("cart", 0)));
        let (known, members) = index.by_target.get_key_value(&"db").unwrap();
        assert!(Arc::ptr_eq(known, &stored("cart", 0)));
        let (web, _) = index.by_referrer.get_key_value(&"web").unwrap();
        assert!(Arc::ptr_eq(web, &members.as_slice()[1].0));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Set(BTreeMap<u8, u8>),
        Add(u8, u8),
        Discard(u8),
        Remove,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            proptest::collection::btree_map(0..8_u8, 0..3_u8, 0..6).prop_map(Step::Set),
            (0..8_u8, 0..3_u8).prop_map(|(target, data)| Step::Add(target, data)),
            (0..8_u8).prop_map(Step::Discard),
            Just(Step::Remove),
        ]
    }

    proptest! {
        /// After any steps, both directions say what a plain map of references says.
        #[test]
        fn both_directions_agree_with_a_map_of_references(steps in proptest::collection::vec((0..6_u8, step()), 1..60)) {
            let mut index = ReverseIndex::new();
            let mut model: BTreeMap<u8, BTreeMap<u8, u8>> = BTreeMap::new();
            for (referrer, step) in steps {
                let before = model.remove(&referrer).unwrap_or_default();
                let mut after = before.clone();
                match step {
                    Step::Set(targets) => {
                        let changes = index.set(&referrer, targets.clone());
                        let is_new = |target: &&u8| !before.contains_key(*target);
                        let is_gone = |target: &&u8| !targets.contains_key(*target);
                        let added: Vec<_> = targets.keys().filter(is_new).copied().map(Arc::new).collect();
                        let removed: Vec<_> = before.keys().filter(is_gone).copied().map(Arc::new).collect();
                        prop_assert_eq!(changes, Changes { added, removed });
                        after = targets;
                    }
                    Step::Add(target, data) => {
                        prop_assert_eq!(index.add(&referrer, target, data), after.insert(target, data).is_none());
                    }
                    Step::Discard(target) => {
                        prop_assert_eq!(index.discard(&referrer, &target), after.remove(&target).is_some());
                    }
                    Step::Remove => {
                        let removed = index.remove(&referrer);
                        prop_assert_eq!(removed, before.keys().copied().map(Arc::new).collect::<Vec<_>>());
                        after.clear();
                    }
                }
                if !after.is_empty() {
                    model.insert(referrer, after);
                }
                for target in 0..8 {
                    let expected: Vec<_> =
                        model.iter().filter_map(|(referrer, targets)| Some((referrer, targets.get(&target)?))).collect();
                    prop_assert_eq!(index.references(&target).collect::<Vec<_>>(), expected.clone());
                    prop_assert_eq!(index.referrers(&target).len(), expected.len());
                    prop_assert_eq!(index.is_referenced(&target), !expected.is_empty());
                    let fitting: Vec<_> = expected.iter().filter(|(_, data)| **data > 0).map(|(referrer, _)| *referrer).collect();
                    prop_assert_eq!(index.matching(&target, |_, data| *data > 0).collect::<Vec<_>>(), fitting);
                }
                for referrer in 0..6 {
                    let expected: Vec<_> = model.get(&referrer).into_iter().flat_map(BTreeMap::keys).collect();
                    prop_assert_eq!(index.targets(&referrer).collect::<Vec<_>>(), expected);
                    for target in 0..8 {
                        let expected = model.get(&referrer).and_then(|targets| targets.get(&target));
                        prop_assert_eq!(index.get(&referrer, &target), expected);
                    }
                }
                prop_assert_eq!(index.referrer_count(), model.len());
                prop_assert_eq!(index.is_empty(), model.is_empty());
            }
        }
    }
}
