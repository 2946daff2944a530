//! Objects that ask on behalf of others, and what is in Vault.

use std::time::Duration;

use konverge_workload::Keys;

use super::*;
use crate::{
    definition::Status,
    trigger::{Before, Choice, Leftovers, TriggerKind, TriggerRef, TriggerSpec, WatchedTrigger},
    vault::{self, SecretState, Version},
};

pub(super) const VAULT: &str = "Vault/secret:app";

pub(super) fn trigger(namespace: &str) -> TriggerRef {
    TriggerRef { kind: TriggerKind::VaultSyncStatus, namespace: namespace.to_owned(), name: "vss".to_owned() }
}

pub(super) fn source() -> SourceName {
    vault::source(SourceKind::Vault, "secret", "app").unwrap()
}

pub(super) fn asking(version: u64, every: u64) -> WatchedTrigger {
    let spec = TriggerSpec {
        targets: BTreeSet::from([key("web")]),
        choices: Vec::new(),
        sources: [(source(), Keys::All)].into(),
        every: Duration::from_secs(every),
        before: Before::Adopted,
        suspended: false,
        wait_for: None,
        notes: Vec::new(),
    };
    WatchedTrigger {
        uid: "t".to_owned(),
        version: version.to_string(),
        generation: Some(1),
        spec: Ok(Arc::new(spec)),
        deleting: false,
        leftovers: Leftovers::default(),
        status: Arc::new(Status::default()),
    }
}

pub(super) fn learn_vault(index: &Index, number: u64) -> usize {
    let version = Version { number, created: format!("2026-01-0{number}T00:00:00Z") };
    let content = digester().of_version(&version);
    index.learn_vault(&source().of("shop"), SecretState::Live(version), Some(content), now()).0.users.len()
}

fn verdict(index: &Index) -> Option<Verdict> {
    index.view(&key("web"), &digester(), now())?.plan.verdict().cloned()
}

/// Writes down what the verdict says.
pub(super) fn note(index: &Index) -> Vec<String> {
    let view = index.view(&key("web"), &digester(), now()).unwrap();
    let Some(Verdict::Note(content) | Verdict::Roll { content, .. }) = view.plan.verdict().cloned() else {
        panic!("{:?}", view.plan.verdict().cloned())
    };
    let sources = content.keys().cloned().collect();
    let record = Record::of_content(digester().tag(view.uid()), content, None);
    index.wrote(&key("web"), view.uid(), "9", record.text(), None);
    sources
}

pub(super) fn state(index: &Index, trigger: &TriggerRef) -> TargetState {
    index.target_statuses(trigger, &digester(), now()).remove(0).state
}

#[test]
fn what_is_in_vault_holds_up_nothing_else() {
    let index = index();
    show(&index, "web", &json!({ ON_CHANGE: "true" }), &["db"]);
    let work = index.apply_trigger(Shows::Event, trigger("shop"), asking(1, 60));
    assert!(work.sources.contains(&source().of("")), "to be followed");
    learn(&index, "db", "1", "x");
    assert_eq!(note(&index), ["Secret/db"], "Vault has not answered");
    learn(&index, "db", "2", "y");
    assert!(matches!(verdict(&index), Some(Verdict::Roll { .. })));
    note(&index);
    assert_eq!(learn_vault(&index, 1), 1);
    assert_eq!(note(&index), ["Secret/db", VAULT], "first sight");
    assert_eq!(verdict(&index), Some(Verdict::Nothing));

    let failing = SecretState::Failing { reason: "x", text: "y".into() };
    let (learned, telling) = index.learn_vault(&source().of(""), failing.clone(), None, now());
    assert_eq!((learned.users.len(), telling.len()), (0, 1));
    assert_eq!(index.learn_vault(&source().of(""), failing.clone(), None, now()).1.len(), 0, "told once");
    assert_eq!(
        (verdict(&index), state(&index, &trigger("shop"))),
        (Some(Verdict::Nothing), TargetState::Vault(failing))
    );
    learn_vault(&index, 2);
    assert!(matches!(verdict(&index), Some(Verdict::Roll { changed, .. }) if changed == [VAULT]));
    note(&index);
    learn_vault(&index, 1);
    assert_eq!(verdict(&index), Some(Verdict::Nothing), "a server that lags behind");
    assert!(matches!(state(&index, &trigger("shop")), TargetState::Older { .. }));
}

