//! The shares of principals: open watches, and requests under way. Each has a share, so that nobody takes all.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// How many of something each principal holds. Clones share the counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shares {
    taken: Arc<Mutex<HashMap<String, u32>>>,
}

/// One of them, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    shares: Shares,
    principal_id: String,
}

impl Shares {
    /// Takes one more, unless the principal holds `limit` of them.
    pub(crate) fn take(&self, principal_id: &str, limit: u32) -> Option<Share> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let count = taken.get(principal_id).copied().unwrap_or_default();
        if count >= limit {
            return None;
        }
        taken.insert(principal_id.to_owned(), count + 1);
        Some(Share { shares: self.clone(), principal_id: principal_id.to_owned() })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.shares.taken.lock().unwrap_or_else(PoisonError::into_inner);
        match taken.get_mut(&self.principal_id) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(taken.remove(&self.principal_id)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_each_principals_own_and_given_back() {
        let shares = Shares::default();
        let held: Vec<_> = (0..2).map(|_| shares.take("a", 2).unwrap()).collect();
        assert!(shares.take("a", 2).is_none() && shares.take("b", 2).is_some());
        drop(held);
        assert!(shares.take("a", 1).is_some());
        assert!(shares.taken.lock().unwrap().is_empty(), "nothing stays of those who hold nothing");
    }
}
