use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use konverge_core::digest::DigestKey;
use konverge_workload::Need;
use prometheus_client::{encoding::text::encode, registry::Registry};

use konverge_vault::{KvVersion, Mount, SecretPath};

use super::*;
use crate::{
    annotations::parse_spec,
    composition::{Composition, Secrets},
    desired::Wanted,
    record::{SYNCED, Written},
};

/// Seconds that a test takes at most.
const SOON: i64 = 60;

fn key(name: &str) -> ObjectRef {
    ObjectRef { kind: Kind::Deployment, namespace: "shop".to_owned(), name: name.to_owned() }
}

fn secret(name: &str) -> SecretRef {
    SecretRef { namespace: "shop".to_owned(), name: name.to_owned() }
}

/// A workload that uses these Secrets.
fn object(name: &str, secrets: &[&str]) -> WatchedObject {
    let annotations = BTreeMap::from([("vault-sync.io/path".to_owned(), format!("secret/data/{name}"))]);
    let spec = parse_spec(&annotations).unwrap().unwrap();
    let names = secrets.iter().map(|name| ((*name).to_owned(), Need::Required)).collect();
    WatchedObject {
        key: key(name),
        uid: format!("uid-{name}"),
        version: "1".to_owned(),
        spec: ParsedSpec::Push(Arc::new(Push { spec, wanted: Wanted::Each(names) })),
        deleting: None,
        finalizer: false,
        generation: None,
        record: None,
    }
}

fn verified(sources: &[(&str, Option<&str>)]) -> Verified {
    Verified {
        sources: sources.iter().map(|(name, version)| ((*name).to_owned(), version.map(str::to_owned))).collect(),
        marked: true,
        sync_now: None,
        looked: Instant::now(),
        expires: None,
        seen: BTreeMap::new(),
    }
}

/// A write that was answered at once.
fn write(binding: &mut Binding, record: Record, version: String) {
    binding.expect(&record);
    binding.recorded(record, version);
}

#[test]
fn a_record_of_a_path_that_is_not_its_namespaces_keeps_nobody_from_it() {
    let bindings = Bindings::within(vec!["*=secret/data/{namespace}/*".parse().unwrap()], None, ReasonGauge::default());
    let mount = Mount::new("secret", KvVersion::Two);
    let mut record = Record::new("uid-a", Timestamp::UNIX_EPOCH);
    for path in ["secret/data/shop/x", "secret/data/team-b/x"] {
        let location = mount.location(&SecretPath::parse(path).unwrap()).unwrap();
        record.paths.insert(path.to_owned(), Written::intended(&location));
    }
    bindings.apply(WatchedObject { record: Some(record.text()), ..object("a", &[]) });
    let other = ObjectRef { namespace: "team-b".to_owned(), ..key("b") };
    assert_eq!(bindings.claim(&other, "secret/data/team-b/x", Share::Whole), Ok(()), "anybody can write such a record");
    assert_eq!(bindings.claim(&key("c"), "secret/data/shop/x", Share::Whole), Err(key("a")));
}

