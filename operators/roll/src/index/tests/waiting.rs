//! A Secret that has to follow what changes in Vault.

use konverge_workload::Keys;

use super::{
    triggers::{VAULT, asking, learn_vault, note, source, state, trigger},
    *,
};
use crate::{
    plan::Deferral,
    trigger::{TriggerRef, TriggerSpec, WaitFor, WatchedTrigger},
    vault::SecretState,
};

const TIMEOUT: i64 = 300;

fn at(second: i64) -> Time {
    Time::at(second)
}

/// For `web`, each version of the secret, when the Secret `db` has followed.
fn waiting(holds: bool) -> WatchedTrigger {
    let spec = asking(1, 60).spec.unwrap();
    let timeout = SignedDuration::from_secs(TIMEOUT);
    let wait_for = Some(WaitFor { secret: SourceName::secret("db"), keys: Keys::All, timeout, holds });
    WatchedTrigger { spec: Ok(Arc::new(TriggerSpec { wait_for, ..(*spec).clone() })), ..asking(1, 60) }
}

/// The first version and the first content are noted.
fn settled(annotations: &Value, shown: WatchedTrigger) -> Index {
    let index = index();
    show(&index, "web", annotations, &["db"]);
    index.apply_trigger(Shows::Event, trigger("shop"), shown);
    learn(&index, "db", "1", "one");
    learn_vault(&index, 1);
    note(&index);
    index
}

/// Returns the verdict at a time, and why the source is held back.
fn seen(index: &Index, second: i64) -> (Option<Verdict>, Option<Deferral>) {
    let view = index.view(&key("web"), &digester(), at(second)).unwrap();
    (view.plan.verdict().cloned(), view.plan.comparison.deferral.get(&source()).cloned())
}

fn awaited(until: i64) -> Deferral {
    Deferral::Awaited(SourceName::secret("db"), Some(at(until)))
}

/// Returns the sources that a verdict rolls for.
fn changed(verdict: Option<Verdict>) -> Vec<String> {
    match verdict {
        Some(Verdict::Roll { changed, .. }) => changed,
        other => panic!("{other:?}"),
    }
}

#[test]
fn r17_it_waits_until_the_secret_has_followed() {
    let index = settled(&json!({}), waiting(false));
    assert_eq!(seen(&index, 1000), (Some(Verdict::Nothing), None));
    learn_vault(&index, 2);
    assert_eq!(seen(&index, 1000), (Some(Verdict::Nothing), Some(awaited(1000 + TIMEOUT))));
    assert!(matches!(state(&index, &trigger("shop")), TargetState::PendingRollout(_)), "it is not in sync");
    learn(&index, "db", "2", "one");
    assert_eq!(seen(&index, 1010).1, Some(awaited(1000 + TIMEOUT)), "the same content");
    index.forget_source(&secret("db"), at(1010));
    assert_eq!(seen(&index, 1010).1, Some(awaited(1000 + TIMEOUT)), "it is gone");
    learn(&index, "db", "3", "two");
    assert_eq!(changed(seen(&index, 1010).0), [VAULT]);
    note(&index);
    assert_eq!(seen(&index, 1010), (Some(Verdict::Nothing), None));
}

#[test]
fn r17_a_secret_that_was_quicker_is_not_waited_for() {
    let index = settled(&json!({}), waiting(false));
    learn(&index, "db", "2", "two");
    assert_eq!(seen(&index, 1000), (Some(Verdict::Nothing), None), "by itself it rolls nothing");
    learn_vault(&index, 2);
    assert_eq!(changed(seen(&index, 1000).0), [VAULT]);
}

#[test]
fn r17_a_change_of_the_secret_that_nothing_in_vault_goes_with_counts_no_more() {
    let index = settled(&json!({}), waiting(false));
    learn(&index, "db", "2", "somebody's");
    let again = index.view(&key("web"), &digester(), at(1119)).unwrap().plan.comparison.again;
    assert_eq!((seen(&index, 1119).0, again), (Some(Verdict::Nothing), Some(at(1120))));
    let failing = SecretState::Failing { reason: "x", text: "y".into() };
    index.learn_vault(&source().of(""), failing, None, at(1119));
    assert_eq!(seen(&index, 1120).0, Some(Verdict::Nothing), "Vault has not answered since");
    learn_vault(&index, 1);
    assert!(matches!(seen(&index, 1120).0, Some(Verdict::Note(_))));
    let view = index.view(&key("web"), &digester(), at(1120)).unwrap();
    let Some(Verdict::Note(content)) = view.plan.verdict().cloned() else {
        panic!("{:?}", view.plan.verdict().cloned())
    };
    let record = Record::of_content(digester().tag(view.uid()), content, None);
    index.wrote(&key("web"), view.uid(), "9", record.text(), None);
    learn_vault(&index, 2);
    assert_eq!(seen(&index, 1120).1, Some(awaited(1000 + TIMEOUT)));
}

