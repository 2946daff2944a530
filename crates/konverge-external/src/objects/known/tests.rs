use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime},
};

use object_store::path::Path;
use proptest::prelude::*;

use super::*;
use crate::KEY_LENGTH;

fn key() -> FingerprintKey {
    FingerprintKey::new([1; KEY_LENGTH])
}

fn meta(path: &str, tag: Option<&str>, version: Option<&str>, size: u64, seconds: u64) -> ObjectMeta {
    ObjectMeta {
        location: Path::from(path),
        last_modified: (SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).into(),
        size,
        e_tag: tag.map(str::to_owned),
        version: version.map(str::to_owned),
    }
}

/// One listing, taken up at once.
fn list(known: &mut Known, listed: &[ObjectMeta]) -> Vec<(ChangeKind, String)> {
    known.begin();
    let candidates: Vec<_> = listed.iter().filter_map(|meta| known.show(meta.clone(), &key())).collect();
    let removed = known.end(2).into_iter().map(|path| (ChangeKind::Removed, path));
    let mut changes: Vec<_> = candidates.iter().map(|found| (found.kind, found.meta.location.to_string())).collect();
    changes.extend(removed);
    for found in candidates {
        known.learn(found.meta.location.into(), found.fingerprint);
    }
    changes
}

#[test]
fn the_first_thing_that_the_store_tells_decides() {
    let unchanged = |left: ObjectMeta, right: ObjectMeta| {
        let mut known = Known::default();
        list(&mut known, &[left]);
        list(&mut known, &[right]).is_empty()
    };
    let plain = |size, seconds| meta("a", None, None, size, seconds);
    assert!(unchanged(plain(1, 1), plain(1, 1)));
    assert!(!unchanged(plain(1, 1), plain(2, 1)));
    assert!(!unchanged(plain(1, 1), plain(1, 2)));
    let version = |version, seconds| meta("a", None, Some(version), 1, seconds);
    assert!(unchanged(version("1", 1), version("1", 2)));
    assert!(!unchanged(version("1", 1), version("2", 1)));
    let tag = |tag, version, seconds| meta("a", Some(tag), Some(version), 1, seconds);
    assert!(unchanged(tag("1", "1", 1), tag("1", "2", 2)));
    assert!(!unchanged(tag("1", "1", 1), tag("2", "1", 1)));
    assert!(!unchanged(plain(1, 1), tag("1", "1", 1)));
}

#[test]
fn what_two_complete_listings_do_not_show_is_removed() {
    let mut known = Known::default();
    let (a, b) = (meta("a", Some("1"), None, 1, 1), meta("b", Some("1"), None, 1, 1));
    assert_eq!(list(&mut known, &[a.clone(), b.clone()]).len(), 2);
    assert_eq!(list(&mut known, std::slice::from_ref(&a)), []);
    assert_eq!(list(&mut known, &[a.clone(), b.clone()]), [], "it is there again");
    assert_eq!(list(&mut known, std::slice::from_ref(&a)), []);
    known.begin();
    assert!(known.show(b, &key()).is_none());
    // That listing broke off after b.
    assert_eq!(list(&mut known, &[a]), [(ChangeKind::Removed, "b".to_owned())]);
    assert_eq!(known.remembered().len(), 1);
}

#[test]
fn what_was_remembered_is_compared() {
    let mut known = Known::default();
    list(
        &mut known,
        &[meta("a", Some("1"), None, 1, 1), meta("b", Some("1"), None, 1, 1), meta("c", Some("1"), None, 1, 1)],
    );
    let mut restarted = Known::default();
    restarted.recall(known.remembered());
    let now = [meta("a", Some("1"), None, 1, 1), meta("b", Some("2"), None, 1, 1)];
    assert_eq!(list(&mut restarted, &now), [(ChangeKind::Modified, "b".to_owned())]);
    assert_eq!(list(&mut restarted, &now), [(ChangeKind::Removed, "c".to_owned())]);
}

proptest! {
    /// The changes always add up to the content of the listings, except for objects that were missing only once.
    #[test]
    fn changes_amount_to_the_listings(
        listings in proptest::collection::vec(proptest::collection::btree_map(0..6_u8, 0..3_u8, 0..6), 1..12)
    ) {
        let mut known = Known::default();
        let mut told = std::collections::BTreeMap::new();
        let mut before = BTreeSet::new();
        for listing in listings {
            let listed: Vec<_> =
                listing.iter().map(|(name, tag)| meta(&name.to_string(), Some(&tag.to_string()), None, 1, 1)).collect();
            for (kind, path) in list(&mut known, &listed) {
                let name: u8 = path.parse().unwrap();
                let was = match kind {
                    ChangeKind::Removed => told.remove(&name),
                    _ => told.insert(name, listing[&name]),
                };
                prop_assert_eq!(was.is_none(), kind == ChangeKind::Added);
            }
            let there: BTreeSet<u8> = listing.keys().copied().collect();
            for (name, tag) in &told {
                prop_assert!(listing.get(name) == Some(tag) || (!there.contains(name) && before.contains(name)));
            }
            prop_assert!(there.iter().all(|name| told.contains_key(name)));
            before = there;
        }
    }
}
