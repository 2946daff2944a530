//! The claims of this cluster's objects to locations: the first object that claims a location has it. Pure.
//!
//! In engines with versions, the mark in Vault decides, and the claim is known sooner. In engines without marks, the claim alone decides.

use konverge_core::reverse_index::ReverseIndex;

use crate::object::ObjectRef;

/// The objects that hold a location or wait for it.
#[derive(Default)]
pub(super) struct Claims(ReverseIndex<ObjectRef, String, Claim>);

/// The claim of one object to one location.
#[derive(Debug, Clone, Copy)]
struct Claim {
    /// How much of the location the object holds. All holders of a location hold the same.
    holds: Option<Share>,
    /// Whether it waits for more.
    waits: bool,
}

/// How much of a location an object claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// All of it.
    Whole,
    /// Some keys of it, each of which is claimed [by itself](key_of). Others may have other keys.
    Keys,
}

/// The name of one key of a location among claims.
pub fn key_of(location: &str, key: &str) -> String {
    // No path has a control character in it.
    format!("{location}\n{key}")
}

/// Returns the location of a claim, which may be for one of its keys.
fn location_of(claimed: &str) -> &str {
    claimed.split_once('\n').map_or(claimed, |(location, _)| location)
}

impl Claims {
    pub(super) fn claim(&mut self, key: &ObjectRef, location: &str, share: Share) -> Result<(), ObjectRef> {
        let location = location.to_owned();
        let other = holders(self.0.references(&location)).find(|(holder, _)| *holder != key);
        let other = other.filter(|(_, held)| (*held, share) != (Share::Keys, Share::Keys));
        let other = other.map(|(holder, _)| holder.clone());
        let holds =
            if other.is_none() { Some(share) } else { self.0.get(key, &location).and_then(|claim| claim.holds) };
        self.0.add(key, location, Claim { holds, waits: other.is_some() });
        other.map_or(Ok(()), Err)
    }

    /// The object's record has the location, so the object had it before this process began. Of two records with one location, the mark decides.
    /// Without a mark, the object that was seen first has it.
    pub(super) fn recall(&mut self, key: &ObjectRef, location: &str, share: Share) {
        let location = location.to_owned();
        let held = holders(self.0.references(&location)).map(|(_, held)| held).next();
        if held.is_none() || (held, share) == (Some(Share::Keys), Share::Keys) {
            let waits = self.0.get(key, &location).is_some_and(|claim| claim.waits);
            self.0.add(key, location, Claim { holds: Some(share), waits });
        }
    }

    /// Gives up a location. Returns the objects that waited for it.
    pub(super) fn release(&mut self, key: &ObjectRef, location: &str) -> Vec<ObjectRef> {
        let location = location.to_owned();
        let held = self.0.get(key, &location).and_then(|claim| claim.holds);
        self.0.discard(key, &location);
        if held.is_none() || holders(self.0.references(&location)).next().is_some() {
            return Vec::new();
        }
        let waiting: Vec<_> = self.0.referrers(&location).cloned().collect();
        for key in &waiting {
            self.0.discard(key, &location);
        }
        waiting
    }

    /// Gives up the locations that the object does not keep.
    pub(super) fn release_unless(&mut self, key: &ObjectRef, keeps: impl Fn(&str) -> bool) -> Vec<ObjectRef> {
        let claimed = self.0.targets(key).filter(|claimed| !keeps(location_of(claimed)));
        let given_up: Vec<_> = claimed.cloned().collect();
        given_up.iter().flat_map(|location| self.release(key, location)).collect()
    }

    pub(super) fn release_all(&mut self, key: &ObjectRef) -> Vec<ObjectRef> {
        self.release_unless(key, |_| false)
    }

    /// The other objects with keys at a location.
    pub(super) fn sharing<'a>(
        &'a self,
        key: &'a ObjectRef,
        location: &str,
    ) -> impl Iterator<Item = &'a ObjectRef> + use<'a> {
        let holders = holders(self.0.references(&location.to_owned()));
        holders.filter(move |(holder, held)| *held == Share::Keys && *holder != key).map(|(holder, _)| holder)
    }
}

