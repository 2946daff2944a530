//! The effects of the last applies, so that they are not repeated where the object alone cannot show that it is in sync.
//!
//! A shortcut, never a truth: it is empty after a restart and forgets when it is full, which costs a request that changes nothing.

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hash, Hasher, RandomState},
    sync::{Mutex, PoisonError},
};

use serde_json::Value;

/// Objects remembered before all are forgotten; some 5 MiB.
const REMEMBERED: usize = 1 << 16;

/// By uid: a digest of what was wanted, and one of what the object was after it was applied.
#[derive(Default)]
pub(super) struct Memory {
    applied: Mutex<HashMap<String, (u64, u64)>>,
    digests: RandomState,
}

impl Memory {
    /// Whether this was applied, and the object has been as it is now ever since, but for its status.
    pub(super) fn is_repeated(&self, uid: &str, wanted: &Value, observed: &Value) -> bool {
        let known = self.applied.lock().unwrap_or_else(PoisonError::into_inner).get(uid).copied();
        known.is_some_and(|known| known == (self.digests.hash_one(wanted), self.content(observed)))
    }

    /// After applying `wanted`, the object is `answer`.
    pub(super) fn remember(&self, uid: &str, wanted: &Value, answer: &Value) {
        let digests = (self.digests.hash_one(wanted), self.content(answer));
        let mut applied = self.applied.lock().unwrap_or_else(PoisonError::into_inner);
        if applied.len() >= REMEMBERED && !applied.contains_key(uid) {
            applied.clear();
        }
        applied.insert(uid.to_owned(), digests);
    }

    fn content(&self, object: &Value) -> u64 {
        let mut digest = self.digests.build_hasher();
        for member in members(Some(object), &["status", "metadata"]) {
            member.hash(&mut digest);
        }
        "metadata".hash(&mut digest);
        for member in members(object.get("metadata"), &["generation", "managedFields", "resourceVersion"]) {
            member.hash(&mut digest);
        }
        digest.finish()
    }
}

/// The members of an object but for some.
fn members<'a>(of: Option<&'a Value>, except: &[&str]) -> impl Iterator<Item = (&'a String, &'a Value)> {
    let members = of.and_then(Value::as_object).into_iter().flatten();
    members.filter(move |(name, _)| !except.contains(&name.as_str()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_same_wish_for_the_same_content_is_repeated() {
        let memory = Memory::default();
        let (wanted, other) = (json!({"spec": {"cpu": "0.5"}}), json!({"spec": {"cpu": "1"}}));
        let after = json!({"metadata": {"uid": "u", "resourceVersion": "1"}, "spec": {"cpu": "500m"}});
        assert!(!memory.is_repeated("u", &wanted, &after));
        memory.remember("u", &wanted, &after);
        assert!(memory.is_repeated("u", &wanted, &after));
        assert!(!memory.is_repeated("u", &other, &after));
        assert!(!memory.is_repeated("v", &wanted, &after));
        let mut later = after.clone();
        later["metadata"]["resourceVersion"] = json!("2");
        later["status"] = json!({"ready": true});
        assert!(memory.is_repeated("u", &wanted, &later));
        later["spec"]["cpu"] = json!("600m");
        assert!(!memory.is_repeated("u", &wanted, &later));
    }

    #[test]
    fn memory_stays_bounded() {
        let memory = Memory::default();
        for number in 0..=REMEMBERED {
            memory.remember(&number.to_string(), &Value::Null, &Value::Null);
        }
        assert_eq!(memory.applied.into_inner().expect("no panic").len(), 1);
    }
}