#[test]
fn before_all_that_ask_are_seen_what_is_recorded_for_them_stays() {
    let index = index();
    show(&index, "web", &json!({ ON_CHANGE: "true" }), &["db"]);
    learn(&index, "db", "1", "x");
    index.apply_trigger(Shows::Event, trigger("shop"), asking(1, 60));
    learn_vault(&index, 1);
    assert_eq!(note(&index), ["Secret/db", VAULT]);
    // As after a restart, when the workload is seen first.
    index.forget_trigger(&trigger("shop"));
    assert_eq!(verdict(&index), Some(Verdict::Nothing));
    index.apply_trigger(Shows::Event, trigger("shop"), asking(2, 60));
    learn_vault(&index, 2);
    assert!(matches!(verdict(&index), Some(Verdict::Roll { .. })), "changed meanwhile");
    // All have been seen, and it is not among them.
    index.retain_triggers(TriggerKind::VaultRollout, &HashSet::new());
    assert!(matches!(verdict(&index), Some(Verdict::Roll { .. })), "that kind has none, and this one has");
    index.forget_trigger(&trigger("shop"));
    assert_eq!(verdict(&index), Some(Verdict::Nothing), "there may be others of this kind");
    index.retain_triggers(TriggerKind::VaultSyncStatus, &HashSet::new());
    assert_eq!(note(&index), ["Secret/db"]);
    let inner = index.lock();
    assert!(!inner.triggers.has_references() && !inner.sources.is_used(&source().of("")));
}

#[test]
fn another_namespace_needs_leave_and_no_takes_it_from_all() {
    let index = index();
    let foreign = trigger("elsewhere");
    index.apply_trigger(Shows::Event, foreign.clone(), asking(1, 60));
    assert_eq!(state(&index, &foreign), TargetState::NoWorkload);
    for (annotations, expected) in [
        (json!({}), TargetState::NotAllowed),
        (json!({ "roll.konverge.dev/allow-from": "other" }), TargetState::NotAllowed),
        (json!({ "roll.konverge.dev/allow-from": "other, elsewhere" }), TargetState::NotYet),
        (json!({ "roll.konverge.dev/allow-from": "*" }), TargetState::NotYet),
        (json!({ "roll.konverge.dev/allow-from": "*", ON_CHANGE: "false" }), TargetState::OptedOut),
    ] {
        show(&index, "web", &annotations, &[]);
        assert_eq!(state(&index, &foreign), expected, "{annotations}");
        assert_eq!(index.is_used(&source().of("")), expected == TargetState::NotYet, "{annotations}");
    }
    show(&index, "web", &json!({ "roll.konverge.dev/allow-from": "a/b" }), &[]);
    assert!(matches!(state(&index, &foreign), TargetState::Invalid(_)));
}

#[test]
fn the_shortest_interval_counts_for_all() {
    let index = index();
    show(&index, "web", &json!({ "roll.konverge.dev/allow-from": "*" }), &[]);
    index.apply_trigger(Shows::Event, trigger("shop"), asking(2, 60));
    index.apply_trigger(Shows::Event, trigger("elsewhere"), asking(1, 5));
    assert_eq!(index.interval(&source().of("")), Some(Duration::from_secs(5)));
    let work = index.forget_trigger(&trigger("elsewhere"));
    assert!(work.sources.contains(&source().of("")), "to be followed at another interval");
    assert_eq!(index.interval(&source().of("")), Some(Duration::from_mins(1)));
    index.apply_trigger(Shows::Event, trigger("shop"), asking(1, 5));
    assert_eq!(index.interval(&source().of("")), Some(Duration::from_mins(1)), "an older event");
    index.apply_trigger(Shows::Event, trigger("shop"), WatchedTrigger { deleting: true, ..asking(3, 60) });
    assert!(!index.is_used(&source().of("")), "it is going");
}

