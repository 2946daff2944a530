use std::time::Duration;

use super::{
    super::tests::{Story, manager},
    *,
};
use crate::lease::tests::LeaseServer;

async fn nowhere() -> ManagerGroup {
    ManagerGroup::listen(Listen::Nowhere).await.expect("nothing to take")
}

/// A job that tells when it was stopped and, last, what `on_shutdown` runs.
async fn tidy(name: &'static str, story: &Story) -> Manager {
    let mut manager = manager().await;
    let (stop, told) = (manager.stop_tasks(), story.clone());
    manager.stopping_task("tidy", async move {
        stop.cancelled().await;
        // Others that end at once do not wait for this one.
        tokio::time::sleep(Duration::from_millis(20)).await;
        told.tell(format!("{name} stopped"));
    });
    let told = story.clone();
    manager.on_shutdown(async move { told.tell(format!("on shutdown of {name}")) });
    manager
}

/// How it ended, told in one line.
async fn ended(group: ManagerGroup) -> String {
    let ended = tokio::time::timeout(Duration::from_secs(60), group.run()).await.expect("in time");
    ended.map_or_else(|error| konverge_core::error::in_one_line(&error), |()| "well".to_owned())
}

#[tokio::test]
async fn one_that_fails_stops_the_others_in_their_order_and_is_named() {
    let (mut group, story) = (nowhere().await, Story::default());
    let mut failing = manager().await;
    failing.task("short", async {});
    let told = story.clone();
    failing.on_shutdown(async move { told.tell("on shutdown of pull".to_owned()) });
    group.job("pull", failing);
    group.job("push", tidy("push", &story).await);
    assert_eq!(ended(group).await, "the job pull failed: task short ended unexpectedly");
    assert_eq!(story.told(), ["push stopped", "on shutdown of pull", "on shutdown of push"]);
}

#[tokio::test]
async fn one_that_is_told_to_stop_stops_all_while_it_ends_itself() {
    let (mut group, story) = (nowhere().await, Story::default());
    let (mut told, other) = (tidy("pull", &story).await, tidy("push", &story).await);
    // It ends only when the other has.
    let (stop, seen) = (told.stop_tasks(), story.clone());
    told.stopping_task("patient", async move {
        stop.cancelled().await;
        seen.reach(2).await;
    });
    told.shutdown().cancel();
    group.job("pull", told);
    group.job("push", other);
    assert_eq!(ended(group).await, "well");
    let mut stopped = story.told();
    stopped[..2].sort();
    assert_eq!(stopped, ["pull stopped", "push stopped", "on shutdown of pull", "on shutdown of push"]);
}

#[tokio::test]
async fn a_lost_lease_drops_that_job_and_the_others_hand_over_theirs() {
    let (mut group, story) = (nowhere().await, Story::default());
    let (lost, kept) = (LeaseServer::default(), LeaseServer::default());
    let mut losing = manager().await.leader_election(lost.elector("loser"));
    losing.leader_task("only one", story.clone().task("pull", lost.clone()));
    group.job("pull", losing);
    let mut keeping = tidy("push", &story).await.leader_election(kept.elector("keeper"));
    keeping.leader_task("only one", story.clone().task("push", kept.clone()));
    group.job("push", keeping);
    let running = tokio::spawn(ended(group));
    story.reach(2).await;
    lost.hang();
    let said = running.await.expect("no panic");
    assert_eq!(said, "the job pull failed: no longer the leader: lost the lease shop/pull");
    let told = story.told();
    let after = &told[2..];
    assert_eq!(after[0], r#"pull dropped, held by "loser""#, "{told:?}");
    for wanted in [r#"push dropped, held by "keeper""#, "push stopped", "on shutdown of push"] {
        assert!(after.iter().any(|told| told == wanted), "{told:?}");
    }
    assert_eq!(kept.spec()["holderIdentity"], "", "its lease is given back");
}

#[tokio::test]
async fn each_waits_for_its_own_lease() {
    let (lease, other, story) = (LeaseServer::default(), LeaseServer::default(), Story::default());
    let mut first = manager().await.leader_election(lease.elector("somebody"));
    first.leader_task("only one", story.clone().task("somebody", lease.clone()));
    let stop_first = first.shutdown();
    let first = tokio::spawn(first.run_until_shutdown());
    story.reach(1).await;

    let mut group = nowhere().await;
    let mut waiting = manager().await.leader_election(lease.elector("waiting"));
    waiting.leader_task("only one", story.clone().task("pull", lease.clone()));
    let mut working = manager().await.leader_election(other.elector("working"));
    working.leader_task("only one", story.clone().task("push", other.clone()));
    let stop = working.shutdown();
    group.job("pull", waiting);
    group.job("push", working);
    let running = tokio::spawn(ended(group));
    story.reach(2).await;
    assert_eq!(story.told(), ["somebody began", "push began"]);
    stop_first.cancel();
    first.await.expect("no panic").expect("a clean end");
    story.reach(4).await;
    assert_eq!(story.told()[2..], [r#"somebody dropped, held by "somebody""#, "pull began"]);
    stop.cancel();
    assert_eq!(running.await.expect("no panic"), "well");
}

#[tokio::test]
async fn the_first_failure_counts_and_one_that_does_not_end_in_time_does_not_hold_up_the_rest() {
    let (mut group, story) = (nowhere().await, Story::default());
    let mut stubborn = manager().await.grace(Duration::from_millis(50));
    stubborn.stopping_task("stubborn", std::future::pending());
    group.job("roll", stubborn);
    group.job("push", tidy("push", &story).await);
    let mut panicking = manager().await;
    panicking.task("loud", async { panic!("on purpose") });
    group.job("pull", panicking);
    assert_eq!(ended(group).await, "the job pull failed: task loud panicked: on purpose");
    assert_eq!(story.told(), ["push stopped", "on shutdown of push"]);
}
