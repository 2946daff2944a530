//! Deployments in sync, and an operator behind a fault proxy.

use konverge_testkit::fault_proxy::FaultProxy;

use crate::{
    stage::{Result, Running, Stage, until},
    view::View,
};

/// The number of Deployments, each of which uses a Secret of its own.
pub(crate) const OBJECTS: usize = 5;

/// All of them in sync, and an operator behind a fault proxy.
pub(crate) async fn set(stage: &Stage, name: &str, arguments: &[&str]) -> (View, FaultProxy, Running) {
    let view = stage.view(name).await;
    for number in 0..OBJECTS {
        view.deployment(&format!("web-{number}"), &format!("db-{number}")).await.unwrap();
    }
    rotate(&view, 0).await;
    let proxy = FaultProxy::start(stage.plane.run_directory(), stage.kubeconfig()).await.unwrap();
    let operator = stage.start_through(proxy.kubeconfig(), &view.namespace, arguments).await;
    are_rolled(&view, 0).await;
    (view, proxy, operator)
}

/// Changes each Secret.
pub(crate) async fn rotate(view: &View, round: usize) {
    for number in 0..OBJECTS {
        view.secret(&format!("db-{number}"), &round.to_string()).await.unwrap();
    }
}

/// Waits until each Deployment was rolled so often.
pub(crate) async fn are_rolled(view: &View, times: usize) {
    until(&format!("all are rolled {times} times"), async || all_are_rolled(view, times).await).await;
}

pub(crate) async fn all_are_rolled(view: &View, times: usize) -> Result<bool> {
    for number in 0..OBJECTS {
        if !view.is_rolled(&format!("web-{number}"), times).await? {
            return Ok(false);
        }
    }
    Ok(true)
}
