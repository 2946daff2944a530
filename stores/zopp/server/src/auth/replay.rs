//! Which signatures were used already. Bounded in time by the life of a signature and in space by [`CAPACITY`].

use std::{
    collections::{HashSet, VecDeque},
    sync::{Mutex, PoisonError},
};

use konverge_zopp_crypto::signature::{MAXIMUM_AGE_SECONDS, MAXIMUM_LEAD_SECONDS};
use sha2::{Digest, Sha256};

/// How many signatures are remembered: some 2,900 changes a second for as long as a signature can live, in about 30 MB.
/// When that is not enough, changes are refused: forgetting would let a replay through.
const CAPACITY: usize = 1 << 18;

/// How long a signature can be used after it is received: made as far ahead as allowed, used as late as allowed, and the
/// second that both roundings to whole seconds may add.
const LIFETIME_SECONDS: i64 = MAXIMUM_LEAD_SECONDS + MAXIMUM_AGE_SECONDS + 1;

/// What the cache says to a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It is new, and remembered from now on.
    First,
    /// It was used before.
    Replay,
    /// Nothing can be said, because nothing more can be remembered.
    Full,
}

/// The signatures used lately. Only verified ones get in, so nobody without a principal can fill it.
#[derive(Debug)]
pub(crate) struct ReplayCache {
    capacity: usize,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    signatures: HashSet<[u8; 32]>,
    /// In the order of arrival, with the second from which each can be forgotten: arrival plus the longest life.
    expiries: VecDeque<(i64, [u8; 32])>,
}

impl Default for ReplayCache {
    fn default() -> Self {
        Self::with_capacity(CAPACITY)
    }
}

impl ReplayCache {
    fn with_capacity(capacity: usize) -> Self {
        Self { capacity, seen: Mutex::default() }
    }

    /// Has this signature been used? `now` is the present in Unix seconds; that the signature
    /// is within the window is checked before.
    pub(crate) fn admit(&self, principal_id: &str, signature: &[u8; 64], now: i64) -> Admission {
        let key: [u8; 32] = Sha256::new().chain_update(principal_id).chain_update(signature).finalize().into();
        // A panic while it was held left a set that is still right: each insertion is complete or has not begun.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((expiry, oldest)) = seen.expiries.front().copied() {
            if expiry > now {
                break;
            }
            seen.expiries.pop_front();
            seen.signatures.remove(&oldest);
        }
        if seen.signatures.contains(&key) {
            return Admission::Replay;
        }
        if seen.signatures.len() >= self.capacity {
            return Admission::Full;
        }
        seen.signatures.insert(key);
        seen.expiries.push_back((now.saturating_add(LIFETIME_SECONDS), key));
        Admission::First
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_000_000;

    #[test]
    fn a_signature_counts_once_for_as_long_as_it_is_valid() {
        let cache = ReplayCache::default();
        let ahead = NOW + MAXIMUM_LEAD_SECONDS;
        assert_eq!(cache.admit("p", &[1; 64], NOW), Admission::First);
        assert_eq!(cache.admit("p", &[1; 64], ahead + MAXIMUM_AGE_SECONDS), Admission::Replay);
        assert_eq!(cache.admit("p", &[2; 64], NOW), Admission::First);
        assert_eq!(cache.admit("q", &[1; 64], NOW), Admission::First);
    }

    #[test]
    fn a_full_cache_refuses_and_recovers_when_signatures_expire() {
        let cache = ReplayCache::with_capacity(2);
        assert_eq!(cache.admit("p", &[1; 64], NOW), Admission::First);
        assert_eq!(cache.admit("p", &[2; 64], NOW), Admission::First);
        assert_eq!(cache.admit("p", &[3; 64], NOW), Admission::Full);
        let later = NOW + LIFETIME_SECONDS;
        assert_eq!(cache.admit("p", &[3; 64], later), Admission::First);
    }
}
