use k8s_openapi::jiff::Timestamp;

use super::*;

fn stamp(second: i64) -> MicroTime {
    MicroTime(Timestamp::from_second(second).expect("a second in range"))
}

fn held_by(holder: &str, renewed: i64) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        lease_duration_seconds: Some(15),
        renew_time: Some(stamp(renewed)),
        ..LeaseSpec::default()
    }
}

fn candidate() -> Election {
    Election::new("me".to_owned(), Timings::default())
}

fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

#[test]
fn a_lease_that_nobody_made_is_made() {
    let (mut election, now) = (candidate(), Instant::now());
    assert_eq!(election.decide(now, &stamp(1)), Decision::Read);
    election.found(None, now);
    let Decision::Create(spec) = election.decide(now, &stamp(1)) else { panic!("create") };
    assert_eq!(spec.holder_identity.as_deref(), Some("me"));
    assert_eq!((spec.lease_duration_seconds, spec.lease_transitions), (Some(15), Some(0)));
    assert_eq!((spec.acquire_time, spec.renew_time), (Some(stamp(1)), Some(stamp(1))));
}

#[test]
fn the_lease_of_another_is_respected_from_when_it_was_seen_whatever_its_clock_says() {
    let (mut election, start) = (candidate(), Instant::now());
    election.found(Some((held_by("other", -1_000_000), "1".to_owned())), start);
    assert_eq!(election.decide(start + seconds(14), &stamp(1)), Decision::Wait);
    let Decision::Replace { spec, version } = election.decide(start + seconds(15), &stamp(1)) else { panic!("take") };
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions, &*version), (Some("me"), Some(1), "1"));
}

#[test]
fn it_is_known_when_the_lease_of_another_runs_out() {
    let (mut election, start) = (candidate(), Instant::now());
    assert_eq!(election.runs_out(), None);
    let promised = LeaseSpec { lease_duration_seconds: Some(20), ..held_by("other", 1) };
    election.found(Some((promised, "1".to_owned())), start);
    assert_eq!(election.runs_out(), Some(start + seconds(20)));
    election.found(Some((held_by("", 1), "2".to_owned())), start);
    assert_eq!(election.runs_out(), None);
    election.written(held_by("me", 1), "3".to_owned(), start);
    assert_eq!(election.runs_out(), None);
}

#[test]
fn a_renewal_starts_the_wait_anew_and_an_edited_label_does_not() {
    let (mut election, start) = (candidate(), Instant::now());
    election.found(Some((held_by("other", 1), "1".to_owned())), start);
    election.found(Some((held_by("other", 2), "2".to_owned())), start + seconds(10));
    assert_eq!(election.decide(start + seconds(24), &stamp(1)), Decision::Wait);
    election.found(Some((held_by("other", 2), "3".to_owned())), start + seconds(24));
    assert!(
        matches!(election.decide(start + seconds(25), &stamp(1)), Decision::Replace { version, .. } if version == "3")
    );
}

#[test]
fn a_released_lease_is_taken_at_once() {
    let (mut election, now) = (candidate(), Instant::now());
    election.found(Some((held_by("", 1), "1".to_owned())), now);
    assert!(matches!(election.decide(now, &stamp(1)), Decision::Replace { .. }));
}

#[test]
fn leading_counts_from_when_the_write_was_sent_and_ends_without_a_renewal() {
    let (mut election, sent) = (candidate(), Instant::now());
    election.written(held_by("me", 1), "1".to_owned(), sent);
    assert_eq!(election.leads_until(), Some(sent + seconds(10)));
    election.begin_round();
    let Decision::Replace { spec, .. } = election.decide(sent + seconds(2), &stamp(3)) else { panic!("renew") };
    assert_eq!(spec, LeaseSpec { renew_time: Some(stamp(3)), ..held_by("me", 1) });
    election.failed();
    assert_eq!(election.decide(sent + seconds(9), &stamp(3)), Decision::Read);
    assert_eq!(election.decide(sent + seconds(10), &stamp(3)), Decision::Lost);
}

#[test]
fn a_leader_that_reads_another_holder_has_lost() {
    let (mut election, sent) = (candidate(), Instant::now());
    election.written(held_by("me", 1), "1".to_owned(), sent);
    election.found(Some((held_by("other", 2), "2".to_owned())), sent + seconds(1));
    assert_eq!(election.decide(sent + seconds(1), &stamp(3)), Decision::Lost);
    assert_eq!(election.other_holder(), Some("other"));
    assert_eq!(election.release(&stamp(3)), None);
}

#[test]
fn a_release_says_so_and_lasts_a_second() {
    let (mut election, sent) = (candidate(), Instant::now());
    assert_eq!(election.release(&stamp(1)), None);
    election.written(held_by("me", 1), "1".to_owned(), sent);
    let (spec, version) = election.release(&stamp(2)).expect("a release");
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_duration_seconds, &*version), (Some(""), Some(1), "1"));
}
