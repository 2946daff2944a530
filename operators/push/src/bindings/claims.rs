//! Which object of this cluster has which location. Pure.
//!
//! In engines with versions the mark in Vault decides; this says it sooner, and it is all there is where there are no marks.

use std::collections::{BTreeSet, HashMap};

use crate::object::ObjectRef;

#[derive(Default)]
pub(super) struct Claims {
    /// By location.
    claims: HashMap<String, Claim>,
    /// The locations that an object has or waits for, so that one of many that go costs no look at those of the others.
    named: HashMap<ObjectRef, BTreeSet<String>>,
}

struct Claim {
    holders: BTreeSet<ObjectRef>,
    share: Share,
    /// The objects that wait for it.
    waiting: BTreeSet<ObjectRef>,
}

/// How much of a location somebody wants.
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

/// The location of which that is claimed, or a key of it.
fn location_of(claimed: &str) -> &str {
    claimed.split_once('\n').map_or(claimed, |(location, _)| location)
}

impl Claims {
    pub(super) fn claim(&mut self, key: &ObjectRef, location: &str, share: Share) -> Result<(), ObjectRef> {
        // It has the location from here on, or waits for it.
        self.note(key, location);
        let claim = self.entry(key, location, share);
        let other = claim.holders.iter().find(|holder| *holder != key).cloned();
        match other {
            None => claim.share = share,
            Some(_) if (claim.share, share) == (Share::Keys, Share::Keys) => {
                claim.holders.insert(key.clone());
            }
            Some(other) => {
                claim.waiting.insert(key.clone());
                return Err(other);
            }
        }
        claim.waiting.remove(key);
        Ok(())
    }

    /// The object's record has the location, so it had it before this process began. Two records with one location are told apart by
    /// the mark, and without one by who was seen first.
    pub(super) fn recall(&mut self, key: &ObjectRef, location: &str, share: Share) {
        let claim = self.entry(key, location, share);
        if (claim.share, share) == (Share::Keys, Share::Keys) {
            claim.holders.insert(key.clone());
        }
        if claim.holders.contains(key) {
            self.note(key, location);
        }
    }

    pub(super) fn release(&mut self, key: &ObjectRef, location: &str) -> Vec<ObjectRef> {
        self.erase(key, location);
        let Some(claim) = self.claims.get_mut(location) else { return Vec::new() };
        claim.waiting.remove(key);
        if !claim.holders.remove(key) || !claim.holders.is_empty() {
            return Vec::new();
        }
        let waiting = self.claims.remove(location).map(|claim| claim.waiting).unwrap_or_default();
        for key in &waiting {
            self.erase(key, location);
        }
        waiting.into_iter().collect()
    }

    /// Gives up what is neither wanted nor kept any more.
    pub(super) fn release_unless(&mut self, key: &ObjectRef, keeps: impl Fn(&str) -> bool) -> Vec<ObjectRef> {
        let named = self.named.get(key).into_iter().flatten();
        let given_up: Vec<_> = named.filter(|claimed| !keeps(location_of(claimed))).cloned().collect();
        given_up.iter().flat_map(|location| self.release(key, location)).collect()
    }

    pub(super) fn release_all(&mut self, key: &ObjectRef) -> Vec<ObjectRef> {
        let named = self.named.get(key).cloned().unwrap_or_default();
        named.iter().flat_map(|location| self.release(key, location)).collect()
    }

    /// The other objects with keys at a location.
    pub(super) fn sharing<'a>(
        &'a self,
        key: &'a ObjectRef,
        location: &str,
    ) -> impl Iterator<Item = &'a ObjectRef> + use<'a> {
        let claim = self.claims.get(location).filter(|claim| claim.share == Share::Keys);
        claim.into_iter().flat_map(|claim| &claim.holders).filter(move |holder| *holder != key)
    }

    fn entry(&mut self, key: &ObjectRef, location: &str, share: Share) -> &mut Claim {
        self.claims.entry(location.to_owned()).or_insert_with(|| Claim {
            holders: BTreeSet::from([key.clone()]),
            share,
            waiting: BTreeSet::new(),
        })
    }

    fn note(&mut self, key: &ObjectRef, location: &str) {
        if let Some(named) = self.named.get_mut(key) {
            if !named.contains(location) {
                named.insert(location.to_owned());
            }
        } else {
            self.named.insert(key.clone(), BTreeSet::from([location.to_owned()]));
        }
    }

    fn erase(&mut self, key: &ObjectRef, location: &str) {
        if let Some(named) = self.named.get_mut(key) {
            named.remove(location);
            if named.is_empty() {
                self.named.remove(key);
            }
        }
    }
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
        let named = |claims: &Claims, key: &ObjectRef| claims.named.get(key).map_or(0, BTreeSet::len);
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
        assert!(claims.claims.is_empty() && claims.named.is_empty());
    }
}
