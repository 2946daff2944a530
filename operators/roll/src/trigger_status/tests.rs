use std::{collections::BTreeSet, sync::Arc};

use konverge_workload::{Keys, Progress, WorkloadKind};

use super::*;
use crate::{
    object::{SourceKind, SourceName},
    trigger::{Before, Leftovers, TriggerKind, TriggerSpec},
    vault::{self, SecretState, Version},
};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn key() -> TriggerRef {
    TriggerRef { kind: TriggerKind::VaultSyncStatus, namespace: "shop".to_owned(), name: "web".to_owned() }
}

fn source() -> SourceName {
    vault::source(SourceKind::Vault, "secret", "app").unwrap()
}

fn workload() -> WorkloadRef {
    WorkloadRef { namespace: "shop".to_owned(), kind: WorkloadKind::Deployment, name: "web".to_owned() }
}

fn shown(status: Status) -> WatchedTrigger {
    let spec = TriggerSpec {
        targets: BTreeSet::from([workload()]),
        choices: Vec::new(),
        sources: [(source(), Keys::All)].into(),
        every: Duration::from_mins(1),
        before: Before::Adopted,
        suspended: false,
        wait_for: None,
        notes: Vec::new(),
    };
    WatchedTrigger {
        uid: "u".to_owned(),
        version: "1".to_owned(),
        generation: Some(1),
        spec: Ok(Arc::new(spec)),
        deleting: false,
        leftovers: Leftovers::default(),
        status: Arc::new(status),
    }
}

fn target_statuses(state: TargetState) -> Vec<TargetStatus> {
    vec![TargetStatus { workload: workload(), source: source(), state }]
}

fn in_sync(number: u64, rolled: Option<i64>, progress: Progress) -> TargetState {
    let version = Version { number, created: format!("t{number}") };
    TargetState::InSync(InSync {
        uid: "w".to_owned(),
        version,
        rolled: rolled.map(at),
        because: rolled.map(|_| "why".to_owned()),
        since: None,
        progress,
    })
}

fn failing(reason: &'static str) -> TargetState {
    TargetState::Vault(SecretState::Failing { reason, text: "Vault says no".into() })
}

/// Ready, its reason, the original's word, and the reasons of events.
fn said(told: &StatusUpdate) -> (String, String, Option<String>, Vec<&'static str>) {
    let ready = told.status.conditions.get(READY).unwrap();
    let word = told.status.vault_sync.as_ref().map(|said| said.sync_status.clone());
    (ready.status.clone(), ready.reason.clone(), word, told.news.iter().map(|message| message.reason).collect())
}

#[test]
fn each_state_has_its_word() {
    let error = || Some(ERROR.to_owned());
    for (state, ready, reason, word, events) in [
        (in_sync(1, None, Progress::Ready), "True", reasons::IN_SYNC, Some(IN_SYNC.to_owned()), vec![]),
        (
            in_sync(2, Some(95), Progress::Running),
            "False",
            reasons::ROLLOUT_RUNNING,
            Some(SYNCED.to_owned()),
            vec![reasons::ROLLED_USER],
        ),
        (
            in_sync(2, Some(95), Progress::Failed),
            "False",
            reasons::ROLLOUT_FAILED,
            Some(SYNCED.to_owned()),
            vec![reasons::ROLLED_USER, reasons::ROLLOUT_FAILED],
        ),
        (TargetState::PendingRollout(PendingRollout::default()), "False", reasons::ROLLOUT_PENDING, None, vec![]),
        (TargetState::NoWorkload, "False", reasons::WORKLOAD_MISSING, error(), vec![reasons::WORKLOAD_MISSING]),
        (TargetState::NotAllowed, "False", reasons::NOT_ALLOWED, error(), vec![reasons::NOT_ALLOWED]),
        (TargetState::OptedOut, "False", reasons::OPTED_OUT, error(), vec![reasons::OPTED_OUT]),
        (
            TargetState::Vault(SecretState::Missing),
            "False",
            reasons::SECRET_NOT_FOUND,
            error(),
            vec![reasons::SECRET_NOT_FOUND],
        ),
        (
            TargetState::Vault(SecretState::Deleted),
            "False",
            reasons::SECRET_DELETED,
            error(),
            vec![reasons::SECRET_DELETED],
        ),
        (
            failing(reasons::PERMISSION_DENIED),
            "False",
            reasons::PERMISSION_DENIED,
            error(),
            vec![reasons::PERMISSION_DENIED],
        ),
    ] {
        let told =
            status_update(&key(), &shown(Status::default()), &target_statuses(state.clone()), Time::at(100)).unwrap();
        assert_eq!(said(&told), (ready.to_owned(), reason.to_owned(), word, events), "{state:?}");
    }
    assert_eq!(
        status_update(&key(), &shown(Status::default()), &target_statuses(TargetState::NotYet), Time::at(100)),
        None
    );
}

