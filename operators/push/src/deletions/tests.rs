use std::{collections::HashSet, sync::Arc};

use jiff::Timestamp;

use super::*;
use crate::{
    bindings::{ParsedSpec, WatchedObject},
    object::ObjectRef,
    spec::DeletionPolicy,
};

fn key(kind: Kind, name: &str) -> ObjectRef {
    ObjectRef { kind, namespace: "shop".to_owned(), name: name.to_owned() }
}

/// An object that requests nothing any more. Its record has a path.
fn leaving(key: &ObjectRef, deletion: Option<DeletionPolicy>) -> (WatchedObject, Record) {
    let mut record = Record::new(&format!("uid-{}", key.name), Timestamp::UNIX_EPOCH);
    record.paths.insert(format!("secret/data/{}", key.name), Written { written: true, ..Written::default() });
    let object = WatchedObject {
        key: key.clone(),
        uid: record.uid.clone(),
        version: "1".to_owned(),
        spec: ParsedSpec::Nothing { deletion, grace: None },
        deleting: None,
        finalizer: true,
        generation: None,
        record: Some(record.text()),
    };
    (object, record)
}

fn deletions(bindings: &Arc<Bindings>) -> Deletions {
    Deletions::new(Some(DeletionBudget::default()), Duration::ZERO, Arc::clone(bindings), Arc::default())
}

fn check(deletions: &Deletions, kind: Kind, record: &Record) -> Result<(), Held> {
    record.paths.keys().try_for_each(|path| deletions.check(&key(kind, ""), &record.uid, path, false))
}

fn waiting(deletions: &Deletions) -> Option<usize> {
    deletions.stopped().map(|stopped| stopped.waiting)
}

/// Seven objects of each kind have left their paths before this process began.
fn left(bindings: &Bindings, kinds: &[Kind]) -> Vec<(Kind, Record)> {
    let mut records = Vec::new();
    for &kind in kinds {
        for number in 0..7 {
            let (object, record) = leaving(&key(kind, &format!("{}-{number}", kind.plural())), None);
            bindings.apply(object);
            records.push((kind, record));
        }
    }
    records
}

#[test]
fn a_process_that_has_just_begun_counts_what_was_left_before_it_deletes_anything() {
    let bindings = Arc::new(Bindings::default());
    let deletions = deletions(&bindings);
    let records = left(&bindings, &[Kind::Secret, Kind::VaultPush]);
    bindings.missing(Kind::Secret, &HashSet::new());
    let checked = |of: Kind| {
        let checked =
            records.iter().filter(|(kind, _)| *kind == of).map(|(kind, record)| check(&deletions, *kind, record));
        checked.collect::<Vec<_>>()
    };
    assert_eq!(checked(Kind::Secret), vec![Err(Held::Uncounted); 7], "the list of orphans is not read");
    deletions.begin(false);
    let namespaces = vec!["shop".to_owned()];
    let stopped = Stopped {
        namespaces,
        requested: 7,
        elsewhere: 0,
        waiting: 7,
        allowed: 5,
        known: 14,
        by_earlier_process: false,
    };
    assert_eq!(checked(Kind::Secret), vec![Err(Held::Stopped(stopped.clone())); 7]);
    assert_eq!(checked(Kind::VaultPush), vec![Err(Held::Uncounted); 7], "not all of them are known");
    bindings.missing(Kind::VaultPush, &HashSet::new());
    let stopped = Stopped { requested: 14, waiting: 14, ..stopped };
    assert_eq!(checked(Kind::VaultPush), vec![Err(Held::Stopped(stopped)); 7], "the first counts all of its kind");
}

