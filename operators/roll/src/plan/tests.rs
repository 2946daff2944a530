use konverge_workload::Rollout;
use proptest::prelude::*;

use super::*;
use crate::vault::Version;

const TAG: &str = "tag";

fn entry(selection: &str, content: Option<&str>) -> Entry {
    let content = content.map_or(Content::Absent, |digest| Content::Digest(digest.to_owned()));
    Entry { selection: selection.to_owned(), content, version: None }
}

fn now(sources: &[(&str, &str, Option<&str>, Need)]) -> BTreeMap<String, CurrentEntry> {
    let source = |&(name, selection, content, need): &(&str, &str, Option<&str>, Need)| {
        (name.to_owned(), CurrentEntry { entry: entry(selection, content), need, is_news: false, counts: true })
    };
    sources.iter().map(source).collect()
}

fn record(sources: &[(&str, &str, Option<&str>)]) -> Record {
    let content = sources.iter().map(|(name, selection, content)| ((*name).to_owned(), entry(selection, *content)));
    Record::of_content(TAG.to_owned(), content.collect(), None)
}

fn decided(record: Option<&Record>, is_stamped: bool, now: &BTreeMap<String, CurrentEntry>) -> Verdict {
    decide(RecordedState { record, is_noted: true, is_stamped }, now)
}

/// `nothing`, `note`, or what changed.
fn word(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Nothing => "nothing".to_owned(),
        Verdict::Note(_) => "note".to_owned(),
        Verdict::Roll { changed, .. } => format!("roll {}", changed.join(" ")).trim().to_owned(),
    }
}

#[test]
fn with_a_record() {
    use Need::{Optional, Required};
    let before = record(&[("db", "all", Some("1")), ("app", "all", None)]);
    let app = ("app", "all", None, Optional);
    for (what, now, expected) in [
        ("in sync", now(&[("db", "all", Some("1"), Required), app]), "nothing"),
        ("changed", now(&[("db", "all", Some("2"), Required), app]), "roll db"),
        ("gone", now(&[("db", "all", None, Required), app]), "nothing"),
        ("other keys", now(&[("db", "some", Some("2"), Required), app]), "note"),
        ("not used any more", now(&[app]), "note"),
        ("a new one", now(&[("db", "all", Some("1"), Required), app, ("x", "all", Some("1"), Required)]), "note"),
        (
            "a new one and a changed one",
            now(&[("db", "all", Some("2"), Required), app, ("x", "all", Some("1"), Required)]),
            "roll db",
        ),
        (
            "an optional one came",
            now(&[("app", "all", Some("1"), Optional), ("db", "all", Some("1"), Required)]),
            "roll app",
        ),
        ("a needed one came", now(&[("app", "all", Some("1"), Required), ("db", "all", Some("1"), Required)]), "note"),
    ] {
        assert_eq!(word(&decided(Some(&before), false, &now)), expected, "{what}");
    }
}