/// By the label `app=web`, in the namespace of the workloads.
fn choosing(version: u64, suspended: bool) -> WatchedTrigger {
    let spec = asking(version, 60).spec.unwrap();
    let labels = [("app".to_owned(), "web".to_owned())].into_iter().collect();
    let choice = Choice { namespace: "shop".to_owned(), kind: None, labels };
    let spec = TriggerSpec { targets: BTreeSet::new(), choices: vec![choice], suspended, ..(*spec).clone() };
    WatchedTrigger { spec: Ok(Arc::new(spec)), ..asking(version, 60) }
}

fn ours(namespace: &str) -> TriggerRef {
    TriggerRef { kind: TriggerKind::VaultRollout, ..trigger(namespace) }
}

#[test]
fn r14_labels_choose_whichever_comes_first_and_only_with_leave() {
    for first in [true, false] {
        let index = index();
        let (own, foreign) = (ours("shop"), ours("elsewhere"));
        let ask = || {
            index.apply_trigger(Shows::Event, own.clone(), choosing(1, false));
            index.apply_trigger(Shows::Event, foreign.clone(), choosing(1, false));
        };
        if first {
            ask();
        }
        let work =
            index.apply_workload(Shows::Event, WorkloadKind::Deployment, workload("web", 1, &json!({}), &[]), now()).1;
        show(&index, "other", &json!({}), &[]);
        if first {
            assert_eq!(work.triggers, BTreeSet::from([own.clone(), foreign.clone()]), "to tell of it");
        } else {
            ask();
        }
        assert_eq!(index.target_statuses(&own, &digester(), now()).len(), 1, "the other has another label");
        assert_eq!((state(&index, &own), state(&index, &foreign)), (TargetState::NotYet, TargetState::NotAllowed));
        assert_eq!(index.counts(), (1, 1));
        // It loses the label: it is rolled for nothing, and who chose it is told.
        let mut without = workload("web", 2, &json!({}), &[]);
        without.metadata.labels = None;
        let work = index.apply_workload(Shows::Event, WorkloadKind::Deployment, without, now()).1;
        assert!(work.triggers.contains(&own) && index.target_statuses(&own, &digester(), now()).is_empty());
        assert_eq!(index.counts(), (0, 0));
        index.forget_trigger(&own);
        index.forget_trigger(&foreign);
        assert!(!index.lock().triggers.has_references());
    }
}

#[test]
fn who_says_no_is_not_chosen_by_labels() {
    let index = index();
    index.apply_trigger(Shows::Event, ours("shop"), choosing(1, false));
    show(&index, "web", &json!({ ON_CHANGE: "false" }), &[]);
    assert!(index.target_statuses(&ours("shop"), &digester(), now()).is_empty());
    assert_eq!(index.counts(), (0, 0));
}

#[test]
fn what_changes_while_all_are_suspended_is_rolled_afterwards() {
    let index = index();
    show(&index, "web", &json!({}), &[]);
    index.apply_trigger(Shows::Event, ours("shop"), choosing(1, true));
    learn_vault(&index, 1);
    assert_eq!(note(&index), [VAULT], "first sight");
    learn_vault(&index, 2);
    assert_eq!((verdict(&index), state(&index, &ours("shop"))), (Some(Verdict::Nothing), TargetState::Suspended));
    index.apply_trigger(Shows::Event, trigger("shop"), asking(1, 60));
    assert!(matches!(verdict(&index), Some(Verdict::Roll { .. })), "another asks, too");
    index.forget_trigger(&trigger("shop"));
    assert_eq!(verdict(&index), Some(Verdict::Nothing));
    index.apply_trigger(Shows::Event, ours("shop"), choosing(2, false));
    assert!(matches!(verdict(&index), Some(Verdict::Roll { .. })));
}

