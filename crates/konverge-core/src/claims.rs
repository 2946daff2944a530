//! Claims of objects to things outside the cluster: who has a thing if several objects want it.

use std::hash::Hash;

use crate::reverse_index::ReverseIndex;

/// How much of a thing an object claims.
pub trait Share: Copy + PartialEq {
    /// Whether two objects may have these shares of one thing at the same time.
    fn is_compatible(self, other: Self) -> bool;
}

/// All of a thing. Only one object can have it.
impl Share for () {
    fn is_compatible(self, (): Self) -> bool {
        false
    }
}

/// The claims of objects of type `O` to things of type `T`.
///
/// Two rules decide which object has a thing. A job chooses one of them:
///
/// - **The first one.** [`claim`](Self::claim) gives the thing to the first object, which keeps it until its [`release`](Self::release). The
///   record on the object must tell after a restart which things it has: [`recall`](Self::recall) restores that.
///
/// - **The one with the lowest rank.** [`set`](Self::set) replaces the claims of an object, and [`preceding`](Self::preceding) returns the
///   object that comes before it by rank, such as its age. Each replica decides the same, without a record.
///
/// With both rules, giving up a thing returns the objects that may get it now. The caller wakes them.
///
/// ```
/// use konverge_core::claims::Claims;
///
/// let mut claims = Claims::<&str, &str>::default();
/// assert_eq!(claims.claim(&"web", "secret/db", ()), Ok(()));
/// assert_eq!(claims.claim(&"cart", "secret/db", ()), Err("web"));
/// assert_eq!(claims.release(&"web", &"secret/db"), ["cart"]);
/// assert_eq!(claims.claim(&"cart", "secret/db", ()), Ok(()));
/// ```
#[derive(Debug, Clone)]
pub struct Claims<O, T, S = ()>(ReverseIndex<O, T, Claim<S>>);

/// The claim of one object to one thing.
#[derive(Debug, Clone, Copy)]
struct Claim<S> {
    /// How much of the thing the object holds. The shares of all holders of a thing are compatible.
    holds: Option<S>,
    /// Whether it waits for more.
    waits: bool,
}

impl<O, T, S> Default for Claims<O, T, S> {
    fn default() -> Self {
        Self(ReverseIndex::default())
    }
}

impl<O: Ord + Hash + Clone, T: Ord + Hash + Clone, S: Share> Claims<O, T, S> {
    /// Claims a share of a thing. The first object gets it.
    ///
    /// # Errors
    ///
    /// Returns an object that holds an incompatible share. The claim waits for it then, beside the share that the object holds already.
    pub fn claim(&mut self, object: &O, thing: T, share: S) -> Result<(), O> {
        let other = self.holders(&thing).find(|(holder, held)| *holder != object && !share.is_compatible(*held));
        let other = other.map(|(holder, _)| holder.clone());
        let holds =
            if other.is_none() { Some(share) } else { self.0.get(object, &thing).and_then(|claim| claim.holds) };
        self.0.add(object, thing, Claim { holds, waits: other.is_some() });
        other.map_or(Ok(()), Err)
    }

    /// Restores a share that the object had before this process began, as its record says. Of two records with incompatible shares of one
    /// thing, the one that is seen first counts.
    pub fn recall(&mut self, object: &O, thing: T, share: S) {
        if self.holders(&thing).all(|(_, held)| share.is_compatible(held)) {
            let waits = self.0.get(object, &thing).is_some_and(|claim| claim.waits);
            self.0.add(object, thing, Claim { holds: Some(share), waits });
        }
    }

    /// Gives up a thing. Once nobody holds it, the objects that waited for it are returned. Their claims end with that: an object that still
    /// wants the thing claims it again.
    pub fn release(&mut self, object: &O, thing: &T) -> Vec<O> {
        let held = self.0.get(object, thing).and_then(|claim| claim.holds);
        self.0.discard(object, thing);
        if held.is_none() || self.holders(thing).next().is_some() {
            return Vec::new();
        }
        let waiting: Vec<_> = self.0.referrers(thing).cloned().collect();
        for object in &waiting {
            self.0.discard(object, thing);
        }
        waiting
    }