#[test]
fn a_rollout_succeeds_with_its_pods_and_fails_after_the_deadline_of_the_workload() {
    use LastRollout::{Failed, Over, UnderWay};
    use Progress::{Failed as GivenUp, Ready, Running, Unknown, Unready};
    let at = Time::at;
    let timeout = SignedDuration::from_secs(600);
    let pods = |progress, deadline, unready: Option<i64>, available: Option<i64>| Pods {
        rollout: Rollout { progress, deadline, ..Rollout::SETTLED },
        unready: unready.map(at),
        available: available.map(at),
        succeeded: false,
        awaited: false,
    };
    let (none, own) = (Deadline::Elapsed(None), Deadline::OfController);
    let was_complete = Deadline::Elapsed(Some(60));
    let empty = Pods { rollout: Rollout { empty: true, ..Rollout::SETTLED }, ..pods(GivenUp, own, None, None) };
    let mut paused = pods(Running, none, Some(0), None);
    paused.rollout.paused = true;
    let succeeded = Pods { succeeded: true, ..pods(GivenUp, own, None, None) };
    let awaited = Pods { awaited: true, ..pods(Ready, own, None, Some(1010)) };
    // It was rolled at 1000.
    for (what, pods, has_failed, now, expected) in [
        ("its controller waits", pods(Running, own, Some(1000), None), false, 9000, UnderWay(None)),
        ("its controller has given up", pods(GivenUp, own, Some(1000), None), false, 1060, Failed(None)),
        ("it is ready", pods(Ready, own, None, Some(1010)), false, 1010, Over),
        ("it is ready, and its success is to be counted", awaited, false, 1010, UnderWay(Some(at(1025)))),
        ("its success is counted now", awaited, false, 1025, Over),
        (
            "its pods have crashed since",
            pods(Unready, was_complete, Some(1005), None),
            false,
            1064,
            UnderWay(Some(at(1065))),
        ),
        ("and do not come back", pods(Unready, was_complete, Some(1005), None), false, 1065, Failed(None)),
        ("no deadline", pods(Running, none, Some(1000), None), false, 1599, UnderWay(Some(at(1600)))),
        ("no deadline, but too long", pods(Running, none, Some(1000), None), false, 1600, Failed(None)),
        ("progress", pods(Unready, none, Some(1500), None), false, 1700, UnderWay(Some(at(2100)))),
        ("first seen before", pods(Unready, none, Some(10), None), false, 1599, UnderWay(Some(at(1600)))),
        ("it had failed", pods(Running, own, Some(1000), None), true, 1001, Failed(None)),
        (
            "it had failed and is up for a moment",
            pods(Ready, own, None, Some(1010)),
            true,
            1024,
            Failed(Some(at(1025))),
        ),
        ("it had failed and is up", pods(Ready, own, None, Some(1010)), true, 1025, Over),
        ("no controller", pods(Unknown, none, None, None), false, 9000, Over),
        ("no pods", empty, true, 9000, Over),
        ("somebody has paused it", paused, false, 9000, UnderWay(None)),
        ("it had succeeded", succeeded, false, 9000, Over),
    ] {
        let failed = has_failed.then(|| at(1000).wall());
        let record = Record { rolled: Some(at(1000).wall()), failed, ..record(&[]) };
        assert_eq!(last_rollout(Some(&record), pods, at(now), timeout), expected, "{what}");
        assert_eq!(last_rollout(None, pods, at(now), timeout), Over, "{what}, and never rolled");
    }
    for (what, pods, now, expected) in [
        ("available for a moment", awaited, 1024, false),
        ("available for long enough", awaited, 1025, true),
        ("under way", pods(Running, own, Some(1000), None), 9000, false),
        ("given up", pods(GivenUp, own, Some(1000), None), 9000, false),
        ("no controller", pods(Unknown, none, None, None), 9000, false),
        ("available before they went away", succeeded, 9000, true),
        ("no pods", Pods { rollout: Rollout { empty: true, ..Rollout::SETTLED }, ..awaited }, 9000, false),
    ] {
        assert_eq!(has_succeeded(pods, at(now)), expected, "{what}");
    }
    let off = pods(Running, none, Some(1000), None);
    let record = Record { rolled: Some(at(1000).wall()), ..record(&[]) };
    assert_eq!(last_rollout(Some(&record), off, at(9000), SignedDuration::ZERO), UnderWay(None), "switched off");
}

#[test]
fn first_sight_rolls_nothing_whatever_stamp_came_along() {
    let db = now(&[("db", "all", Some("1"), Need::Required)]);
    for is_stamped in [false, true] {
        assert_eq!(word(&decided(None, is_stamped, &db)), "note", "{is_stamped}");
    }
}

#[test]
fn a_record_that_was_taken_away_counts_and_is_written_again() {
    let before = record(&[("db", "all", Some("1"))]);
    for (digest, is_noted, expected) in
        [("1", true, "nothing"), ("1", false, "note"), ("2", true, "roll db"), ("2", false, "roll db")]
    {
        let recorded = RecordedState { record: Some(&before), is_noted, is_stamped: true };
        let db = now(&[("db", "all", Some(digest), Need::Required)]);
        assert_eq!(word(&decide(recorded, &db)), expected, "{digest} {is_noted}");
    }
}

#[test]
fn a_template_that_was_set_back_is_not_set_forth_again() {
    let current = record(&[("db", "all", Some("2"))]);
    let db = now(&[("db", "all", Some("2"), Need::Required)]);
    for is_stamped in [false, true] {
        assert_eq!(decided(Some(&current), is_stamped, &db), Verdict::Nothing, "{is_stamped}");
    }
}

#[test]
fn one_that_goes_and_comes_back_rolls_only_if_it_is_another() {
    let before = record(&[("db", "all", Some("1"))]);
    let gone = now(&[("db", "all", None, Need::Required)]);
    assert_eq!(decided(Some(&before), false, &gone), Verdict::Nothing);
    for (digest, expected) in [("1", "nothing"), ("2", "roll db")] {
        let back = now(&[("db", "all", Some(digest), Need::Required)]);
        assert_eq!(word(&decided(Some(&before), false, &back)), expected);
    }
}

/// A step of a random test of a workload with two sources.
#[derive(Debug, Clone, Copy)]
enum Event {
    Write {
        source: usize,
        content: u8,
    },
    Delete {
        source: usize,
    },
    /// The operator looks, and what it decides is done.
    Look,
    /// The operator looks, and what it decides is done, but it never learns of it; then it looks again.
    LookTwice,
    /// Somebody takes our stamp off the template, which restarts the pods.
    SetBack,
    /// Somebody takes the record away, or sets an older one in its place, which restarts nothing.
    Take,
    /// The operator forgets all that does not stand on the workload.
    Restart,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..2_usize, 0..3_u8).prop_map(|(source, content)| Event::Write { source, content }),
        1 => (0..2_usize).prop_map(|source| Event::Delete { source }),
        3 => Just(Event::Look),
        1 => Just(Event::LookTwice),
        1 => Just(Event::SetBack),
        1 => Just(Event::Take),
        1 => Just(Event::Restart),
    ]
}