#[test]
fn each_object_counts_under_the_reason_of_its_state_until_it_goes() {
    let (reasons, mut registry) = (ReasonGauge::default(), Registry::default());
    reasons.register(&mut registry, "bindings", "Objects by reason");
    let bindings = Bindings::within(Vec::new(), None, reasons);
    let count = |registry: &Registry, reason: &str| {
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        let series = format!("bindings{{reason=\"{reason}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&series)).map_or(0, |count| count.parse::<i64>().unwrap())
    };
    let state = |name: &str, reason| {
        let binding = bindings.get(&key(name)).unwrap();
        bindings.update_if_current(&key(name), &binding, |now| now.announced.reason = Some(reason));
        binding
    };
    for name in ["a", "b"] {
        bindings.apply(object(name, &["db"]));
        state(name, "Synced");
    }
    state("a", "Synced");
    assert_eq!(count(&registry, "Synced"), 2);
    let begun = state("b", "Paused");
    assert_eq!((count(&registry, "Synced"), count(&registry, "Paused")), (1, 1));
    bindings.apply(WatchedObject { uid: "another".to_owned(), ..object("b", &["db"]) });
    assert_eq!(count(&registry, "Paused"), 1, "another object of the same name, as long as nothing is stated about it");
    bindings.on_object(&key("b"), &begun.uid, |now| now.announced.reason = Some("Synced"));
    assert_eq!(count(&registry, "Paused"), 1, "a run for the earlier object counts no more");
    bindings.remove(&key("b"));
    assert_eq!((count(&registry, "Synced"), count(&registry, "Paused")), (1, 0));
}

#[test]
fn only_what_concerns_us_is_work() {
    let bindings = Bindings::default();
    assert!(bindings.apply(object("a", &["db"])), "new");
    assert!(!bindings.apply(WatchedObject { version: "2".to_owned(), ..object("a", &["db"]) }), "scaled");
    assert!(bindings.apply(object("a", &["db", "api"])), "another reference");
    assert!(
        bindings.apply(WatchedObject { deleting: Some(Timestamp::UNIX_EPOCH), ..object("a", &["db", "api"]) }),
        "deleted"
    );
    assert!(bindings.apply(WatchedObject { uid: "another".to_owned(), ..object("a", &["db"]) }), "made anew");
}

#[test]
fn the_echo_of_our_own_record_is_no_work_and_somebody_elses_edit_is() {
    let bindings = Bindings::default();
    bindings.apply(object("a", &["db"]));
    let before = bindings.get(&key("a")).unwrap();
    let mut record = Record::new("uid-a", Timestamp::UNIX_EPOCH);
    bindings.update_if_current(&key("a"), &before, |binding| write(binding, record.clone(), "2".to_owned()));
    let echo = WatchedObject { version: "2".to_owned(), record: Some(record.text()), ..object("a", &["db"]) };
    assert!(!bindings.apply(echo.clone()));
    assert!(!bindings.apply(WatchedObject { version: "3".to_owned(), ..echo }), "a change of something else");
    record.say(SYNCED, Some("edited".to_owned()), Timestamp::UNIX_EPOCH);
    assert!(bindings.apply(WatchedObject { record: Some(record.text()), ..object("a", &["db"]) }));
    assert!(bindings.apply(object("a", &["db"])), "taken away");
    assert!(bindings.get(&key("a")).unwrap().record.is_some(), "and not forgotten");
}

#[tokio::test(start_paused = true)]
async fn who_takes_the_record_again_and_again_is_contradicted_later_and_later() {
    let bindings = Bindings::default();
    bindings.apply(object("a", &["db"]));
    let binding = || bindings.get(&key("a")).unwrap();
    let mut record = Record::new("uid-a", Timestamp::UNIX_EPOCH);
    record.say(SYNCED, None, Timestamp::UNIX_EPOCH);
    let bear = || {
        bindings.on_object(&key("a"), "uid-a", |now| write(now, record.clone(), "2".to_owned()));
        bindings.apply(WatchedObject { version: "2".to_owned(), record: Some(record.text()), ..object("a", &["db"]) });
        bindings.update_if_current(&key("a"), &binding(), |now| {
            now.verify(&now.clone(), BTreeMap::new(), Some(verified(&[])));
        });
    };
    let tell = || {
        let mut told = false;
        bindings.on_object(&key("a"), "uid-a", |now| told = now.must_report_reverts());
        told
    };
    for (turn, (pause, told)) in
        [(None, false), (None, false), (None, false), (Some(1), true), (Some(2), false), (Some(4), false)]
            .into_iter()
            .enumerate()
    {
        bear();
        assert_eq!(binding().left_until(), None, "{turn}: it is there");
        assert!(bindings.apply(object("a", &["db"])), "{turn}: taken away");
        let rest = binding().left_until().map(|until| until - Instant::now());
        assert_eq!((rest, tell()), (pause.map(Duration::from_secs), told), "{turn}");
        assert_eq!(binding().record.as_ref(), Some(&record), "{turn}: it holds");
        assert_eq!(binding().verified.is_some(), pause.is_some(), "{turn}: who goes on says nothing of Vault");
        tokio::time::advance(rest.unwrap_or_default()).await;
        assert_eq!(binding().left_until(), None, "{turn}: its turn");
    }
    // A longer pause than any: it is over.
    tokio::time::advance(Duration::from_mins(6)).await;
    bear();
    assert!(bindings.apply(object("a", &["db"])) && binding().left_until().is_none() && !tell());
}

#[test]
fn when_it_was_looked_at_is_noted_with_what_is_written_anyway_and_asks_for_no_write() {
    let bindings = Bindings::default();
    bindings.apply(object("a", &["db"]));
    let now = Timestamp::from_second(1_000).unwrap();
    let begun = bindings.get(&key("a")).unwrap();
    let record = Record::new("uid-a", Timestamp::UNIX_EPOCH);
    assert_eq!(begun.dated(&record, now).verified, None, "nothing is known");
    bindings.update_if_current(&key("a"), &begun, |now| now.verify(&begun, BTreeMap::new(), Some(verified(&[]))));
    let binding = bindings.get(&key("a")).unwrap();
    let dated = binding.dated(&record, now);
    let ago = now.duration_since(dated.verified.unwrap()).as_secs();
    assert!((0..=SOON).contains(&ago), "{ago}");
    bindings.on_object(&key("a"), "uid-a", |now| write(now, dated.clone(), "2".to_owned()));
    let later = bindings.get(&key("a")).unwrap();
    assert!(later.bears_its_record() && later.bears(&dated), "a later look changes nothing of that");
    let after_a_restart = begun.dated(&dated, now);
    assert_eq!(after_a_restart.verified, dated.verified, "what was noted before stays");
}

#[test]
fn the_oldest_look_is_that_of_those_that_are_looked_at_again() {
    let looked_at = |name: &str, interval: Option<&str>, second: Option<i64>| {
        let mut shown = object(name, &[]);
        if let ParsedSpec::Push(push) = &mut shown.spec {
            let mut push = Push::clone(push);
            push.spec.every = interval.map(|_| Duration::from_secs(30));
            shown.spec = ParsedSpec::Push(Arc::new(push));
        }
        let mut record = Record::new(&shown.uid, Timestamp::UNIX_EPOCH);
        record.verified = second.map(|second| Timestamp::now() - SignedDuration::from_secs(second));
        WatchedObject { record: Some(record.text()), ..shown }
    };
    let bindings = Bindings::default();
    assert_eq!(bindings.oldest_look(), Duration::ZERO);
    for (name, interval, second, oldest) in [
        ("never", None, Some(5_000), 0),
        ("unknown", Some("30s"), None, 0),
        ("late", Some("30s"), Some(500), 500),
        ("early", Some("30s"), Some(50), 500),
    ] {
        bindings.apply(looked_at(name, interval, second));
        let found = bindings.oldest_look().as_secs();
        assert!((oldest..=oldest + SOON as u64).contains(&found), "{name}: {found}");
    }
    let begun = bindings.get(&key("late")).unwrap();
    bindings.update_if_current(&key("late"), &begun, |now| now.verify(&begun, BTreeMap::new(), Some(verified(&[]))));
    let found = bindings.oldest_look().as_secs();
    assert!((50..=50 + SOON as u64).contains(&found), "it was looked at: {found}");
}

#[test]
fn what_is_refused_begins_anew_when_the_object_or_a_secret_of_it_changes() {
    let bindings = Bindings::default();
    bindings.apply(object("a", &["db"]));
    bindings.secret_was(&secret("db"), Some("1"));
    let now = || bindings.get(&key("a")).unwrap();
    let refuse = || {
        let begun = now();
        bindings.update_if_current(&key("a"), &begun, |now| now.failed(&begun, begun.failures.after(true)));
        bindings.get(&key("a")).unwrap().failures.refusals
    };
    assert_eq!([refuse(), refuse()], [1, 2]);
    let begun = now();
    bindings.secret_is(&secret("db"), Some("2"), &BTreeMap::new());
    bindings.update_if_current(&key("a"), &begun, |now| now.failed(&begun, begun.failures.after(true)));
    assert_eq!(now().failures.refusals, 0, "it changed while the run was under way");
    assert_eq!([refuse(), refuse()], [1, 2]);
    bindings.apply(object("a", &["db", "api"]));
    assert_eq!(now().failures.refusals, 0, "it asks for something else");
}

#[test]
fn a_watch_that_is_behind_our_own_writes_takes_nothing_back() {
    let bindings = Bindings::default();
    bindings.apply(object("a", &["db"]));
    let before = bindings.get(&key("a")).unwrap();
    let first = Record::new("uid-a", Timestamp::UNIX_EPOCH);
    let mut second = first.clone();
    second.say(SYNCED, None, Timestamp::UNIX_EPOCH);
    for record in [&first, &second] {
        bindings.update_if_current(&key("a"), &before, |binding| write(binding, record.clone(), "2".to_owned()));
    }
    for record in [&first, &second] {
        assert!(!bindings.apply(WatchedObject { record: Some(record.text()), ..object("a", &["db"]) }));
        let binding = bindings.get(&key("a")).unwrap();
        assert!(binding.bears(&second) && binding.record.as_ref() == Some(&second));
    }
    assert!(
        bindings.apply(WatchedObject { record: Some(first.text()), ..object("a", &["db"]) }),
        "somebody put it back"
    );
    assert!(!bindings.get(&key("a")).unwrap().bears(&second));
}

#[test]
fn records_that_a_watch_shows_late_or_before_their_answer_are_ours() {
    let bindings = Bindings::default();
    bindings.apply(object("a", &["db"]));
    let before = bindings.get(&key("a")).unwrap();
    let record = |state: &str| {
        let mut record = Record::new("uid-a", Timestamp::UNIX_EPOCH);
        record.say(state, None, Timestamp::UNIX_EPOCH);
        record
    };
    let show = |version: &str, state: &str| {
        let record = Some(record(state).text());
        bindings.apply(WatchedObject { version: version.to_owned(), record, ..object("a", &["db"]) })
    };
    bindings.update_if_current(&key("a"), &before, |binding| binding.expect(&record("one")));
    assert!(!show("2", "one"), "before the answer");
    bindings.update_if_current(&key("a"), &before, |binding| binding.recorded(record("one"), "2".to_owned()));
    bindings.update_if_current(&key("a"), &before, |binding| write(binding, record("two"), "3".to_owned()));
    assert!(!show("2", "one"), "late");
    assert_eq!(bindings.get(&key("a")).unwrap().version(), "3", "the newer one is known");
    assert!(!show("3", "two"));
    assert!(!show("4", "two"));
    assert_eq!(bindings.get(&key("a")).unwrap().version(), "4");
    bindings.update_if_current(&key("a"), &before, |binding| {
        binding.expect(&record("three"));
    });
    assert!(!show("5", "two"), "somebody changed something else");
    bindings.on_object(&key("a"), "uid-a", |binding| binding.expect_no_more(&record("three")));
    assert_eq!(bindings.get(&key("a")).unwrap().version(), "5", "what the next write has to name");
    bindings.update_if_current(&key("a"), &before, |binding| binding.expect(&record("four")));
    assert!(!show("6", "four"));
    assert!(bindings.apply(WatchedObject { version: "7".to_owned(), ..object("a", &["db"]) }), "taken away again");
    bindings.update_if_current(&key("a"), &before, |binding| binding.recorded(record("four"), "6".to_owned()));
    let now = bindings.get(&key("a")).unwrap();
    assert!(!now.bears(&record("four")) && now.version() == "7", "an answer that is late changes nothing of that");
    assert!(!bindings.get(&key("a")).unwrap().bears(&record("three")), "it was not written");
}

/// A policy changes another field of the status. The watch shows the write before the response or after it.
#[test]
fn a_record_beside_which_admission_changed_something_is_written_again() {
    for is_shown_first in [true, false] {
        let bindings = Bindings::default();
        bindings.apply(object("a", &["db"]));
        let record = Record::new("uid-a", Timestamp::UNIX_EPOCH);
        let now = || bindings.get(&key("a")).unwrap();
        let write = |version: &str, answer: fn(&mut Binding, Record, String)| {
            let show = || {
                let shown = WatchedObject { record: Some(record.text()), ..object("a", &["db"]) };
                bindings.apply(WatchedObject { version: version.to_owned(), ..shown })
            };
            bindings.on_object(&key("a"), "uid-a", |binding| binding.expect(&record));
            let is_change = is_shown_first && show();
            bindings.on_object(&key("a"), "uid-a", |binding| answer(binding, record.clone(), version.to_owned()));
            assert!(!is_change && (is_shown_first || !show()), "it is the operator's own write");
        };
        for version in ["2", "3"] {
            write(version, Binding::altered);
            assert!(!now().bears(&record) && now().shows_its_record(), "{is_shown_first}");
            assert_eq!((now().unrecorded(), now().version()), (Some(&record), version), "{is_shown_first}");
        }
        write("4", Binding::recorded);
        assert!(now().bears(&record), "{is_shown_first}");
    }
}

#[test]
fn a_record_that_is_taken_away_during_a_run_is_missed_after_it() {
    let bindings = Bindings::default();
    let record = Record::new("uid-a", Timestamp::UNIX_EPOCH);
    bindings.apply(WatchedObject { record: Some(record.text()), ..object("a", &["db"]) });
    let before = bindings.get(&key("a")).unwrap();
    let held = BTreeMap::from([("secret/data/a".to_owned(), DigestKey::new([1; 32]).digest([]))]);
    let ends = || {
        let (held, verified) = (held.clone(), Some(verified(&[])));
        bindings.update_if_current(&key("a"), &before, |binding| binding.verify(&before, held, verified));
        bindings.get(&key("a")).unwrap()
    };
    assert!(ends().verified.is_some() && ends().held == held && ends().unrecorded().is_none());
    assert!(bindings.apply(object("a", &["db"])), "taken away");
    assert!(bindings.get(&key("a")).unwrap().held.is_empty());
    assert!(
        ends().held.is_empty() && ends().verified.is_none() && ends().unrecorded() == Some(&record),
        "the run began before that"
    );
}

#[test]
fn what_a_run_has_done_is_not_recorded_until_it_is_written() {
    let bindings = Bindings::default();
    bindings.apply(object("a", &["db"]));
    let before = bindings.get(&key("a")).unwrap();
    let record = Record::new("uid-a", Timestamp::UNIX_EPOCH);
    bindings.update_if_current(&key("a"), &before, |binding| binding.intend(&before, record.clone(), Vec::new()));
    assert_eq!(bindings.get(&key("a")).unwrap().unrecorded(), Some(&record));
    bindings.update_if_current(&key("a"), &before, |binding| write(binding, record.clone(), "2".to_owned()));
    assert_eq!(bindings.get(&key("a")).unwrap().unrecorded(), None);
}

#[test]
fn w2_a_secret_wakes_whoever_uses_it() {
    let bindings = Bindings::default();
    bindings.apply(object("a", &["db"]));
    bindings.apply(object("b", &["db", "api"]));
    assert_eq!(bindings.secret_is(&secret("db"), Some("1"), &BTreeMap::new()), [key("a"), key("b")]);
    assert_eq!(bindings.secret_is(&secret("db"), Some("1"), &BTreeMap::new()), [], "seen already");
    assert_eq!(bindings.secret_is(&secret("api"), Some("1"), &BTreeMap::new()), [key("b")]);
    assert_eq!(bindings.secret_is(&secret("foreign"), Some("1"), &BTreeMap::new()), []);
    assert!(bindings.are_current("shop", &verified(&[("db", Some("1"))]).sources));
    assert_eq!(bindings.secret_is(&secret("db"), None, &BTreeMap::new()), [key("a"), key("b")], "gone");
    assert!(!bindings.are_current("shop", &verified(&[("db", Some("1"))]).sources));
    assert!(bindings.are_current("shop", &verified(&[("db", None)]).sources));
}

#[test]
fn secrets_that_went_unseen_are_found_gone() {
    let bindings = Bindings::default();
    bindings.apply(object("a", &["db", "api"]));
    bindings.secret_is(&secret("db"), Some("1"), &BTreeMap::new());
    bindings.secret_is(&secret("api"), Some("1"), &BTreeMap::new());
    assert_eq!(bindings.secrets_are(&HashSet::from([secret("api")])), [key("a")]);
    assert!(bindings.are_current("shop", &verified(&[("db", None), ("api", Some("1"))]).sources));
}

#[test]
fn w1_our_own_write_on_a_secret_is_no_change_of_it() {
    let bindings = Bindings::default();
    bindings.apply(object("a", &["db"]));
    bindings.secret_is(&secret("db"), Some("1"), &BTreeMap::new());
    let before = bindings.get(&key("a")).unwrap();
    bindings.update_if_current(&key("a"), &before, |binding| binding.verified = Some(verified(&[("db", Some("1"))])));
    bindings.renamed_version(&secret("db"), "1", "2");
    assert_eq!(bindings.secret_is(&secret("db"), Some("2"), &BTreeMap::new()), []);
    let sources = bindings.get(&key("a")).unwrap().verified.unwrap().sources;
    assert!(bindings.are_current("shop", &sources));
    bindings.renamed_version(&secret("db"), "1", "3");
    assert!(bindings.are_current("shop", &sources), "what was written from another version is another content");
}

/// The version with an own write can be in the watch before the response to the write, or after it.
#[test]
fn an_own_write_is_no_change_that_waits_for_vault_in_either_order() {
    for is_watch_first in [true, false] {
        for is_verified in [true, false] {
            let bindings = Bindings::default();
            bindings.apply(object("a", &["db"]));
            let shown = |version| drop(bindings.secret_is(&secret("db"), Some(version), &BTreeMap::new()));
            let waits = || bindings.get(&key("a")).unwrap().pending.changed.map(|change| change.version.unwrap());
            shown("1");
            if is_verified {
                let before = bindings.get(&key("a")).unwrap();
                let verify = |binding: &mut Binding| binding.verified = Some(verified(&[("db", Some("1"))]));
                bindings.update_if_current(&key("a"), &before, verify);
            }
            if is_watch_first {
                shown("2");
                bindings.renamed_version(&secret("db"), "1", "2");
            } else {
                bindings.renamed_version(&secret("db"), "1", "2");
                shown("2");
            }
            assert_eq!(waits(), None, "{is_watch_first} {is_verified}");
            shown("3");
            assert_eq!(waits().as_deref(), Some("3"), "a change");
            // A change that came before the response stays one.
            shown("4");
            bindings.renamed_version(&secret("db"), "2", "3");
            assert_eq!(waits().as_deref(), Some("4"));
        }
    }
}

#[test]
fn nothing_is_kept_of_what_nobody_uses() {
    let bindings = Bindings::default();
    bindings.apply(object("a", &["db"]));
    bindings.secret_is(&secret("db"), Some("1"), &BTreeMap::new());
    bindings.apply(object("a", &[]));
    let empty = |bindings: &Bindings| {
        let inner = bindings.lock();
        inner.uses.is_empty() && inner.versions.is_empty() && inner.selections.is_empty()
    };
    assert!(empty(&bindings));
    bindings.apply(object("a", &["db"]));
    assert_eq!(bindings.claim(&key("a"), "secret/data/a", Share::Whole), Ok(()));
    assert_eq!(bindings.claim(&key("b"), "secret/data/a", Share::Whole), Err(key("a")));
    assert_eq!(bindings.missing(Kind::Deployment, &HashSet::new()), [key("a")]);
    assert_eq!(bindings.remove(&key("a")), Some(vec![key("b")]), "b may have it now");
    assert_eq!(bindings.remove(&key("a")), None, "it is not there any more");
    assert!(empty(&bindings) && bindings.get(&key("a")).is_none());
}

/// An object that our finalizer holds, and that has a path.
fn held(bindings: &Bindings, name: &str) {
    bindings.apply(WatchedObject { finalizer: true, ..object(name, &["db"]) });
    assert_eq!(bindings.claim(&key(name), &format!("secret/data/{name}"), Share::Whole), Ok(()));
}

#[test]
fn an_object_that_went_past_our_finalizer_counts_as_being_deleted_until_it_is_cleared() {
    let bindings = Bindings::default();
    let escapes = || bindings.escape(&key("a"), Timestamp::UNIX_EPOCH);
    assert!(!escapes(), "it is unknown");
    bindings.apply(object("a", &["db"]));
    assert!(!escapes(), "nothing held it");
    bindings.apply(WatchedObject { finalizer: true, deleting: Some(Timestamp::UNIX_EPOCH), ..object("a", &["db"]) });
    assert!(!escapes(), "it was deleted like any other");
    bindings.remove(&key("a"));

    held(&bindings, "a");
    let begun = bindings.get(&key("a")).unwrap();
    assert!(escapes());
    assert!(!escapes(), "it can go only once");
    assert!(bindings.has_escaped(&key("a"), "uid-a") && !bindings.has_escaped(&key("a"), "another"));
    assert!(!bindings.is_current(&key("a"), &begun), "a run that began before writes nothing more");
    assert_eq!(bindings.missing(Kind::Deployment, &HashSet::new()), [key("a")]);
    assert_eq!(bindings.remove(&key("a")), None, "a list without it changes nothing");
    assert!(bindings.get(&key("a")).unwrap().deleting.is_some());
    assert_eq!(bindings.claim(&key("b"), "secret/data/a", Share::Whole), Err(key("a")), "its path is not free");
    assert_eq!(bindings.cleared(&key("a"), "another"), None);
    assert_eq!(bindings.cleared(&key("a"), "uid-a"), Some(vec![key("b")]));
    assert!(!bindings.has(&key("a")) && !bindings.has_escaped(&key("a"), "uid-a"));
}

#[test]
fn another_object_of_the_name_waits_until_the_one_that_went_past_our_finalizer_is_cleared() {
    let bindings = Bindings::default();
    let uid = || bindings.get(&key("a")).unwrap().uid;
    let wakes = |name: &str, version: &str| bindings.secret_is(&secret(name), Some(version), &BTreeMap::new());
    let next = |uid: &str| WatchedObject { uid: uid.to_owned(), ..object("a", &["api"]) };
    held(&bindings, "a");
    assert!(bindings.escape(&key("a"), Timestamp::UNIX_EPOCH));
    assert!(bindings.apply(next("1")));
    assert_eq!(bindings.remove(&key("a")), None, "it comes and goes, and changes nothing");
    assert!(bindings.apply(next("2")));
    assert!(!bindings.apply(WatchedObject { version: "2".to_owned(), ..next("2") }), "an echo");
    assert_eq!(uid(), "uid-a");
    assert_eq!((wakes("db", "1"), wakes("api", "1")), (vec![key("a")], Vec::new()), "only the former is worked on");
    assert_eq!(bindings.cleared(&key("a"), "2"), None, "it is not its turn");

    assert_eq!(bindings.cleared(&key("a"), "uid-a"), Some(vec![key("a")]), "it is");
    assert_eq!(uid(), "2");
    assert_eq!((wakes("db", "2"), wakes("api", "2")), (Vec::new(), vec![key("a")]));
    assert_eq!(bindings.claim(&key("b"), "secret/data/a", Share::Whole), Ok(()), "the path of the former is free");
    assert_eq!(bindings.remove(&key("a")), Some(Vec::new()), "it is an object like any other");
}

#[test]
fn an_object_that_our_finalizer_held_is_lost_if_it_is_gone_or_another_one_has_its_name() {
    let bindings = Bindings::default();
    let lost = |successor: Option<&str>| bindings.lost(&key("a"), successor).map(|record| record.uid);
    assert_eq!(lost(None), None, "it is unknown");
    let record = Some(Record::new("uid-a", Timestamp::UNIX_EPOCH).text());
    bindings.apply(WatchedObject { record: record.clone(), ..object("a", &["db"]) });
    assert_eq!(lost(None), None, "nothing held it");
    bindings.apply(WatchedObject { record: record.clone(), finalizer: true, ..object("a", &["db"]) });
    assert_eq!((lost(None), lost(Some("2"))), (Some("uid-a".to_owned()), Some("uid-a".to_owned())));
    assert_eq!(lost(Some("uid-a")), None, "it is the same");
    bindings.apply(WatchedObject {
        record,
        finalizer: true,
        deleting: Some(Timestamp::UNIX_EPOCH),
        ..object("a", &["db"])
    });
    assert_eq!(lost(None), None, "it was deleted like any other");
}

#[test]
fn content_with_a_mark_is_left_if_its_object_is_gone_or_in_sync_without_it() {
    let bindings = Bindings::default();
    let (path, uid) = ("secret/data/a", "uid-a");
    let marked = || bindings.marked(&key("a"), path);
    assert_eq!(marked(), MarkedContent::Undecided, "no list was seen");
    bindings.missing(Kind::Deployment, &HashSet::new());
    assert_eq!(marked(), MarkedContent::OfUnknownObject);
    bindings.apply(object("a", &["db"]));
    assert_eq!(marked(), MarkedContent::Undecided, "neither the object nor a successor of its name is in sync yet");
    let before = bindings.get(&key("a")).unwrap();
    bindings.update_if_current(&key("a"), &before, |binding| {
        binding.verify(&before, BTreeMap::new(), Some(verified(&[])));
    });
    assert_eq!(marked(), MarkedContent::Left);
    let location = Mount::new("secret", KvVersion::Two).location(&SecretPath::parse(path).unwrap()).unwrap();
    let mut record = Record::new(uid, Timestamp::UNIX_EPOCH);
    record.paths.insert(path.to_owned(), Written { written: true, ..Written::intended(&location) });
    bindings.apply(WatchedObject { version: "2".to_owned(), record: Some(record.text()), ..object("a", &["db"]) });
    assert_eq!(marked(), MarkedContent::Requested);
    assert!(bindings.is_written(path));
    assert_eq!(bindings.mounts().len(), 1);
}

#[test]
fn an_object_that_is_there_again_after_it_went_past_our_finalizer_is_an_object_as_before() {
    let bindings = Bindings::default();
    held(&bindings, "a");
    assert!(bindings.escape(&key("a"), Timestamp::UNIX_EPOCH));
    assert!(bindings.apply(WatchedObject { finalizer: true, ..object("a", &["db"]) }), "out of a backup");
    assert!(!bindings.has_escaped(&key("a"), "uid-a"));
    assert_eq!(bindings.get(&key("a")).unwrap().deleting, None);
}

#[test]
fn who_has_which_path_is_known_when_every_kind_was_listed() {
    let bindings = Bindings::default();
    let kinds = [Kind::Deployment, Kind::Secret];
    bindings.missing(Kind::Secret, &HashSet::new());
    assert!(!bindings.are_listed(&kinds));
    bindings.missing(Kind::Deployment, &HashSet::new());
    assert!(bindings.are_listed(&kinds));
}

#[test]
fn a_note_for_another_object_is_dropped() {
    let bindings = Bindings::default();
    bindings.apply(object("a", &["db"]));
    let before = bindings.get(&key("a")).unwrap();
    bindings.apply(WatchedObject { uid: "another".to_owned(), ..object("a", &["db"]) });
    bindings.update_if_current(&key("a"), &before, |binding| binding.failures.in_a_row = 7);
    assert_eq!(bindings.get(&key("a")).unwrap().failures.in_a_row, 0);
    assert!(!bindings.is_current(&key("a"), &before));
}

#[test]
fn who_selects_by_labels_hears_of_whoever_fits_or_stops_to() {
    let labels = |tier: &str| BTreeMap::from([("tier".to_owned(), tier.to_owned())]);
    let composition = Composition {
        secrets: Secrets::Selected([("tier", "gold")].into_iter().collect()),
        apart: true,
        keys: vec![],
        prefix: String::new(),
        templates: BTreeMap::new(),
    };
    let selecting = || {
        let ParsedSpec::Push(push) = object("a", &[]).spec else { panic!() };
        let wanted = Wanted::Composed(composition.clone());
        WatchedObject { spec: ParsedSpec::Push(Arc::new(Push { spec: push.spec.clone(), wanted })), ..object("a", &[]) }
    };
    let bindings = Bindings::default();
    bindings.apply(selecting());
    let just =
        |names: &[&str]| bindings.uses_just(&key("a"), &names.iter().map(|&name| (name.to_owned(), None)).collect());
    assert_eq!(bindings.secret_is(&secret("lead"), Some("1"), &labels("lead")), []);
    assert_eq!(bindings.secret_is(&secret("db"), Some("1"), &labels("gold")), [key("a"), key("a")]);
    assert!(just(&["db"]));
    // A change that the watch shows during the list counts more than the list, and wakes the object.
    bindings.begin_selection(&key("a"));
    assert_eq!(bindings.secret_is(&secret("api"), Some("1"), &labels("gold"))[..1], [key("a")]);
    assert_eq!(bindings.secret_is(&secret("gone"), None, &BTreeMap::new()), [key("a")]);
    bindings.selected(&key("a"), BTreeSet::from(["db".to_owned(), "gone".to_owned()]));
    assert!(just(&["api", "db"]));
    bindings.apply(selecting());
    assert!(just(&["api", "db"]), "it is shown again");
    assert_eq!(bindings.secret_is(&secret("db"), Some("2"), &labels("lead")), [key("a")]);
    assert!(just(&["api"]));
    bindings.remove(&key("a"));
    assert!(bindings.lock().selections.is_empty());
}

#[test]
fn a_look_of_one_counts_for_all_who_have_their_keys_there() {
    let bindings = Bindings::default();
    let (shared, own) = ("secret/data/shared".to_owned(), "secret/data/own".to_owned());
    let digests = DigestKey::new([1; 32]);
    let digest = |text: &str| digests.digest([("k", text.as_bytes())]);
    let held = |paths: &[&String]| paths.iter().map(|path| ((*path).clone(), digest("1"))).collect::<BTreeMap<_, _>>();
    for (name, paths) in [("a", vec![&shared]), ("b", vec![&shared]), ("c", vec![&shared, &own]), ("d", vec![&own])] {
        bindings.apply(object(name, &[]));
        let begun = bindings.get(&key(name)).unwrap();
        let mut record = begun.new_record(Timestamp::now());
        for path in &paths {
            let share = if **path == shared { Share::Keys } else { Share::Whole };
            let _ = bindings.claim(&key(name), path, share);
            record.paths.insert((*path).clone(), Written::default());
        }
        bindings.update_if_current(&key(name), &begun, |now| {
            now.record = Some(record);
            now.verify(&begun, held(&paths), Some(verified(&[])));
        });
    }
    let sharers = |of: &str| {
        let mut sharers = bindings.sharers(&key("a"), of);
        sharers.sort_by(|one, other| one.key.cmp(&other.key));
        sharers
    };
    let names = |sharers: &[Sharer]| sharers.iter().map(|sharer| sharer.key.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&sharers(&shared)), ["b", "c"], "others that have keys there");
    assert_eq!(names(&sharers(&own)), [""; 0], "who has all of it shares nothing");
    let looked = |name: &str| bindings.get(&key(name)).unwrap().verified.unwrap().looked;
    let (b, c) = (looked("b"), looked("c"));
    let later = Instant::now() + Duration::from_secs(5);
    for sharer in sharers(&shared) {
        bindings.saw(&sharer, &shared, later);
    }
    assert_eq!(looked("b"), later, "that is all it has");
    assert_eq!(looked("c"), c, "of another location nothing is known");
    assert_eq!((bindings.seen(&key("c"), &shared), bindings.seen(&key("c"), &own)), (Some(later), Some(c)));
    assert!(b < later);

    // The desired content has changed since it was compared.
    let compared = sharers(&shared);
    let begun = bindings.get(&key("b")).unwrap();
    let changed = BTreeMap::from([(shared.clone(), digest("2"))]);
    bindings.update_if_current(&key("b"), &begun, |now| now.verify(&begun, changed, Some(verified(&[]))));
    let since = looked("b");
    for sharer in &compared {
        bindings.saw(sharer, &shared, later + Duration::from_secs(5));
    }
    assert_eq!(looked("b"), since);

    let reading = bindings.begin_read(&shared);
    assert!(reading.is_some() && bindings.begin_read(&shared).is_none() && bindings.begin_read(&own).is_some());
    drop(reading);
    assert!(bindings.begin_read(&shared).is_some(), "the next one may");

    // Another object deleted the whole location: each object with keys there verifies anew, and no other.
    let doubted = bindings.doubt_sharers(&key("a"), &shared);
    assert_eq!(doubted.iter().map(|key| key.name.as_str()).collect::<BTreeSet<_>>(), ["b", "c"].into());
    let is_verified = |name: &str| bindings.get(&key(name)).unwrap().verified.is_some();
    assert!(is_verified("a") && !is_verified("b") && !is_verified("c") && is_verified("d"));
}