#[test]
fn rolled_for_something_else_since_it_is_as_well_as_its_pods_are() {
    for (progress, expected) in [
        (Progress::Ready, ("True", reasons::IN_SYNC)),
        (Progress::Running, ("True", reasons::IN_SYNC)),
        (Progress::Failed, ("False", reasons::ROLLOUT_FAILED)),
    ] {
        let mut state = in_sync(2, None, progress);
        let TargetState::InSync(in_sync) = &mut state else { panic!("{state:?}") };
        in_sync.since = Some("Secret/db changed (all)".to_owned());
        let told = status_update(&key(), &shown(Status::default()), &target_statuses(state), Time::at(100)).unwrap();
        let ready = told.status.conditions.get(READY).unwrap();
        assert_eq!((&*ready.status, &*ready.reason), expected, "{progress:?}");
        assert_eq!(ready.message.contains("Secret/db"), progress == Progress::Failed, "{}", ready.message);
    }
}

#[test]
fn synced_becomes_already_in_sync_and_nothing_is_said_twice() {
    let rolled = in_sync(2, Some(100), Progress::Ready);
    let first =
        status_update(&key(), &shown(Status::default()), &target_statuses(rolled.clone()), Time::at(110)).unwrap();
    assert_eq!(said(&first).2.as_deref(), Some(SYNCED));
    assert_eq!(first.again, Some(Duration::from_secs(50)));
    let again =
        status_update(&key(), &shown(first.status.clone()), &target_statuses(rolled.clone()), Time::at(120)).unwrap();
    assert_eq!((&again.status, again.news.len()), (&first.status, 0), "as it was");
    let later = status_update(&key(), &shown(first.status), &target_statuses(rolled), Time::at(160)).unwrap();
    assert_eq!((said(&later).2.as_deref(), later.again), (Some(IN_SYNC), None));
}

#[test]
fn an_outage_keeps_what_the_pods_run_with_and_its_end_is_told() {
    let calm = status_update(
        &key(),
        &shown(Status::default()),
        &target_statuses(in_sync(3, None, Progress::Ready)),
        Time::at(100),
    )
    .unwrap();
    let out = status_update(
        &key(),
        &shown(calm.status.clone()),
        &target_statuses(failing(reasons::VAULT_UNAVAILABLE)),
        Time::at(110),
    )
    .unwrap();
    assert_eq!(out.status.baseline, calm.status.baseline);
    assert_eq!(out.status.baseline[0].version, 3);
    let deferral =
        status_update(&key(), &shown(out.status), &target_statuses(in_sync(3, None, Progress::Ready)), Time::at(120))
            .unwrap();
    assert_eq!(said(&deferral).3, [reasons::IN_SYNC]);
}

#[test]
fn a_time_that_is_none_is_told_once_and_the_rest_goes_on() {
    let mut shown = shown(Status::default());
    let spec = shown.spec.clone().unwrap();
    shown.spec = Ok(Arc::new(TriggerSpec { notes: vec!["spec.timeStamp is none".into()], ..(*spec).clone() }));
    let told =
        status_update(&key(), &shown, &target_statuses(in_sync(1, None, Progress::Ready)), Time::at(100)).unwrap();
    assert_eq!(said(&told).1, reasons::INVALID_TIMESTAMP);
    assert_eq!(said(&told).3, [reasons::INVALID_TIMESTAMP]);
    shown.status = Arc::new(told.status);
    assert_eq!(
        status_update(&key(), &shown, &target_statuses(in_sync(1, None, Progress::Ready)), Time::at(100)).unwrap().news,
        []
    );
}

#[test]
fn what_is_wrong_is_told_before_all_is_known() {
    let mut both = target_statuses(TargetState::NotYet);
    both.extend(target_statuses(TargetState::NotAllowed));
    let told = status_update(&key(), &shown(Status::default()), &both, Time::at(100)).unwrap();
    assert_eq!(said(&told).1, reasons::NOT_ALLOWED);
    for reason in [reasons::INVALID_SPEC, reasons::PATH_NOT_ALLOWED] {
        let spec = Err(Refusal { reason, text: "spec.deployName is missing".into() });
        let shown = WatchedTrigger { spec, ..shown(Status::default()) };
        let told = status_update(&key(), &shown, &[], Time::at(100)).unwrap();
        assert_eq!((&*said(&told).1, said(&told).2.as_deref()), (reason, Some(ERROR)));
    }
}

fn of_ours() -> TriggerRef {
    TriggerRef { kind: TriggerKind::VaultRollout, ..key() }
}

fn held(until: i64) -> TargetState {
    let said = Statement::new(Severity::Notice, reasons::INTERVAL, "the minimum interval has not passed");
    TargetState::PendingRollout(PendingRollout { message: Some(said), until: Some(Time::at(until)) })
}