proptest! {
    /// Pods are modelled as what they read when they started. After each look they run with what there is, nothing is rolled that the
    /// operator could know to run with it already, and a second look does nothing.
    #[test]
    fn exactly_what_is_needed_is_rolled(events in proptest::collection::vec(event(), 0..24)) {
        const NAMES: [&str; 2] = ["a", "b"];
        let mut there: [Option<u8>; 2] = [Some(0), Some(0)];
        let mut pods = there;
        let (mut kept, mut is_noted, mut is_stamped): (Option<Record>, bool, bool) = (None, true, false);
        // Pods that somebody else restarts read what there is at that time, which nobody can see on the workload.
        let mut restarted = false;
        for event in [Event::Look].into_iter().chain(events) {
            let looks = match event {
                Event::Write { source, content } => { there[source] = Some(content); 0 }
                Event::Delete { source } => { there[source] = None; 0 }
                Event::SetBack => {
                    if std::mem::take(&mut is_stamped) {
                        restarted = true;
                        // A missing source keeps new pods from starting; running pods go on.
                        for source in 0..2 { pods[source] = there[source].or(pods[source]); }
                    }
                    0
                }
                Event::Take => { is_noted = false; 0 }
                Event::Restart => {
                    if !is_noted {
                        // Then nobody knows with what the pods run.
                        restarted |= kept.take().is_some();
                    }
                    0
                }
                Event::Look => 1,
                Event::LookTwice => 2,
            };
            for look in 0..looks {
                let seen: BTreeMap<_, _> = (0..2).map(|source| {
                    let digest = there[source].map(|content| content.to_string());
                    let entry = entry("all", digest.as_deref());
                    (NAMES[source].to_owned(), CurrentEntry { entry, need: Need::Required, is_news: false, counts: true })
                }).collect();
                let differs = (0..2).any(|source| there[source].is_some_and(|content| pods[source] != Some(content)));
                match decide(RecordedState { record: kept.as_ref(), is_noted, is_stamped }, &seen) {
                    Verdict::Nothing => prop_assert!(!differs || restarted),
                    Verdict::Note(content) => {
                        prop_assert!((!differs || restarted) && look == 0);
                        is_noted = true;
                        kept = Some(Record::of_content(TAG.to_owned(), content, None));
                    }
                    Verdict::Roll { content, .. } => {
                        prop_assert!(look == 0 && (differs || restarted));
                        for source in 0..2 { pods[source] = there[source].or(pods[source]); }
                        (is_noted, is_stamped) = (true, true);
                        kept = Some(Record::of_content(TAG.to_owned(), content, None));
                    }
                }
                restarted &= pods != there;
            }
        }
    }
}

#[test]
fn news_of_a_source_without_an_entry_rolls_unless_the_stamp_tells() {
    let mut sources = now(&[("db", "all", Some("1"), Need::Required), ("vault", "all", Some("2"), Need::Required)]);
    sources.get_mut("vault").unwrap().is_news = true;
    let before = record(&[("db", "all", Some("1"))]);
    assert_eq!(word(&decided(Some(&before), false, &sources)), "roll vault");
    assert_eq!(word(&decided(None, false, &sources)), "roll vault");
    let Verdict::Roll { content, .. } = decided(None, false, &sources) else { panic!("not rolled") };
    assert_eq!(word(&decided(None, true, &sources)), "note", "it was rolled since");
    let after = Record { content, ..before };
    assert_eq!(word(&decided(Some(&after), false, &sources)), "nothing", "once");
    let other = record(&[("db", "all", Some("1")), ("vault", "keys", Some("9"))]);
    assert_eq!(word(&decided(Some(&other), false, &sources)), "roll vault", "it has changed by another choice of keys");
    sources.get_mut("vault").unwrap().is_news = false;
    assert_eq!(word(&decided(Some(&other), false, &sources)), "note", "another choice of keys");
}

#[test]
fn an_older_version_is_passed_over_and_a_newer_one_with_the_same_content_is_noted() {
    let version = |number: u64| Version { number, created: format!("2026-01-0{number}T00:00:00Z") };
    let at = |number, digest: &str| Entry { version: Some(version(number)), ..entry("all", Some(digest)) };
    let mut before = record(&[]);
    before.content.insert("vault".to_owned(), at(3, "3"));
    for (number, digest, expected) in
        [(2, "2", "nothing"), (3, "3", "nothing"), (4, "3", "note"), (4, "4", "roll vault"), (3, "other", "roll vault")]
    {
        let now = CurrentEntry { entry: at(number, digest), need: Need::Required, is_news: false, counts: true };
        let sources = BTreeMap::from([("vault".to_owned(), now)]);
        assert_eq!(word(&decided(Some(&before), false, &sources)), expected, "{number} {digest}");
    }
}
