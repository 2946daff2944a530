use std::collections::BTreeMap;

use konverge_core::SecretValue;
use konverge_vault::Secret;

use super::*;

fn content(value: &str) -> Content {
    Content::from_iter([("k".to_owned(), SecretValue::from(value.to_owned()))])
}

fn owner(name: &str, uid: &str) -> Owner {
    let owned = str::to_owned;
    Owner { prefix: owned("vault-sync.io"), name: owned(name), uid: owned(uid), instance: owned("one") }
}

fn version(number: u64, mark: Option<Owner>) -> VersionState {
    let mark = mark.map(|owner| owner.mark().unwrap()).unwrap_or_default();
    VersionState {
        number,
        created: "then".to_owned(),
        deletion: None,
        destroyed: false,
        age: None,
        custom_metadata: mark.into_iter().filter_map(|(key, value)| Some((key, value?))).collect::<BTreeMap<_, _>>(),
    }
}

fn live(value: &str, mark: Option<Owner>) -> Found {
    Found::Live(Secret { content: content(value), version: Some(version(3, mark)) })
}

fn unversioned(value: &str) -> Found {
    Found::Live(Secret { content: content(value), version: None })
}

/// Recorded in the version that [`live`] has.
const WRITTEN: Claim = Claim::Written(Some(3));

/// The same of another version.
const REPLACED: Claim = Claim::Written(Some(2));

fn us() -> Owner {
    owner("shop/Secret/db", "1")
}

fn step(found: &Found, claim: Claim, existing: ExistingPolicy) -> Result<Step, Refusal> {
    plan(&content("new"), found, &us(), claim, existing, Known::Changed)
}

const WRITE: Step = Step::Write { expected: Expected::Version(3), mark: false, adopted: false, drifted: false };

#[test]
fn what_is_to_be_done_about_what_is_there() {
    use Claim::{Intended, New};
    use ExistingPolicy::{Adopt, Refuse};
    let write = |expected, mark, adopted| Ok(Step::Write { expected, mark, adopted, drifted: false });
    let predecessor = || Some(owner("shop/Secret/db", "0"));
    for (name, found, claim, existing, expected) in [
        ("a new path", Found::Absent, New, Refuse, write(Expected::Absent, true, false)),
        ("in sync", live("new", Some(us())), WRITTEN, Refuse, Ok(Step::Nothing)),
        ("changed here", live("old", Some(us())), WRITTEN, Refuse, Ok(WRITE)),
        ("changed here, and the record lags behind", live("old", Some(us())), REPLACED, Refuse, Ok(WRITE)),
        ("ours, but our record is lost", live("old", Some(us())), New, Refuse, Ok(WRITE)),
        ("a write without its mark", live("new", None), Intended, Refuse, Ok(Step::Mark)),
        ("the mark was taken away", live("new", None), WRITTEN, Refuse, Ok(Step::Mark)),
        ("without a mark, changed here", live("old", None), WRITTEN, Refuse, write(Expected::Version(3), true, false)),
        ("somebody's instead of ours", live("old", None), REPLACED, Refuse, Err(Refusal::Existing)),
        (
            "somebody's instead, to be taken over",
            live("old", None),
            REPLACED,
            Adopt,
            write(Expected::Version(3), true, true),
        ),
        ("somebody's instead, equal", live("new", None), REPLACED, Refuse, Ok(Step::Mark)),
        ("made anew under its name", live("new", predecessor()), New, Refuse, Ok(Step::Mark)),
        ("somebody's, to be taken over", live("old", None), Intended, Adopt, write(Expected::Version(3), true, true)),
        ("somebody's, equal", live("new", None), New, Adopt, Ok(Step::Mark)),
        ("somebody's, not to be taken over", live("old", None), Intended, Refuse, Err(Refusal::Existing)),
        ("deleted, nobody's", Found::Deleted(version(3, None)), New, Refuse, write(Expected::Version(3), true, false)),
        ("deleted, ours", Found::Deleted(version(3, Some(us()))), WRITTEN, Refuse, Ok(WRITE)),
        ("without versions, in sync", unversioned("new"), Claim::Written(None), Refuse, Ok(Step::Nothing)),
        ("without versions, ours", unversioned("old"), Claim::Written(None), Refuse, write(Expected::Any, true, false)),
        ("without versions, somebody's", unversioned("old"), New, Refuse, Err(Refusal::Existing)),
    ] {
        assert_eq!(step(&found, claim, existing), expected, "{name}");
    }
}

#[test]
fn w7_what_is_kept_for_another_is_left_alone_whatever_is_recorded() {
    for claim in [Claim::New, Claim::Intended, WRITTEN] {
        for value in ["new", "old"] {
            let found = live(value, Some(owner("shop/Secret/other", "2")));
            let refused = step(&found, claim, ExistingPolicy::Adopt);
            assert_eq!(refused, Err(Refusal::Foreign("shop/Secret/other".to_owned())));
            assert_eq!(plan_deletion(&found, &us(), claim, None, Deletion::Metadata), DeletionPlan::Forget);
        }
    }
}

