use std::{
    cell::Cell,
    convert::Infallible,
    future::{self, Future},
};

use http::{Request, Response};
use kube::client::Body;
use tokio::{task::JoinHandle, time::timeout};

use super::{super::tests::LeaseServer, *};

const LIMIT: Duration = Duration::from_secs(60);

fn lease() -> LeaseOptions {
    LeaseOptions { identity: "drain".to_owned(), ..LeaseOptions::new("shop", "pull") }
}

/// An operator that leads.
async fn operator(server: &LeaseServer) -> (CancellationToken, JoinHandle<Result<(), LeaseLost>>) {
    let (elector, stop) = (server.elector("operator"), CancellationToken::new());
    let mut leads = elector.leadership();
    let running = tokio::spawn(elector.run(stop.clone()));
    leads.acquired().await;
    (stop, running)
}

async fn is_pending(work: impl Future, time: Duration) -> bool {
    timeout(time, work).await.is_err()
}

#[tokio::test(start_paused = true)]
async fn the_work_waits_until_the_operator_gives_up_its_lease_and_holds_it_meanwhile() {
    let server = LeaseServer::default();
    let (stop, running) = operator(&server).await;
    let (client, is_done) = (server.client(), Cell::new(false));
    let work = async |_: Client| {
        // Longer than a lease that nobody renews.
        sleep(LIMIT).await;
        assert_eq!(server.spec()["holderIdentity"], "drain");
        is_done.set(true);
    };
    let mut drain = pin!(stand_in(&client, lease(), LIMIT, work));
    assert!(is_pending(&mut drain, LIMIT / 2).await);
    assert_eq!(server.spec()["holderIdentity"], "operator");
    stop.cancel();
    running.await.expect("no panic").expect("a clean end");
    drain.await.expect("the work");
    assert!(is_done.get());
    assert_eq!(server.spec()["holderIdentity"], "", "it is given up");
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_an_operator_that_was_killed_runs_out() {
    let server = LeaseServer::default();
    let (_stop, running) = operator(&server).await;
    running.abort();
    let is_done = Cell::new(false);
    stand_in(&server.client(), lease(), LIMIT, async |_| is_done.set(true)).await.expect("the work");
    assert!(is_done.get());
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_nobody_stops_is_named_and_nothing_is_done() {
    let server = LeaseServer::default();
    let (_stop, _running) = operator(&server).await;
    let error = stand_in(&server.client(), lease(), LIMIT, async |_| panic!("the operator runs")).await.unwrap_err();
    let said = error.to_string();
    assert!(said.contains("operator has held the lease shop/pull for 60 s") && said.contains("Stop it"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_takes_the_lease_afterwards_is_named() {
    let server = LeaseServer::default();
    let (stop, running) = operator(&server).await;
    stop.cancel();
    running.await.expect("no panic").expect("a clean end");
    let (client, standby) = (server.client(), server.elector("standby"));
    let error = stand_in(&client, lease(), LIMIT, async |_| {
        // It looks on while the work is done.
        drop(tokio::spawn(standby.run(CancellationToken::new())));
        sleep(LIMIT).await;
    });
    let said = error.await.unwrap_err().to_string();
    assert!(said.contains("standby has taken the lease shop/pull since") && said.contains("Stop it"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn the_work_is_broken_off_when_the_lease_is_lost() {
    let server = LeaseServer::default();
    let (stop, running) = operator(&server).await;
    stop.cancel();
    running.await.expect("no panic").expect("a clean end");
    let client = server.client();
    let error = stand_in(&client, lease(), LIMIT, async |_| {
        server.hang();
        future::pending::<()>().await;
    });
    assert!(matches!(error.await, Err(StandInError::Lost(_))));
}

#[tokio::test(start_paused = true)]
async fn where_nobody_elects_a_leader_the_work_is_done_at_once_and_no_lease_is_made() {
    let server = LeaseServer::default();
    let is_done = Cell::new(false);
    stand_in(&server.client(), lease(), LIMIT, async |_| is_done.set(true)).await.expect("the work");
    assert!(is_done.get() && !server.has_lease());

    // A role that may not read leases is that of an operator that elects none.
    let refuse = |_: Request<Body>| {
        let said = r#"{"kind":"Status","status":"Failure","code":403,"reason":"Forbidden","message":"no"}"#;
        future::ready(Ok::<_, Infallible>(
            Response::builder().status(403).body(Body::from(said.as_bytes().to_vec())).expect("a response"),
        ))
    };
    is_done.set(false);
    let client = Client::new(tower::service_fn(refuse), "shop");
    stand_in(&client, lease(), LIMIT, async |_| is_done.set(true)).await.expect("the work");
    assert!(is_done.get());
}
