//! Which signatures were used already. Bounded in time by the life of a signature and in space by [`CAPACITY`].
//!
//! The record of a change, written in the change's own transaction, holds the digest of its signature. A server that starts reads
//! those that are still valid, so that no restart or crash lets a change be made twice by one request, and no clock of any client
//! has to agree with the moment of the start. A request that a crash kept from taking effect can still do so, once.

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
pub(crate) const LIFETIME_SECONDS: i64 = MAXIMUM_LEAD_SECONDS + MAXIMUM_AGE_SECONDS + 1;

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

/// Stands for one signature of one principal.
pub(crate) type SignatureDigest = [u8; 32];

/// The digest under which a signature is remembered.
pub(crate) fn digest(principal_id: &str, signature: &[u8; 64]) -> SignatureDigest {
    Sha256::new().chain_update(principal_id).chain_update(signature).finalize().into()
}

#[derive(Debug, Default)]
struct Seen {
    signatures: HashSet<SignatureDigest>,
    /// In the order of arrival, with the second from which each can be forgotten: arrival plus the longest life.
    expiries: VecDeque<(i64, SignatureDigest)>,
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

    /// A cache that remembers what was used before the server started: each digest with the second of its use, oldest first.
    pub(crate) fn remembering(used: impl IntoIterator<Item = (SignatureDigest, i64)>) -> Self {
        let mut seen = Seen::default();
        for (digest, at) in used {
            seen.insert(digest, at);
        }
        Self { capacity: CAPACITY, seen: Mutex::new(seen) }
    }

    /// Has this signature been used? `now` is the present in Unix seconds; that the signature
    /// is within the window is checked before.
    pub(crate) fn admit(&self, signature: SignatureDigest, now: i64) -> Admission {
        // A panic while it was held left a set that is still right: each insertion is complete or has not begun.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((expiry, oldest)) = seen.expiries.front().copied() {
            if expiry > now {
                break;
            }
            seen.expiries.pop_front();
            seen.signatures.remove(&oldest);
        }
        if seen.signatures.contains(&signature) {
            return Admission::Replay;
        }
        if seen.signatures.len() >= self.capacity {
            return Admission::Full;
        }
        seen.insert(signature, now);
        Admission::First
    }
}

impl Seen {
    fn insert(&mut self, signature: SignatureDigest, at: i64) {
        self.signatures.insert(signature);
        self.expiries.push_back((at.saturating_add(LIFETIME_SECONDS), signature));
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
        assert_eq!(cache.admit(digest("p", &[1; 64]), NOW), Admission::First);
        assert_eq!(cache.admit(digest("p", &[1; 64]), ahead + MAXIMUM_AGE_SECONDS), Admission::Replay);
        assert_eq!(cache.admit(digest("p", &[2; 64]), NOW), Admission::First);
        assert_eq!(cache.admit(digest("q", &[1; 64]), NOW), Admission::First);
    }

    #[test]
    fn what_was_used_before_the_start_is_remembered_as_long() {
        let used = digest("p", &[1; 64]);
        let cache = ReplayCache::remembering([(used, NOW)]);
        assert_eq!(cache.admit(used, NOW + LIFETIME_SECONDS - 1), Admission::Replay);
        assert_eq!(cache.admit(used, NOW + LIFETIME_SECONDS), Admission::First, "refused by then for its age");
    }

    #[test]
    fn a_full_cache_refuses_and_recovers_when_signatures_expire() {
        let cache = ReplayCache::with_capacity(2);
        assert_eq!(cache.admit(digest("p", &[1; 64]), NOW), Admission::First);
        assert_eq!(cache.admit(digest("p", &[2; 64]), NOW), Admission::First);
        assert_eq!(cache.admit(digest("p", &[3; 64]), NOW), Admission::Full);
        let later = NOW + LIFETIME_SECONDS;
        assert_eq!(cache.admit(digest("p", &[3; 64]), later), Admission::First);
    }
}