#[test]
fn however_many_aim_at_a_workload_those_look_for_whom_something_may_be_new() {
    const ALL: usize = 100;
    let index = index();
    show(&index, "web", &json!({}), &[]);
    let named = |number: usize| TriggerRef { name: format!("vss{number}"), ..trigger("shop") };
    let looks = |work: Work| work.triggers.len();
    let start: usize =
        (0..ALL).map(|number| looks(index.apply_trigger(Shows::Event, named(number), asking(1, 60)))).sum();
    assert_eq!(start, ALL, "each is shown once");
    assert_eq!(
        looks(index.apply_trigger(Shows::Event, named(0), asking(2, 5))),
        1,
        "what it asks for otherwise is its own"
    );

    let version = Version { number: 1, created: "2026-01-01T00:00:00Z".to_owned() };
    let content = digester().of_version(&version);
    let telling = index.learn_vault(&source().of(""), SecretState::Live(version), Some(content), now()).1;
    assert_eq!(telling.len(), ALL, "Vault has told");
    note(&index);
    let record = index.lock().workloads.get(&key("web")).unwrap().record.shown.clone();
    let shown = |version, more: &Value| {
        let mut annotations = json!({ RECORD: record });
        annotations.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        looks(
            index
                .apply_workload(
                    Shows::Event,
                    WorkloadKind::Deployment,
                    workload("web", version, &annotations, &[]),
                    now(),
                )
                .1,
        )
    };
    assert_eq!(shown(10, &json!({})), ALL, "it was noted");
    assert_eq!(shown(11, &json!({ "example.com/other": "x" })), 0, "nothing that any of them tells of");
    assert_eq!(shown(12, &json!({ RECORD: "{}" })), ALL, "somebody has written on it");
    assert_eq!(looks(index.forget_trigger(&named(0))), 0, "there are others that ask for the same");

    let mut other = asking(3, 60);
    let sources = [(vault::source(SourceKind::Vault, "secret", "other").unwrap(), Keys::All)].into();
    other.spec = other.spec.map(|spec| Arc::new(TriggerSpec { sources, ..TriggerSpec::clone(&spec) }));
    assert_eq!(looks(index.apply_trigger(Shows::Event, named(1), other)), 1, "one more reason");
    assert_eq!(
        looks(index.forget_trigger(&named(1))),
        ALL - 2,
        "what is no reason any more may have kept them from knowing"
    );
    assert_eq!(looks(index.forget(&key("web"))), ALL - 2, "it is gone");
}

#[test]
fn what_a_list_shows_of_those_that_ask_is_so_also_if_it_is_older() {
    let index = index();
    let every = || index.interval(&source().of("")).unwrap().as_secs();
    index.apply_trigger(Shows::List, trigger("shop"), asking(1000, 60));
    index.apply_trigger(Shows::Event, trigger("shop"), asking(500, 5));
    assert_eq!(every(), 60, "it comes late");
    index.apply_trigger(Shows::List, trigger("shop"), asking(500, 5));
    assert_eq!(every(), 5, "restored from a backup");
}

#[test]
fn f07_one_that_was_replaced_unseen_by_another_of_its_name_is_that_other_one() {
    for replaced in [trigger("shop"), ours("shop")] {
        let index = index();
        let every = || index.interval(&source().of("")).unwrap().as_secs();
        let of = |uid: &str, version, every| WatchedTrigger { uid: uid.to_owned(), ..asking(version, every) };
        show(&index, "web", &json!({}), &[]);
        index.apply_trigger(Shows::Event, replaced.clone(), of("one", 1000, 60));
        learn_vault(&index, 1);
        note(&index);
        // Versions of two objects say nothing of which is newer, and neither does the event that is missing.
        let work = index.apply_trigger(Shows::Event, replaced.clone(), of("two", 500, 60));
        assert!(work.sources.contains(&source().of("")), "{replaced}: what it asks for is followed for its own sake");
        assert_eq!(index.trigger(&replaced).unwrap().uid, "two", "{replaced}");
        assert_eq!(verdict(&index), Some(Verdict::Nothing), "{replaced}: the record is the workload's");
        index.apply_trigger(Shows::Event, replaced.clone(), of("three", 400, 5));
        assert_eq!(every(), 5, "{replaced}: it asks for something else");
        index.apply_trigger(Shows::Event, replaced.clone(), of("three", 300, 60));
        assert_eq!(every(), 5, "{replaced}: a late event of its own");
        for (uid, expected) in [("two", "400"), ("three", "401")] {
            index.update_trigger(&replaced, uid, |shown| "401".clone_into(&mut shown.version));
            assert_eq!(index.trigger(&replaced).unwrap().version, expected, "{replaced}: an answer to {uid}");
        }
        learn_vault(&index, 2);
        assert!(matches!(verdict(&index), Some(Verdict::Roll { .. })), "{replaced}");
    }
}

