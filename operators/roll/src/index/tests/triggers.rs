//! Objects that ask on behalf of others, and what is in Vault.

use std::time::Duration;

use konverge_workload::Keys;

use super::*;
use crate::{
    trigger::{Asks, Before, Leftovers, Shown, TriggerKind, TriggerRef},
    vault::{self, Standing, Version},
    vault_sync_status::Status,
};

const VAULT: &str = "Vault/secret:app";

fn trigger(namespace: &str) -> TriggerRef {
    TriggerRef { kind: TriggerKind::VaultSyncStatus, namespace: namespace.to_owned(), name: "vss".to_owned() }
}

fn source() -> SourceName {
    vault::source(SourceKind::Vault, "secret", "app").unwrap()
}

fn asking(version: u64, every: u64) -> Shown {
    let asks = Asks {
        targets: BTreeSet::from([key("web")]),
        sources: [(source(), Keys::All)].into(),
        every: Duration::from_secs(every),
        before: Before::Adopted,
        notes: Vec::new(),
    };
    Shown {
        uid: "t".to_owned(),
        version: version.to_string(),
        generation: Some(1),
        asks: Ok(Arc::new(asks)),
        deleting: false,
        leftovers: Leftovers::default(),
        status: Arc::new(Status::default()),
    }
}

fn learn_vault(index: &Index, number: u64) -> usize {
    let version = Version { number, created: format!("2026-01-0{number}T00:00:00Z") };
    let content = digester().of_version(&version);
    index.learn_vault(&source().of("shop"), Standing::Live(version), Some(content), now()).0.users.len()
}

fn verdict(index: &Index) -> Option<Verdict> {
    index.view(&key("web"), &digester(), now())?.verdict
}

/// Writes down what the verdict says.
fn note(index: &Index) -> Vec<String> {
    let view = index.view(&key("web"), &digester(), now()).unwrap();
    let Some(Verdict::Note(content) | Verdict::Roll { content, .. }) = view.verdict else {
        panic!("{:?}", view.verdict)
    };
    let sources = content.keys().cloned().collect();
    let record = Record { tag: digester().tag(&view.uid), content, rolled: None, because: None };
    index.wrote(&key("web"), &view.uid, "9", record.text(), None);
    sources
}

fn state(index: &Index, trigger: &TriggerRef) -> State {
    index.outlook(trigger, &digester()).remove(0).state
}

#[test]
fn what_is_in_vault_holds_up_nothing_else() {
    let index = index();
    show(&index, "web", &json!({ ON_CHANGE: "true" }), &["db"]);
    let work = index.show_trigger(trigger("shop"), asking(1, 60));
    assert!(work.sources.contains(&source().of("")), "to be followed");
    learn(&index, "db", "1", "x");
    assert_eq!(note(&index), ["Secret/db"], "Vault has not answered");
    learn(&index, "db", "2", "y");
    assert!(matches!(verdict(&index), Some(Verdict::Roll { .. })));
    note(&index);
    assert_eq!(learn_vault(&index, 1), 1);
    assert_eq!(note(&index), ["Secret/db", VAULT], "first sight");
    assert_eq!(verdict(&index), Some(Verdict::Nothing));

    let failing = Standing::Failing { reason: "x", text: "y".into() };
    let (learned, telling) = index.learn_vault(&source().of(""), failing.clone(), None, now());
    assert_eq!((learned.users.len(), telling.len()), (0, 1));
    assert_eq!(index.learn_vault(&source().of(""), failing.clone(), None, now()).1.len(), 0, "told once");
    assert_eq!((verdict(&index), state(&index, &trigger("shop"))), (Some(Verdict::Nothing), State::Vault(failing)));
    learn_vault(&index, 2);
    assert!(matches!(verdict(&index), Some(Verdict::Roll { changed, .. }) if changed == [VAULT]));
    note(&index);
    learn_vault(&index, 1);
    assert_eq!(verdict(&index), Some(Verdict::Nothing), "a server that lags behind");
    assert!(matches!(state(&index, &trigger("shop")), State::Older { .. }));
}

#[test]
fn before_all_that_ask_are_seen_what_is_recorded_for_them_stays() {
    let index = index();
    show(&index, "web", &json!({ ON_CHANGE: "true" }), &["db"]);
    learn(&index, "db", "1", "x");
    index.show_trigger(trigger("shop"), asking(1, 60));
    learn_vault(&index, 1);
    assert_eq!(note(&index), ["Secret/db", VAULT]);
    // As after a restart, when the workload is seen first.
    index.forget_trigger(&trigger("shop"));
    assert_eq!(verdict(&index), Some(Verdict::Nothing));
    index.show_trigger(trigger("shop"), asking(2, 60));
    learn_vault(&index, 2);
    assert!(matches!(verdict(&index), Some(Verdict::Roll { .. })), "changed meanwhile");
    // All have been seen, and it is not among them.
    index.retain_triggers(&HashSet::new());
    assert_eq!(note(&index), ["Secret/db"]);
    let inner = index.lock();
    assert!(inner.aimed.is_empty() && inner.asked.is_empty() && !inner.users.contains_key(&source().of("")));
}

#[test]
fn another_namespace_needs_leave_and_no_takes_it_from_all() {
    let index = index();
    let foreign = trigger("elsewhere");
    index.show_trigger(foreign.clone(), asking(1, 60));
    assert_eq!(state(&index, &foreign), State::NoWorkload);
    for (annotations, expected) in [
        (json!({}), State::NotAllowed),
        (json!({ "roll.konverge.dev/allow-from": "other" }), State::NotAllowed),
        (json!({ "roll.konverge.dev/allow-from": "other, elsewhere" }), State::NotYet),
        (json!({ "roll.konverge.dev/allow-from": "*" }), State::NotYet),
        (json!({ "roll.konverge.dev/allow-from": "*", ON_CHANGE: "false" }), State::OptedOut),
    ] {
        show(&index, "web", &annotations, &[]);
        assert_eq!(state(&index, &foreign), expected, "{annotations}");
        assert_eq!(index.is_used(&source().of("")), expected == State::NotYet, "{annotations}");
    }
    show(&index, "web", &json!({ "roll.konverge.dev/allow-from": "a/b" }), &[]);
    assert!(matches!(state(&index, &foreign), State::Invalid(_)));
}

#[test]
fn the_shortest_interval_counts_for_all() {
    let index = index();
    show(&index, "web", &json!({ "roll.konverge.dev/allow-from": "*" }), &[]);
    index.show_trigger(trigger("shop"), asking(1, 60));
    index.show_trigger(trigger("elsewhere"), asking(1, 5));
    assert_eq!(index.interval(&source().of("")), Some(Duration::from_secs(5)));
    let work = index.forget_trigger(&trigger("elsewhere"));
    assert!(work.sources.contains(&source().of("")), "to be followed at another interval");
    assert_eq!(index.interval(&source().of("")), Some(Duration::from_mins(1)));
    index.show_trigger(trigger("shop"), asking(0, 5));
    assert_eq!(index.interval(&source().of("")), Some(Duration::from_mins(1)), "an older event");
    index.show_trigger(trigger("shop"), Shown { deleting: true, ..asking(2, 60) });
    assert!(!index.is_used(&source().of("")), "it is going");
}