#[test]
fn drift_is_a_difference_that_did_not_come_from_here() {
    let drifted = |claim, known, found: &Found| {
        let step = plan(&content("new"), found, &us(), claim, ExistingPolicy::Adopt, known);
        matches!(step, Ok(Step::Write { drifted: true, .. }))
    };
    let (edited, deleted) = (live("edited", Some(us())), Found::Deleted(version(4, Some(us()))));
    assert!(drifted(WRITTEN, Known::Same, &edited));
    assert!(drifted(WRITTEN, Known::Same, &deleted));
    assert!(drifted(WRITTEN, Known::Same, &Found::Absent));
    assert!(!drifted(WRITTEN, Known::Changed, &edited));
    assert!(!drifted(Claim::Intended, Known::Same, &edited));
}

#[test]
fn what_somebody_wrote_just_now_is_left_alone_until_it_could_be_marked() {
    use Claim::{Intended, New};
    let aged = |value: &str, mark, seconds| {
        let version = VersionState { age: Some(Duration::from_secs(seconds)), ..version(3, mark) };
        Found::Live(Secret { content: content(value), version: Some(version) })
    };
    let wait = |seconds| Ok(Step::Wait(Duration::from_secs(seconds)));
    for (name, found, claim, expected) in [
        ("to be taken over", aged("old", None, 0), Intended, wait(5)),
        ("and it is equal", aged("new", None, 1), Intended, wait(4)),
        ("instead of ours", aged("old", None, 2), REPLACED, wait(3)),
        ("ours, in a version that is recorded", aged("new", None, 0), WRITTEN, Ok(Step::Mark)),
        ("marked", aged("old", Some(us()), 0), New, Ok(WRITE)),
        ("long enough ago", aged("new", None, 5), Intended, Ok(Step::Mark)),
    ] {
        assert_eq!(step(&found, claim, ExistingPolicy::Adopt), expected, "{name}");
    }
    let once = |found: &Found, claim| plan_once(&content("new"), found, &us(), claim);
    assert_eq!(once(&aged("new", None, 0), Intended), wait(5));
    assert_eq!(once(&aged("new", None, 5), Intended), Ok(Step::Mark));
    assert_eq!(once(&aged("old", None, 0), New), Ok(Step::Leave { ours: false, mark: false }));
}

#[test]
fn a_first_version_that_came_after_it_was_begun_is_ours() {
    let begun = |text: &str| Claim::Begun(text.parse().unwrap());
    let first = |number| {
        let created = "2026-11-22T10:00:00.5Z".to_owned();
        let version = VersionState { number, created, ..version(1, None) };
        Found::Live(Secret { content: content("old"), version: Some(version) })
    };
    let ours = Ok(Step::Write { expected: Expected::Version(1), mark: true, adopted: false, drifted: false });
    for (name, found, claim, expected, farewelled) in [
        ("after", first(1), begun("2026-11-22T10:00:00Z"), ours.clone(), DeletionPlan::Delete),
        ("by a clock that is behind", first(1), begun("2026-11-22T10:00:03Z"), ours, DeletionPlan::Delete),
        ("before", first(1), begun("2026-11-22T10:01:00Z"), Err(Refusal::Existing), DeletionPlan::Report),
        ("a later version", first(2), begun("2026-11-22T10:00:00Z"), Err(Refusal::Existing), DeletionPlan::Report),
        ("at no time", live("old", None), begun("2026-11-22T10:00:00Z"), Err(Refusal::Existing), DeletionPlan::Report),
        ("nobody has tried", first(1), Claim::Intended, Err(Refusal::Existing), DeletionPlan::Forget),
    ] {
        assert_eq!(step(&found, claim, ExistingPolicy::Refuse), expected, "{name}");
        assert_eq!(plan_deletion(&found, &us(), claim, None, Deletion::Soft), farewelled, "{name}");
    }
    let foreign = live("old", Some(owner("shop/Secret/other", "2")));
    assert_eq!(
        plan_deletion(&foreign, &us(), begun("2026-11-22T10:00:00Z"), None, Deletion::Soft),
        DeletionPlan::Forget
    );
}

