//! Which signatures were used already. Bounded in time by the life of a signature and in space by [`CAPACITY`].
//!
//! This memory answers fast and shares out what there is of it; the database decides. Each change uses up the digest of its signature
//! in its own transaction, so no request takes effect twice, whichever replica receives it. A server that starts reads those that are
//! still valid. A request that a crash kept from taking effect can still do so, once.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Mutex, PoisonError},
};

use konverge_zopp_crypto::signature::{MAXIMUM_AGE_SECONDS, MAXIMUM_LEAD_SECONDS};
use sha2::{Digest, Sha256};

/// How many signatures are remembered: some 1,400 changes a second for as long as a signature can live, in about 15 MB.
/// When that is not enough, changes are refused: forgetting would let a replay through.
pub(crate) const CAPACITY: usize = 1 << 17;

/// How long a signature can be used after it is received: made as far ahead as allowed, used as late as allowed, and the
/// second that both roundings to whole seconds may add.
pub(crate) const LIFETIME_SECONDS: i64 = MAXIMUM_LEAD_SECONDS + MAXIMUM_AGE_SECONDS + 1;

/// The cache's verdict about a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It is new, and remembered from now on.
    First,
    /// It was used before.
    Replay,
    /// Nothing can be said, because nothing more can be remembered for anybody, for so many seconds.
    Full(i64),
    /// The principal used its share, of which something is free again in so many seconds.
    ShareUsed(i64),
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

/// The digest under which a request is remembered whose signature covers the time only.
pub(crate) fn digest_of_request(principal_id: &str, signature: &[u8; 64], request_hash: &[u8; 32]) -> SignatureDigest {
    Sha256::new().chain_update(principal_id).chain_update(signature).chain_update(request_hash).finalize().into()
}

#[derive(Debug, Default)]
struct Seen {
    signatures: HashSet<SignatureDigest>,
    /// In the order of arrival, with the second from which each can be forgotten: arrival plus the longest life.
    expiries: VecDeque<(i64, SignatureDigest, Owner)>,
    /// The same seconds by principal.
    shares: HashMap<Owner, VecDeque<i64>>,
}

/// A principal in few bytes.
type Owner = u128;

fn owner(principal_id: &str) -> Owner {
    uuid::Uuid::try_parse(principal_id).unwrap_or_default().as_u128()
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
    pub(crate) fn remembering(used: impl IntoIterator<Item = (SignatureDigest, String, i64)>) -> Self {
        let mut seen = Seen::default();
        for (digest, principal_id, at) in used {
            seen.insert(digest, owner(&principal_id), at);
        }
        Self { capacity: CAPACITY, seen: Mutex::new(seen) }
    }

    /// Has this signature of a principal been used? The principal may have `share` of those that are valid. `now` is the present in Unix seconds; that the signature
    /// is within the window is checked before.
    pub(crate) fn admit(&self, principal_id: &str, signature: SignatureDigest, share: u32, now: i64) -> Admission {
        // A panic while it was held left a set that is still right: each insertion is complete or has not begun.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((expiry, oldest, owner)) = seen.expiries.front().copied() {
            if expiry > now {
                break;
            }
            seen.expiries.pop_front();
            seen.signatures.remove(&oldest);
            seen.release(owner);
        }
        if seen.signatures.contains(&signature) {
            return Admission::Replay;
        }
        if seen.signatures.len() >= self.capacity {
            let expiry = seen.expiries.front().map_or(now, |(expiry, ..)| *expiry);
            return Admission::Full(expiry - now);
        }
        let owner = owner(principal_id);
        if let Some(own) = seen.shares.get(&owner)
            && own.len() >= share.try_into().unwrap_or(usize::MAX)
        {
            return Admission::ShareUsed(own.front().map_or(0, |expiry| expiry - now));
        }
        seen.insert(signature, owner, now);
        Admission::First
    }
}

impl Seen {
    fn insert(&mut self, signature: SignatureDigest, owner: Owner, at: i64) {
        let expiry = at.saturating_add(LIFETIME_SECONDS);
        self.signatures.insert(signature);
        self.expiries.push_back((expiry, signature, owner));
        self.shares.entry(owner).or_default().push_back(expiry);
    }

    fn release(&mut self, owner: Owner) {
        if let Some(own) = self.shares.get_mut(&owner) {
            own.pop_front();
            if own.is_empty() {
                self.shares.remove(&owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_000_000;

    fn id(name: &str) -> &'static str {
        if name == "p" { "01890a5d-ac96-774b-bcce-b302099a8057" } else { "01890a5d-ac96-774b-bcce-b302099a8058" }
    }

    #[test]
    fn one_principal_uses_its_share_and_no_more() {
        let cache = ReplayCache::default();
        let admit = |name, number: u8, now| cache.admit(id(name), digest(name, &[number; 64]), 2, now);
        assert_eq!(admit("p", 1, NOW), Admission::First);
        assert_eq!(admit("p", 2, NOW + 1), Admission::First);
        assert_eq!(admit("p", 3, NOW + 11), Admission::ShareUsed(LIFETIME_SECONDS - 11));
        assert_eq!(admit("p", 2, NOW + 11), Admission::Replay, "what it used is remembered all the same");
        assert_eq!(admit("q", 1, NOW + 11), Admission::First);
        assert_eq!(admit("p", 3, NOW + LIFETIME_SECONDS), Admission::First);
        assert_eq!(admit("p", 4, NOW + LIFETIME_SECONDS), Admission::ShareUsed(1));
    }

    #[test]
    fn a_signature_counts_once_for_as_long_as_it_is_valid() {
        let cache = ReplayCache::default();
        let ahead = NOW + MAXIMUM_LEAD_SECONDS;
        assert_eq!(cache.admit(id("p"), digest("p", &[1; 64]), 100, NOW), Admission::First);
        assert_eq!(cache.admit(id("p"), digest("p", &[1; 64]), 100, ahead + MAXIMUM_AGE_SECONDS), Admission::Replay);
        assert_eq!(cache.admit(id("p"), digest("p", &[2; 64]), 100, NOW), Admission::First);
        assert_eq!(cache.admit(id("q"), digest("q", &[1; 64]), 100, NOW), Admission::First);
    }

    #[test]
    fn what_was_used_before_the_start_is_remembered_as_long() {
        let used = digest("p", &[1; 64]);
        let cache = ReplayCache::remembering([(used, id("p").to_owned(), NOW)]);
        assert_eq!(cache.admit(id("p"), used, 100, NOW + LIFETIME_SECONDS - 1), Admission::Replay);
        assert_eq!(
            cache.admit(id("p"), used, 100, NOW + LIFETIME_SECONDS),
            Admission::First,
            "refused by then for its age"
        );
    }

    #[test]
    fn a_full_cache_refuses_and_recovers_when_signatures_expire() {
        let cache = ReplayCache::with_capacity(2);
        assert_eq!(cache.admit(id("p"), digest("p", &[1; 64]), 100, NOW), Admission::First);
        assert_eq!(cache.admit(id("p"), digest("p", &[2; 64]), 100, NOW), Admission::First);
        assert_eq!(cache.admit(id("p"), digest("p", &[3; 64]), 100, NOW), Admission::Full(LIFETIME_SECONDS));
        let later = NOW + LIFETIME_SECONDS;
        assert_eq!(cache.admit(id("p"), digest("p", &[3; 64]), 100, later), Admission::First);
    }
}