#[test]
fn r17_after_the_deadline_it_rolls_and_once_more_when_the_secret_follows() {
    let index = settled(&json!({}), waiting(false));
    learn_vault(&index, 2);
    let end = 1000 + TIMEOUT;
    assert_eq!(seen(&index, end - 1).0, Some(Verdict::Nothing));
    let view = index.view(&key("web"), &digester(), at(end)).unwrap();
    let Some(Verdict::Roll { changed: for_what, content }) = view.plan.verdict().cloned() else {
        panic!("{:?}", view.plan.verdict().cloned())
    };
    assert_eq!(for_what, [VAULT]);
    assert_eq!(content.keys().collect::<Vec<_>>(), ["Late/db", VAULT]);
    let record = Record::of_content(digester().tag(view.uid()), content, None);
    index.wrote(&key("web"), view.uid(), "9", record.text(), None);
    assert_eq!(seen(&index, end), (Some(Verdict::Nothing), None));
    learn(&index, "db", "2", "two");
    assert_eq!(changed(seen(&index, end).0), ["Secret/db"], "the pods have read the old one");
    assert_eq!(note(&index), ["Awaited/db", VAULT]);
    assert_eq!(seen(&index, end), (Some(Verdict::Nothing), None));
}

#[test]
fn r17_with_hold_nothing_is_rolled_without_the_secret() {
    let index = settled(&json!({}), waiting(true));
    learn_vault(&index, 2);
    let end = 1000 + TIMEOUT;
    let overdue = Deferral::Overdue(SourceName::secret("db"), at(end));
    assert_eq!(seen(&index, end + 1000), (Some(Verdict::Nothing), Some(overdue)));
    learn(&index, "db", "2", "two");
    assert_eq!(changed(seen(&index, end + 1000).0), [VAULT]);
}

/// Its own wish to be rolled for the Secret is another thing.
#[test]
fn r17_who_is_rolled_for_the_secret_too_is_rolled_for_both() {
    let index = settled(&json!({ ON_CHANGE: "true" }), waiting(false));
    let record = index.lock().workloads.get(&key("web")).unwrap().record.shown.clone().unwrap();
    assert!(record.contains("\"Awaited/db\"") && record.contains("\"Secret/db\""), "{record}");
    learn_vault(&index, 2);
    assert_eq!(seen(&index, 1000).1, Some(awaited(1000 + TIMEOUT)));
    learn(&index, "db", "2", "two");
    assert_eq!(changed(seen(&index, 1000).0), ["Secret/db", VAULT], "in one rollout");
}

#[test]
fn r17_one_who_does_not_wait_is_not_kept_waiting() {
    let index = settled(&json!({}), waiting(false));
    let other = TriggerRef { name: "other".to_owned(), ..trigger("shop") };
    index.apply_trigger(Shows::Event, other.clone(), asking(1, 60));
    learn_vault(&index, 2);
    assert_eq!(changed(seen(&index, 1000).0), [VAULT]);
    index.forget_trigger(&other);
    assert_eq!(seen(&index, 1000).1, Some(awaited(1000 + TIMEOUT)));
}

/// After a restart the workload, its record and Vault may be known before the Secret was read.
#[test]
fn r17_what_was_not_read_is_neither_the_old_nor_the_new() {
    let index = settled(&json!({}), waiting(false));
    learn_vault(&index, 2);
    index.lock().sources.get_mut(&secret("db")).unwrap().read = None;
    let unread = Deferral::Awaited(SourceName::secret("db"), None);
    assert_eq!(seen(&index, 1000 + 10 * TIMEOUT), (Some(Verdict::Nothing), Some(unread)));
    learn(&index, "db", "2", "two");
    assert_eq!(changed(seen(&index, 1000 + 10 * TIMEOUT).0), [VAULT]);
}
