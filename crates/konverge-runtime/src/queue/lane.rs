//! The ready keys of one priority, taken in turn from each namespace.
//!
//! Within a namespace the oldest key goes first. Between namespaces the turns go round, so the flood of one namespace delays the keys of
//! another by one key at most.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// Ready keys of one priority.
#[derive(Debug)]
pub(super) struct Lane<K> {
    namespaces: HashMap<Arc<str>, Namespace<K>>,
    /// The namespaces with ready keys, in the order of their turns.
    turns: BTreeMap<u64, Arc<str>>,
    last_turn: u64,
    len: usize,
}

#[derive(Debug)]
struct Namespace<K> {
    /// By arrival.
    keys: BTreeMap<u64, Arc<K>>,
    turn: u64,
}

impl<K> Default for Lane<K> {
    fn default() -> Self {
        Self { namespaces: HashMap::new(), turns: BTreeMap::new(), last_turn: 0, len: 0 }
    }
}

impl<K> Lane<K> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a key behind the earlier ones of its namespace. A namespace that had no key takes its turn after all others.
    pub(super) fn insert(&mut self, namespace: &str, arrival: u64, key: Arc<K>) {
        if !self.namespaces.contains_key(namespace) {
            let name: Arc<str> = Arc::from(namespace);
            self.last_turn += 1;
            self.turns.insert(self.last_turn, Arc::clone(&name));
            self.namespaces.insert(name, Namespace { keys: BTreeMap::new(), turn: self.last_turn });
        }
        if let Some(found) = self.namespaces.get_mut(namespace)
            && found.keys.insert(arrival, key).is_none()
        {
            self.len += 1;
        }
    }

    /// Takes the oldest key of the namespace whose turn it is.
    pub(super) fn pop(&mut self) -> Option<Arc<K>> {
        let (_, name) = self.turns.pop_first()?;
        let namespace = self.namespaces.get_mut(&name)?;
        let (_, key) = namespace.keys.pop_first()?;
        self.len -= 1;
        if namespace.keys.is_empty() {
            self.namespaces.remove(&name);
        } else {
            self.last_turn += 1;
            namespace.turn = self.last_turn;
            self.turns.insert(self.last_turn, name);
        }
        Some(key)
    }

    /// Takes out one key, wherever it waits.
    pub(super) fn remove(&mut self, namespace: &str, arrival: u64) {
        let Some(found) = self.namespaces.get_mut(namespace) else { return };
        if found.keys.remove(&arrival).is_none() {
            return;
        }
        self.len -= 1;
        if found.keys.is_empty() {
            let turn = found.turn;
            self.turns.remove(&turn);
            self.namespaces.remove(namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(lane: &mut Lane<&'static str>) -> Vec<&'static str> {
        std::iter::from_fn(|| lane.pop()).map(|key| *key).collect()
    }

    #[test]
    fn namespaces_take_turns_and_the_oldest_key_of_each_goes_first() {
        let mut lane = Lane::default();
        for (arrival, key) in [(1, "a/1"), (2, "a/2"), (3, "a/3"), (4, "b/1"), (5, "c/1"), (6, "b/2")] {
            lane.insert(&key[..1], arrival, Arc::new(key));
        }
        assert_eq!(lane.len(), 6);
        assert_eq!(order(&mut lane), ["a/1", "b/1", "c/1", "a/2", "b/2", "a/3"]);
        assert!(lane.is_empty() && lane.namespaces.is_empty() && lane.turns.is_empty());
    }

    #[test]
    fn a_key_that_is_removed_leaves_nothing_behind_and_a_namespace_that_returns_goes_last() {
        let mut lane = Lane::default();
        for (arrival, key) in [(1, "a/1"), (2, "b/1"), (3, "c/1"), (4, "c/2")] {
            lane.insert(&key[..1], arrival, Arc::new(key));
        }
        lane.remove("a", 1);
        lane.remove("c", 3);
        lane.remove("c", 3);
        lane.remove("d", 9);
        lane.insert("a", 5, Arc::new("a/2"));
        assert_eq!(lane.len(), 3);
        assert_eq!(order(&mut lane), ["b/1", "c/2", "a/2"]);
        assert!(lane.is_empty() && lane.namespaces.is_empty() && lane.turns.is_empty());
    }
}