/// A user can forge a record with many paths.
#[test]
fn a_mass_in_one_namespace_does_not_stop_the_deletions_of_another() {
    let bindings = Arc::new(Bindings::default());
    let deletions = deletions(&bindings);
    let forger = ObjectRef { namespace: "forger".to_owned(), ..key(Kind::Secret, "forged") };
    let (mut object, mut record) = leaving(&forger, None);
    for number in 0..100 {
        let written = Written { written: true, ..Written::default() };
        record.paths.insert(format!("secret/data/forger/{number}"), written);
    }
    object.record = Some(record.text());
    bindings.apply(object);
    let (object, few) = leaving(&key(Kind::Secret, "db"), None);
    bindings.apply(object);
    bindings.missing(Kind::Secret, &HashSet::new());
    deletions.begin(false);
    let checked = deletions.check(&forger, &record.uid, "secret/data/forger/1", false);
    assert!(matches!(&checked, Err(Held::Stopped(stopped)) if stopped.namespaces == ["forger"]), "{checked:?}");
    assert_eq!(check(&deletions, Kind::Secret, &few), Ok(()));
}

#[test]
fn what_was_stopped_before_a_restart_stays_stopped() {
    for was_stopped in [false, true] {
        let bindings = Arc::new(Bindings::default());
        let deletions = deletions(&bindings);
        let (object, record) = leaving(&key(Kind::Secret, "db"), None);
        bindings.apply(object);
        bindings.missing(Kind::Secret, &HashSet::new());
        deletions.begin(was_stopped);
        assert_eq!(check(&deletions, Kind::Secret, &record).is_err(), was_stopped);
        assert_eq!(deletions.approve(), 1);
        assert_eq!(check(&deletions, Kind::Secret, &record), Ok(()), "it is approved");
    }
}

#[test]
fn what_is_kept_handed_over_requested_again_or_unknown_is_no_deletion() {
    let bindings = Arc::new(Bindings::default());
    let deletions = deletions(&bindings);
    let records = left(&bindings, &[Kind::Secret]);
    let owner = key(Kind::Secret, "secrets-0");
    bindings.missing(Kind::Secret, &HashSet::new());
    for number in 0..7 {
        bindings.apply(leaving(&key(Kind::Deployment, &number.to_string()), Some(DeletionPolicy::Keep)).0);
    }
    bindings.missing(Kind::Deployment, &HashSet::new());
    deletions.begin(false);
    assert_eq!(waiting(&deletions), Some(7), "those that are kept do not count");
    let mut gone = records[0].1.clone();
    gone.leave(Timestamp::UNIX_EPOCH);
    deletions.follow(&owner, &gone, |_, _| true);
    assert_eq!(waiting(&deletions), Some(6), "another object gets its path");
    deletions.follow(&owner, &gone, |_, _| false);
    assert_eq!(waiting(&deletions), Some(7), "it does not after all");
    deletions.follow(&owner, &records[0].1, |_, _| false);
    assert_eq!(waiting(&deletions), Some(6), "it requests its path again");
    deletions.forget_unless(|uid| uid != records[1].1.uid);
    assert_eq!(waiting(&deletions), None, "one is gone");
}

#[test]
fn begun_writes_of_gone_objects_count_until_they_are_cleared() {
    let bindings = Arc::new(Bindings::default());
    let deletions = deletions(&bindings);
    deletions.begin(false);
    let gone = key(Kind::Secret, "gone");
    let records: Vec<_> = (0..6).map(|number| leaving(&key(Kind::Secret, &number.to_string()), None).1).collect();
    for record in &records {
        deletions.abandon(&gone, record, |_, _| false);
    }
    deletions.forget_unless(|_| false);
    assert_eq!(waiting(&deletions), Some(6), "the journal has them");
    let path = records[0].paths.keys().next().unwrap();
    assert!(deletions.check(&gone, &records[0].uid, path, true).is_err());
    deletions.abandon(&gone, &records[0], |_, _| true);
    assert_eq!(waiting(&deletions), None, "another object gets the path");
    deletions.abandon(&gone, &records[0], |_, _| false);
    deletions.resume(&records[0].uid);
    deletions.forget_unless(|_| false);
    assert_eq!(waiting(&deletions), None, "nothing of it is left");
}

#[test]
fn without_a_budget_nothing_waits_to_be_counted() {
    let bindings = Arc::new(Bindings::default());
    let deletions = Deletions::new(None, Duration::ZERO, Arc::clone(&bindings), Arc::default());
    for (kind, record) in left(&bindings, &[Kind::Secret]) {
        assert_eq!(check(&deletions, kind, &record), Ok(()));
    }
    assert!(deletions.has_begun());
}
