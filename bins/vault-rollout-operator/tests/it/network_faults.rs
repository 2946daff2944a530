//! The network to the API server fails, at times and for a time (F03, F12).

use konverge_testkit::{
    fault_proxy::{Plan, UNSTEADY},
    http_get,
};

use crate::{
    stage::{Stage, until},
    way::{OBJECTS, all_are_rolled, are_rolled, rotate, set},
};

/// Each Secret is changed so often while the way is bad.
const ROUNDS: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn f12_on_an_unsteady_way_each_change_is_one_rollout() {
    let stage = Stage::shared().await;
    let (view, proxy, mut operator) = set(stage, "unsteady", &[]).await;
    proxy.set(Plan::parse(UNSTEADY).unwrap()).unwrap();
    for round in 1..=ROUNDS {
        rotate(&view, round).await;
        are_rolled(&view, round).await;
    }
    let fired = proxy.fired();
    assert!(fired.iter().sum::<u64>() >= 10, "{fired:?}");
    proxy.clear();
    operator.settled().await;
    are_rolled(&view, ROUNDS).await;
    assert_eq!(operator.process.status(), None, "it has not ended");
}

/// The number of requests that have failed once each of the six watches was tried twice in vain.
const FAILED: f64 = 12.0;

#[tokio::test(flavor = "multi_thread")]
async fn f03_what_changes_while_the_api_server_is_out_of_reach_is_rolled_once_after() {
    let stage = Stage::shared().await;
    let (view, proxy, mut operator) = set(stage, "apart", &[]).await;
    proxy.down_until_cleared();
    for round in 1..=3 {
        rotate(&view, round).await;
    }
    let failed = async || operator.metric("rest_client_requests_total", "code=\"<error>\"").await;
    let before = failed().await;
    until("requests have failed again and again", async || Ok(failed().await >= before + FAILED)).await;
    assert!(all_are_rolled(&view, 0).await.unwrap());
    assert_eq!(http_get(&operator.address, "/healthz").await.unwrap().0, 200);
    let begun = proxy.mark();
    proxy.clear();
    are_rolled(&view, 1).await;
    operator.settled().await;
    assert!(all_are_rolled(&view, 1).await.unwrap());
    // Later events of the watches deliver the missed changes.
    assert_eq!(proxy.requests_since(begun).writes().len(), OBJECTS);
    assert_eq!(operator.process.status(), None, "it has not ended");
}