fn holders<'a>(
    claims: impl Iterator<Item = (&'a ObjectRef, &'a Claim)>,
) -> impl Iterator<Item = (&'a ObjectRef, Share)> {
    claims.filter_map(|(object, claim)| Some((object, claim.holds?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Kind;

    fn object(name: &str) -> ObjectRef {
        ObjectRef { kind: Kind::Secret, namespace: "shop".to_owned(), name: name.to_owned() }
    }

    #[test]
    fn the_first_has_it_until_it_lets_go_and_then_the_others_are_told() {
        let (a, b, c) = (object("a"), object("b"), object("c"));
        let mut claims = Claims::default();
        assert_eq!(claims.claim(&a, "secret/data/x", Share::Whole), Ok(()));
        assert_eq!(claims.claim(&a, "secret/data/x", Share::Whole), Ok(()));
        assert_eq!(claims.claim(&b, "secret/data/x", Share::Whole), Err(a.clone()));
        assert_eq!(claims.claim(&c, "secret/data/x", Share::Whole), Err(a.clone()));
        assert_eq!(claims.release(&b, "secret/data/x"), []);
        assert_eq!(claims.release(&a, "secret/data/x"), std::slice::from_ref(&c));
        assert_eq!(claims.claim(&c, "secret/data/x", Share::Whole), Ok(()));
    }

    #[test]
    fn what_is_neither_wanted_nor_kept_is_given_up_with_its_keys() {
        let (a, b, c) = (object("a"), object("b"), object("c"));
        let mut claims = Claims::default();
        for location in ["kv/old", &key_of("kv/old", "k"), "kv/new", &key_of("kv/new", "k")] {
            assert_eq!(claims.claim(&a, location, Share::Whole), Ok(()));
            assert_eq!(claims.claim(&b, location, Share::Whole), Err(a.clone()));
        }
        assert_eq!(claims.release_unless(&a, |location| location == "kv/new"), [b.clone(), b.clone()]);
        assert_eq!(claims.claim(&c, "kv/old", Share::Whole), Ok(()));
        assert_eq!(claims.claim(&c, &key_of("kv/old", "k"), Share::Whole), Ok(()));
        assert_eq!(claims.claim(&b, &key_of("kv/new", "k"), Share::Whole), Err(a.clone()));
        assert!(claims.release_unless(&a, |location| location == "kv/new").is_empty());
    }

    #[test]
    fn who_had_it_before_keeps_it() {
        let (a, b) = (object("a"), object("b"));
        let mut claims = Claims::default();
        claims.recall(&b, "kv/x", Share::Whole);
        claims.recall(&b, "kv/y", Share::Whole);
        assert_eq!(claims.claim(&a, "kv/x", Share::Whole), Err(b.clone()));
        assert_eq!(claims.release_all(&b), std::slice::from_ref(&a));
        assert_eq!(claims.claim(&a, "kv/y", Share::Whole), Ok(()));
    }

    #[test]
    fn those_who_want_keys_share_a_location_and_who_wants_all_of_it_does_not() {
        let (a, b, c) = (object("a"), object("b"), object("c"));
        let mut claims = Claims::default();
        assert_eq!(claims.claim(&a, "kv/x", Share::Keys), Ok(()));
        assert_eq!(claims.claim(&b, "kv/x", Share::Keys), Ok(()));
        assert_eq!(claims.claim(&c, "kv/x", Share::Whole), Err(a.clone()));
        assert_eq!(claims.claim(&b, "kv/x", Share::Whole), Err(a.clone()), "not while another has keys there");
        assert_eq!(claims.claim(&a, &key_of("kv/x", "k"), Share::Whole), Ok(()));
        assert_eq!(claims.claim(&b, &key_of("kv/x", "k"), Share::Whole), Err(a.clone()));
        assert_eq!(claims.release_all(&a), std::slice::from_ref(&b), "the key is free");
        assert_eq!(claims.release(&b, "kv/x"), std::slice::from_ref(&c), "and now all of it is");
        assert_eq!(claims.claim(&c, "kv/x", Share::Whole), Ok(()));
        assert_eq!(claims.claim(&a, "kv/x", Share::Keys), Err(c.clone()));
        assert_eq!(claims.claim(&c, "kv/x", Share::Keys), Ok(()), "who has it alone may have it otherwise");
        assert_eq!(claims.claim(&a, "kv/x", Share::Keys), Ok(()));
    }

    #[test]
    fn what_an_object_has_or_waits_for_is_found_by_its_name_and_forgotten_with_it() {
        let (a, b, c) = (object("a"), object("b"), object("c"));
        let mut claims = Claims::default();
        let named = |claims: &Claims, key: &ObjectRef| claims.0.targets(key).len();
        claims.recall(&a, "kv/x", Share::Whole);
        claims.recall(&b, "kv/x", Share::Whole);
        assert_eq!((named(&claims, &a), named(&claims, &b)), (1, 0), "two records with one location");
        assert_eq!(claims.claim(&a, "kv/y", Share::Keys), Ok(()));
        assert_eq!(claims.claim(&b, "kv/y", Share::Keys), Ok(()));
        assert_eq!(claims.claim(&b, "kv/x", Share::Whole), Err(a.clone()));
        assert_eq!(claims.claim(&c, "kv/x", Share::Whole), Err(a.clone()));
        assert_eq!((named(&claims, &a), named(&claims, &b), named(&claims, &c)), (2, 2, 1));
        assert_eq!(claims.release_all(&c), [], "it waits no more");
        assert_eq!(claims.release_all(&a), std::slice::from_ref(&b));
        assert_eq!((named(&claims, &a), named(&claims, &b)), (0, 1), "who is told has to ask again");
        assert_eq!(claims.release_all(&b), []);
        assert!(claims.0.is_empty());
    }
}