#[test]
fn what_becomes_of_a_path_that_is_not_wanted() {
    use Claim::Intended;
    let made = content("made");
    for (name, found, claim, deletion, expected) in [
        ("not there", Found::Absent, WRITTEN, Deletion::Soft, DeletionPlan::Forget),
        ("ours", live("x", Some(us())), WRITTEN, Deletion::Soft, DeletionPlan::Delete),
        ("ours, and the record lags behind", live("x", Some(us())), REPLACED, Deletion::Soft, DeletionPlan::Delete),
        ("ours, by its mark alone", live("x", Some(us())), Intended, Deletion::Soft, DeletionPlan::Delete),
        ("written, the mark is not allowed", live("x", None), WRITTEN, Deletion::Soft, DeletionPlan::Delete),
        ("written, and somebody wrote it instead", live("x", None), REPLACED, Deletion::Soft, DeletionPlan::Report),
        (
            "the same, and deleted by them",
            Found::Deleted(version(3, None)),
            REPLACED,
            Deletion::Destroy,
            DeletionPlan::Forget,
        ),
        (
            "begun, and it is what we would have made",
            live("made", None),
            Intended,
            Deletion::Soft,
            DeletionPlan::Delete,
        ),
        ("begun, and somebody else's", live("x", None), Intended, Deletion::Soft, DeletionPlan::Forget),
        ("deleted", Found::Deleted(version(3, Some(us()))), WRITTEN, Deletion::Soft, DeletionPlan::Unmark),
        (
            "deleted, with older versions",
            Found::Deleted(version(3, Some(us()))),
            WRITTEN,
            Deletion::Destroy,
            DeletionPlan::Delete,
        ),
        ("without versions", unversioned("x"), Claim::Written(None), Deletion::Soft, DeletionPlan::Delete),
        ("without versions, somebody else's", unversioned("x"), Intended, Deletion::Soft, DeletionPlan::Forget),
    ] {
        assert_eq!(plan_deletion(&found, &us(), claim, Some(&made), deletion), expected, "{name}");
    }
    assert_eq!(plan_deletion(&live("made", None), &us(), Intended, None, Deletion::Soft), DeletionPlan::Forget);
}

#[test]
fn p16_what_is_there_is_left_alone_whoever_wrote_it() {
    use Claim::{Intended, New};
    let write = |expected, mark, drifted| Ok(Step::Write { expected, mark, adopted: false, drifted });
    let leave = |ours, mark| Ok(Step::Leave { ours, mark });
    let foreign = Some(owner("shop/Secret/other", "2"));
    for (name, found, claim, expected) in [
        ("nothing there", Found::Absent, New, write(Expected::Absent, true, false)),
        ("deleted by somebody", Found::Deleted(version(3, None)), New, write(Expected::Version(3), true, false)),
        ("ours, deleted", Found::Deleted(version(3, Some(us()))), WRITTEN, write(Expected::Version(3), false, true)),
        ("ours, as it was made", live("new", Some(us())), WRITTEN, Ok(Step::Nothing)),
        ("ours, the Secret changed since", live("old", Some(us())), WRITTEN, leave(true, false)),
        ("ours, the mark was taken away", live("old", None), WRITTEN, leave(true, true)),
        ("somebody's instead of ours", live("old", None), REPLACED, leave(false, false)),
        ("a write without its mark", live("new", None), Intended, Ok(Step::Mark)),
        ("somebody's", live("old", None), Intended, leave(false, false)),
        ("somebody's, equal", live("new", None), New, leave(false, false)),
        ("another's", live("new", foreign), New, Err(Refusal::Foreign("shop/Secret/other".to_owned()))),
    ] {
        assert_eq!(plan_once(&content("new"), &found, &us(), claim), expected, "{name}");
    }
}

#[test]
fn who_wants_all_of_a_path_leaves_it_to_those_who_keep_keys_there() {
    let mut state = version(3, None);
    state.custom_metadata.insert("vault-sync.io/key/k".to_owned(), "shop/VaultPush/other 2 one".to_owned());
    let found = Found::Live(Secret { content: content("old"), version: Some(state) });
    let refused = step(&found, WRITTEN, ExistingPolicy::Adopt);
    assert_eq!(refused, Err(Refusal::Foreign("shop/VaultPush/other".to_owned())));
    assert_eq!(plan_deletion(&found, &us(), WRITTEN, None, Deletion::Soft), DeletionPlan::Forget);
}

#[test]
fn what_a_record_counts_for() {
    let written = Written { written: true, version: Some(3), ..Written::default() };
    let keys = Written { keys: Some([].into()), ..written.clone() };
    let left = Written { left: true, ..Written::default() };
    let intended = Written::default();
    let since = Timestamp::UNIX_EPOCH;
    let begun = Written { begun: Some(since), ..Written::default() };
    for (recorded, replaced, once) in [
        (None, Claim::Intended, Claim::New),
        (Some(&intended), Claim::Intended, Claim::Intended),
        (Some(&begun), Claim::Begun(since), Claim::Begun(since)),
        (Some(&left), Claim::Intended, Claim::New),
        (Some(&keys), Claim::Intended, Claim::Intended),
        (Some(&written), WRITTEN, WRITTEN),
    ] {
        assert_eq!(Claim::of(UpdatePolicy::Replace, recorded), replaced, "{recorded:?}");
        assert_eq!(Claim::of(UpdatePolicy::IfNotExists, recorded), once, "{recorded:?}");
    }
}