    /// Gives up the things that the object does not keep. Returns the objects that waited for one of them.
    pub fn release_unless(&mut self, object: &O, keeps: impl Fn(&T) -> bool) -> Vec<O> {
        let given_up: Vec<_> = self.0.targets(object).filter(|thing| !keeps(thing)).cloned().collect();
        given_up.iter().flat_map(|thing| self.release(object, thing)).collect()
    }

    /// Returns the other objects that hold this share of a thing.
    pub fn sharing<'a>(&'a self, object: &'a O, thing: &T, share: S) -> impl Iterator<Item = &'a O> + use<'a, O, T, S> {
        self.holders(thing).filter(move |(holder, held)| *held == share && *holder != object).map(|(holder, _)| holder)
    }

    /// Replaces the claims of an object by these, without giving it any of the things. Returns the things that it no longer claims.
    pub fn set(&mut self, object: &O, things: impl IntoIterator<Item = T>) -> Vec<T> {
        let waiting = things.into_iter().map(|thing| (thing, Claim { holds: None, waits: true }));
        self.0.set(object, waiting).removed.iter().map(|thing| T::clone(thing)).collect()
    }

    /// Returns the object with the lowest rank that claims one of these things, if it comes before `object`. Objects without a rank do not
    /// count.
    pub fn preceding<'a, R: Ord>(
        &'a self,
        object: &O,
        things: impl IntoIterator<Item = T>,
        rank: impl Fn(&O) -> Option<R>,
    ) -> Option<&'a O> {
        let others = things.into_iter().flat_map(|thing| self.0.referrers(&thing)).filter(|other| *other != object);
        let (first, other) = others.filter_map(|other| Some((rank(other)?, other))).min()?;
        (first < rank(object)?).then_some(other)
    }

    /// Returns the objects that claim a thing, whether they have it or wait for it, in their order.
    pub fn claimants<'a>(&'a self, thing: &T) -> impl ExactSizeIterator<Item = &'a O> + use<'a, O, T, S> {
        self.0.referrers(thing)
    }

    /// Returns the things that an object claims, in their order.
    pub fn claimed<'a>(&'a self, object: &O) -> impl ExactSizeIterator<Item = &'a T> + use<'a, O, T, S> {
        self.0.targets(object)
    }

    /// Returns all things that an object claims, in no particular order.
    pub fn things(&self) -> impl ExactSizeIterator<Item = &T> {
        self.0.all_targets()
    }

    /// Returns whether no object claims anything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn holders<'a>(&'a self, thing: &T) -> impl Iterator<Item = (&'a O, S)> + use<'a, O, T, S> {
        self.0.references(thing).filter_map(|(object, claim)| Some((object, claim.holds?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All of a thing, or a part of it that others may have besides.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Extent {
        Whole,
        Part,
    }

    impl Share for Extent {
        fn is_compatible(self, other: Self) -> bool {
            (self, other) == (Self::Part, Self::Part)
        }
    }

    use Extent::{Part, Whole};

    type Shared = Claims<&'static str, &'static str, Extent>;

    #[test]
    fn the_first_has_it_until_it_lets_go_and_then_the_others_are_told() {
        let mut claims = Shared::default();
        assert_eq!(claims.claim(&"a", "x", Whole), Ok(()));
        assert_eq!(claims.claim(&"a", "x", Whole), Ok(()));
        assert_eq!(claims.claim(&"b", "x", Whole), Err("a"));
        assert_eq!(claims.claim(&"c", "x", Whole), Err("a"));
        assert_eq!(claims.release(&"b", &"x"), [""; 0]);
        assert_eq!(claims.release(&"a", &"x"), ["c"]);
        assert_eq!(claims.claim(&"c", "x", Whole), Ok(()));
    }

    #[test]
    fn things_that_are_not_kept_are_given_up() {
        let mut claims = Shared::default();
        for thing in ["old", "old/k", "new", "new/k"] {
            assert_eq!(claims.claim(&"a", thing, Whole), Ok(()));
            assert_eq!(claims.claim(&"b", thing, Whole), Err("a"));
        }
        assert_eq!(claims.release_unless(&"a", |thing| thing.starts_with("new")), ["b", "b"]);
        assert_eq!(claims.claim(&"c", "old", Whole), Ok(()));
        assert_eq!(claims.claim(&"c", "old/k", Whole), Ok(()));
        assert_eq!(claims.claim(&"b", "new/k", Whole), Err("a"));
        assert!(claims.release_unless(&"a", |thing| thing.starts_with("new")).is_empty());
    }

    #[test]
    fn an_object_that_had_a_thing_before_keeps_it() {
        let mut claims = Shared::default();
        claims.recall(&"b", "x", Whole);
        claims.recall(&"b", "y", Whole);
        assert_eq!(claims.claim(&"a", "x", Whole), Err("b"));
        assert_eq!(claims.release_unless(&"b", |_| false), ["a"]);
        assert_eq!(claims.claim(&"a", "y", Whole), Ok(()));
    }

    #[test]
    fn objects_that_want_parts_share_a_thing_and_an_object_that_wants_all_of_it_does_not() {
        let mut claims = Shared::default();
        assert_eq!(claims.claim(&"a", "x", Part), Ok(()));
        assert_eq!(claims.claim(&"b", "x", Part), Ok(()));
        assert_eq!(claims.sharing(&"a", &"x", Part).collect::<Vec<_>>(), [&"b"]);
        assert_eq!(claims.claim(&"c", "x", Whole), Err("a"));
        assert_eq!(claims.claim(&"b", "x", Whole), Err("a"), "not while another has a part of it");
        assert_eq!(claims.release(&"a", &"x"), [""; 0], "another has a part of it");
        assert_eq!(claims.release(&"b", &"x"), ["c"], "and now all of it is free");
        assert_eq!(claims.claim(&"c", "x", Whole), Ok(()));
        assert_eq!(claims.claim(&"a", "x", Part), Err("c"));
        assert_eq!(claims.claim(&"c", "x", Part), Ok(()), "an object that has it alone may change its share");
        assert_eq!(claims.claim(&"a", "x", Part), Ok(()));
    }

    #[test]
    fn the_claims_of_an_object_are_found_by_its_name_and_end_with_it() {
        let mut claims = Shared::default();
        claims.recall(&"a", "x", Whole);
        claims.recall(&"b", "x", Whole);
        let count = |claims: &Shared, object| claims.claimed(&object).len();
        assert_eq!((count(&claims, "a"), count(&claims, "b")), (1, 0), "two records with one thing");
        assert_eq!(claims.claim(&"a", "y", Part), Ok(()));
        assert_eq!(claims.claim(&"b", "y", Part), Ok(()));
        assert_eq!(claims.claim(&"b", "x", Whole), Err("a"));
        assert_eq!(claims.claim(&"c", "x", Whole), Err("a"));
        assert_eq!((count(&claims, "a"), count(&claims, "b"), count(&claims, "c")), (2, 2, 1));
        assert_eq!(claims.release_unless(&"c", |_| false), [""; 0], "it waits no more");
        assert_eq!(claims.release_unless(&"a", |_| false), ["b"]);
        assert_eq!((count(&claims, "a"), count(&claims, "b")), (0, 1), "an object that is told has to claim again");
        assert_eq!(claims.release_unless(&"b", |_| false), [""; 0]);
        assert!(claims.is_empty());
    }

    #[test]
    fn by_rank_the_lowest_comes_first_whatever_the_order_of_the_claims() {
        let rank = |object: &&str| ["old", "new", "none"].iter().position(|known| known == object).filter(|at| *at < 2);
        let mut claims = Claims::<&str, &str>::default();
        for object in ["new", "none", "old"] {
            assert!(claims.set(&object, ["x", "y"]).is_empty());
        }
        assert_eq!(claims.preceding(&"new", ["y", "z"], rank), Some(&"old"));
        assert_eq!(claims.preceding(&"old", ["x", "y"], rank), None);
        assert_eq!(claims.preceding(&"none", ["x"], rank), None, "an object without a rank is not compared");
        assert_eq!(claims.set(&"old", ["y"]), ["x"]);
        assert_eq!(claims.claimants(&"x").collect::<Vec<_>>(), [&"new", &"none"]);
        assert_eq!(claims.preceding(&"new", ["x"], rank), None);
        assert_eq!(claims.things().len(), 2);
    }
}
