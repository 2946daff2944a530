//! Who of the objects of this cluster has which location. Pure.
//!
//! In engines with versions the mark in Vault decides; this says it sooner, and it is all there is where there are no marks.

use std::collections::{BTreeSet, HashMap};

use crate::object::ObjectRef;

#[derive(Default)]
pub(super) struct Claims(HashMap<String, Claim>);

struct Claim {
    holder: ObjectRef,
    /// Who else wants it.
    waiting: BTreeSet<ObjectRef>,
}

impl Claims {
    pub(super) fn claim(&mut self, key: &ObjectRef, location: &str) -> Result<(), ObjectRef> {
        let claim = self.entry(key, location);
        if claim.holder == *key {
            return Ok(());
        }
        claim.waiting.insert(key.clone());
        Err(claim.holder.clone())
    }

    /// The object's record has the location, so it had it before this process began. Two records with one location are told apart by
    /// the mark, and without one by who was seen first.
    pub(super) fn recall(&mut self, key: &ObjectRef, location: &str) {
        self.entry(key, location);
    }

    pub(super) fn release(&mut self, key: &ObjectRef, location: &str) -> Vec<ObjectRef> {
        let Some(claim) = self.0.get_mut(location) else { return Vec::new() };
        claim.waiting.remove(key);
        if claim.holder != *key {
            return Vec::new();
        }
        self.0.remove(location).map(|claim| claim.waiting.into_iter().collect()).unwrap_or_default()
    }

    pub(super) fn release_all(&mut self, key: &ObjectRef) -> Vec<ObjectRef> {
        let held: Vec<String> = self.0.keys().cloned().collect();
        held.iter().flat_map(|location| self.release(key, location)).collect()
    }

    fn entry(&mut self, key: &ObjectRef, location: &str) -> &mut Claim {
        self.0.entry(location.to_owned()).or_insert_with(|| Claim { holder: key.clone(), waiting: BTreeSet::new() })
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
        assert_eq!(claims.claim(&a, "secret/data/x"), Ok(()));
        assert_eq!(claims.claim(&a, "secret/data/x"), Ok(()));
        assert_eq!(claims.claim(&b, "secret/data/x"), Err(a.clone()));
        assert_eq!(claims.claim(&c, "secret/data/x"), Err(a.clone()));
        assert_eq!(claims.release(&b, "secret/data/x"), []);
        assert_eq!(claims.release(&a, "secret/data/x"), std::slice::from_ref(&c));
        assert_eq!(claims.claim(&c, "secret/data/x"), Ok(()));
    }

    #[test]
    fn who_had_it_before_keeps_it() {
        let (a, b) = (object("a"), object("b"));
        let mut claims = Claims::default();
        claims.recall(&b, "kv/x");
        claims.recall(&b, "kv/y");
        assert_eq!(claims.claim(&a, "kv/x"), Err(b.clone()));
        assert_eq!(claims.release_all(&b), std::slice::from_ref(&a));
        assert_eq!(claims.claim(&a, "kv/y"), Ok(()));
    }
}