#[test]
fn a_change_that_waits_is_not_settled_by_another_mode() {
    for (before, after) in
        [(SourceKind::Vault, SourceKind::VaultContent), (SourceKind::VaultContent, SourceKind::Vault)]
    {
        let index = index();
        show(&index, "web", &json!({}), &[]);
        let asks_for = |version, kind| {
            let sources = [(vault::source(kind, "secret", "app").unwrap(), Keys::All)].into();
            let mut shown = asking(version, 60);
            shown.spec = shown.spec.map(|spec| Arc::new(TriggerSpec { sources, ..TriggerSpec::clone(&spec) }));
            index.apply_trigger(Shows::Event, trigger("shop"), shown);
        };
        let learn = |kind, number: u64| {
            let version = Version { number, created: format!("2026-01-0{number}T00:00:00Z") };
            let content = digester().of_version(&version);
            let of = vault::source(kind, "secret", "app").unwrap().of("");
            index.learn_vault(&of, SecretState::Live(version), Some(content), now());
        };
        for kind in TriggerKind::ALL {
            index.retain_triggers(kind, &HashSet::new());
        }
        asks_for(1, before);
        learn(before, 1);
        note(&index);
        asks_for(2, after);
        let is_kept = |verdict| matches!(verdict, None | Some(Verdict::Nothing));
        assert!(is_kept(verdict(&index)), "Vault has not answered");
        learn(after, 1);
        assert!(matches!(verdict(&index), Some(Verdict::Note(_))), "{after:?}");
        learn(after, 2);
        assert!(matches!(verdict(&index), Some(Verdict::Roll { .. })), "{after:?}");
        asks_for(3, before);
        learn(before, 2);
        assert!(matches!(verdict(&index), Some(Verdict::Roll { .. })), "{before:?}");
        note(&index);
        assert_eq!(verdict(&index), Some(Verdict::Nothing));
    }
}

#[test]
fn those_that_aim_at_a_workload_are_looked_at_once_each_at_a_start_in_whatever_order() {
    const ALL: usize = 100;
    for (is_other_each, is_reversed) in [(false, false), (false, true), (true, false), (true, true)] {
        let index = index();
        let mut numbers: Vec<_> = (0..ALL).collect();
        if is_reversed {
            numbers.reverse();
        }
        let mut looks = 0;
        for number in numbers {
            // Half of them are of the other kind, which another rule stands for.
            let kind = TriggerKind::ALL[number % 2];
            let named = TriggerRef { kind, name: format!("ask{number:03}"), ..trigger("shop") };
            let mut spec = asking(1, 60);
            if is_other_each {
                let sources =
                    [(vault::source(SourceKind::Vault, "secret", &number.to_string()).unwrap(), Keys::All)].into();
                spec.spec = spec.spec.map(|spec| Arc::new(TriggerSpec { sources, ..TriggerSpec::clone(&spec) }));
            }
            looks += index.apply_trigger(Shows::List, named, spec).triggers.len();
            if number == ALL / 2 {
                let web = workload("web", 1, &json!({}), &[]);
                looks += index.apply_workload(Shows::List, WorkloadKind::Deployment, web, now()).1.triggers.len();
            }
        }
        assert!(looks <= 3 * ALL, "{looks} {is_other_each} {is_reversed}");
    }
}