/// Each of these workloads with its state, in order.
fn many(states: impl IntoIterator<Item = TargetState>) -> Vec<TargetStatus> {
    let named = |number| WorkloadRef { name: format!("web-{number:04}"), ..workload() };
    let states = states.into_iter().enumerate();
    states.map(|(number, state)| TargetStatus { workload: named(number), source: source(), state }).collect()
}

/// The text of a condition.
fn condition(told: &StatusUpdate, kind: &str) -> Option<String> {
    told.status.conditions.get(kind).map(|condition| format!("{}: {}", condition.reason, condition.message))
}

#[test]
fn r14_with_a_thousand_workloads_it_stays_small() {
    let rolled = in_sync(2, Some(95), Progress::Ready);
    let states = (0..1000).map(|number| if number % 2 == 0 { held(150) } else { rolled.clone() });
    let told = status_update(&of_ours(), &shown(Status::default()), &many(states), Time::at(100)).unwrap();
    assert_eq!(
        (told.status.in_sync_workloads, told.status.workloads, told.status.pending_workloads),
        (Some(500), Some(1000), Some(500))
    );
    assert_eq!((&told.status.vault_sync, told.status.baseline.len()), (&None, 0));
    assert_eq!(said(&told).3, [reasons::ROLLED_USER], "one event for all");
    assert!(told.news[0].text.contains("web-0001 and 499 more"), "{:?}", told.news);
    let size = serde_json::to_string(&told.status).unwrap().len();
    assert!(size < 4096, "{size} bytes");
}

#[test]
fn r21_conditions_tell_what_when_why_and_until_when() {
    for key in [key(), of_ours()] {
        let both = many([held(150), in_sync(2, Some(95), Progress::Ready)]);
        let told = status_update(&key, &shown(Status::default()), &both, Time::at(100)).unwrap();
        let expected = "RolloutTriggered: Deployment shop/web-0001 was rolled at 1970-01-01T00:01:35Z for version 2 of Vault/secret:app: why";
        assert_eq!(condition(&told, ROLLED_OUT).as_deref(), Some(expected));
        let expected = "WaitingForInterval: Deployment shop/web-0000: the minimum interval has not passed; not before 1970-01-01T00:02:30Z";
        assert_eq!(condition(&told, HELD).as_deref(), Some(expected));
        assert_eq!(told.again, Some(Duration::from_secs(50)), "it may be another time then");
        // The last rollout stays reported after a rollout for another source. A hold that is over does not.
        let later = many([in_sync(2, Some(150), Progress::Ready), in_sync(2, None, Progress::Ready)]);
        let later = status_update(&key, &shown(told.status), &later, Time::at(160)).unwrap();
        assert_eq!(condition(&later, HELD), None);
        assert!(condition(&later, ROLLED_OUT).unwrap().contains("web-0000 was rolled at 1970-01-01T00:02:30Z"));
        let other = status_update(
            &key,
            &shown(later.status.clone()),
            &many([in_sync(2, None, Progress::Ready)]),
            Time::at(170),
        )
        .unwrap();
        assert_eq!(condition(&other, ROLLED_OUT), condition(&later, ROLLED_OUT));
    }
}

#[test]
fn nobody_to_roll_and_nobody_to_be_rolled_are_told() {
    let told = status_update(&of_ours(), &shown(Status::default()), &[], Time::at(100)).unwrap();
    assert_eq!(said(&told).1, reasons::NO_TARGETS);
    let mut shown = shown(Status::default());
    let spec = shown.spec.clone().unwrap();
    shown.spec = Ok(Arc::new(TriggerSpec { suspended: true, ..(*spec).clone() }));
    let told = status_update(&of_ours(), &shown, &target_statuses(TargetState::Suspended), Time::at(100)).unwrap();
    assert_eq!((&*said(&told).1, told.news), (reasons::SUSPENDED, vec![]));
}

#[test]
fn all_secrets_of_a_workload_are_named_and_the_others_are_counted() {
    let other = vault::source(SourceKind::Vault, "secret", "db").unwrap();
    let mut all = many([in_sync(2, None, Progress::Ready), in_sync(2, None, Progress::Ready)]);
    let second = TargetStatus { source: other, ..all[0].clone() };
    all.insert(1, second);
    let told = status_update(&of_ours(), &shown(Status::default()), &all, Time::at(100)).unwrap();
    let expected = "InSync: the pods of Deployment shop/web-0000 run with version 2 of Vault/secret:app, version 2 of Vault/secret:db; 1 more of 2 \
                    stand like this";
    assert_eq!(condition(&told, READY).as_deref(), Some(expected));
    assert_eq!((told.status.in_sync_workloads, told.status.workloads), (Some(2), Some(2)));
}
