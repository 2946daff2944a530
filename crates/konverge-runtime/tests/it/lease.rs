//! Leadership among candidates on one API server.

use std::{future, sync::Arc, time::Duration};

use k8s_openapi::{
    api::coordination::v1::Lease,
    jiff::{SignedDuration, Timestamp},
};
use konverge_core::error::{Classify, ErrorClass};
use konverge_runtime::{
    Action, Controller, LeaseOptions, Manager, Metrics, Priority, Queue, Reconciler, Request,
    client::{self, ClientOptions},
    lease::{Elector, Leadership, Timings},
    manager::RunError,
};
use konverge_testkit::{ControlPlane, Options, eventually};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use tokio::{sync::Notify, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use super::{control_plane, http::get, requests};

struct Candidate {
    identity: String,
    metrics: Metrics,
    leading: Leadership,
    stop: CancellationToken,
    run: JoinHandle<Result<(), konverge_runtime::lease::LeaseLost>>,
}

async fn fail_fast_client(control_plane: &ControlPlane, metrics: &Metrics) -> Client {
    let options =
        ClientOptions::default().with(|options| options.kubeconfig = Some(control_plane.kubeconfig().to_owned()));
    client::build(&options.fail_fast(), metrics.client()).await.unwrap()
}

fn short_timings() -> Timings {
    Timings::new(Duration::from_secs(3), Duration::from_secs(2), Duration::from_millis(200)).unwrap()
}

/// A candidate whose times are a fifth of the usual ones.
async fn candidate(control_plane: &ControlPlane, namespace: &str) -> Candidate {
    let options = LeaseOptions::new(namespace, "test").with(|lease| lease.timings = short_timings());
    let (identity, stop, metrics) = (options.identity.clone(), CancellationToken::new(), Metrics::new("test", "0"));
    let elector = Elector::new(fail_fast_client(control_plane, &metrics).await, options);
    let leading = elector.leadership();
    Candidate { identity, metrics, leading, stop: stop.clone(), run: tokio::spawn(elector.run(stop)) }
}

impl Candidate {
    fn is_leader(&self) -> bool {
        self.leading.is_leader()
    }

    async fn comes_to_lead(&mut self) {
        let led = tokio::time::timeout(Duration::from_secs(20), self.leading.acquired()).await;
        assert!(led.is_ok(), "{} does not lead", self.identity);
    }

    /// Waits until it has seen the lease.
    async fn has_looked(&self) {
        let looked = || future::ready((requests(&self.metrics) > 0).then_some(()));
        eventually(Duration::from_secs(20), looked).await.unwrap();
    }
}

/// The holder of the lease, and the time of the last renewal.
async fn held(api: &Api<Lease>) -> (Option<String>, Timestamp) {
    let spec = api.get("test").await.unwrap().spec.unwrap();
    (spec.holder_identity, spec.renew_time.unwrap().0)
}

#[tokio::test]
async fn one_leads_and_hands_over_when_it_stops() {
    let control_plane = control_plane().await;
    let namespace = control_plane.namespace("lease").await.unwrap();
    let mut first = candidate(control_plane, &namespace).await;
    first.comes_to_lead().await;
    let mut second = candidate(control_plane, &namespace).await;
    let api: Api<Lease> = Api::namespaced(control_plane.admin_client().await.unwrap(), &namespace);
    let label = serde_json::json!({"metadata": {"labels": {"team": "a"}}});
    api.patch("test", &PatchParams::default(), &Patch::Merge(&label)).await.unwrap();
    second.has_looked().await;
    let (_, began) = held(&api).await;
    let goes_on = eventually(Duration::from_secs(20), || async {
        let (holder, renewed) = held(&api).await;
        assert_eq!(holder.as_ref(), Some(&first.identity));
        // The lease has run out, were it not renewed.
        (renewed.duration_since(began) > SignedDuration::from_secs(3)).then_some(())
    });
    goes_on.await.unwrap();
    assert!(first.is_leader() && !second.is_leader());

    first.stop.cancel();
    first.run.await.unwrap().unwrap();
    let began = std::time::Instant::now();
    second.comes_to_lead().await;
    assert!(began.elapsed() < Duration::from_secs(2), "released, so not waited for: {:?}", began.elapsed());
    let lease = api.get("test").await.unwrap();
    let spec = lease.spec.unwrap();
    assert_eq!(spec.holder_identity.as_ref(), Some(&second.identity));
    assert_eq!(lease.metadata.labels, Some([("team".to_owned(), "a".to_owned())].into()));
}

#[tokio::test]
async fn a_dead_leader_is_followed_after_the_lease_and_no_earlier() {
    let control_plane = control_plane().await;
    let namespace = control_plane.namespace("lease").await.unwrap();
    let mut first = candidate(control_plane, &namespace).await;
    first.comes_to_lead().await;
    let mut second = candidate(control_plane, &namespace).await;
    second.has_looked().await;
    first.run.abort();
    let died = std::time::Instant::now();
    second.comes_to_lead().await;
    assert!(died.elapsed() > Duration::from_secs(2), "{:?}", died.elapsed());
}

#[tokio::test]
async fn without_an_api_server_leadership_is_lost_before_the_lease_ends() {
    let mut control_plane = ControlPlane::start(Options::ours()).await.unwrap();
    let namespace = control_plane.namespace("lease").await.unwrap();
    let mut only = candidate(&control_plane, &namespace).await;
    only.comes_to_lead().await;
    control_plane.kill_api_server().unwrap();
    let away = std::time::Instant::now();
    let lost = eventually(Duration::from_secs(10), async || (!only.is_leader()).then(|| away.elapsed())).await.unwrap();
    assert!(lost < Duration::from_secs(3), "{lost:?}");
    let error = only.run.await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), format!("lost the lease {namespace}/test"));
}

/// Tells that it ran.
struct Tells(Notify);

#[derive(Debug, thiserror::Error)]
#[error("never")]
struct Never;

impl Classify for Never {
    fn class(&self) -> ErrorClass {
        ErrorClass::Permanent
    }

    fn reason(&self) -> &'static str {
        "Never"
    }
}

impl Reconciler for Tells {
    type Key = &'static str;
    type Error = Never;

    async fn reconcile(&self, _: Request<&'static str>) -> Result<Action, Never> {
        self.0.notify_one();
        Ok(Action::Done)
    }
}

/// A program with one controller, with a lease, and work waiting.
async fn program(control_plane: &ControlPlane, namespace: &str) -> (Manager, Arc<Tells>) {
    let options = LeaseOptions::new(namespace, "test").with(|lease| lease.timings = short_timings());
    let metrics = Metrics::new("test", "0");
    let elector = Elector::new(fail_fast_client(control_plane, &metrics).await, options);
    let manager = Manager::bind(([127, 0, 0, 1], 0).into(), metrics).await.unwrap();
    let mut manager = manager.leader_election(elector);
    let tells = Arc::new(Tells(Notify::new()));
    let queue = Queue::new("test", manager.metrics().queues());
    queue.add("work", Priority::Normal, "test");
    manager.controller("test", Controller::new(Arc::clone(&tells), queue, manager.metrics().controllers()));
    (manager, tells)
}

#[tokio::test]
async fn a_standby_is_ready_and_works_as_soon_as_it_leads_and_a_loss_ends_the_program() {
    let mut control_plane = ControlPlane::start(Options::ours()).await.unwrap();
    let namespace = control_plane.namespace("lease").await.unwrap();
    let (leader, leader_ran) = program(&control_plane, &namespace).await;
    let stop_leader = leader.shutdown();
    let leader = tokio::spawn(leader.run());
    leader_ran.0.notified().await;

    let (standby, standby_ran) = program(&control_plane, &namespace).await;
    let address = standby.address();
    let standby = tokio::spawn(standby.run());
    let standby_status =
        async || get(address, "/metrics").await.1.contains(r#"leader_election_master_status{name="test"} 1"#);
    eventually(Duration::from_secs(10), async || (get(address, "/readyz").await.0 == 200).then_some(())).await.unwrap();
    let early = tokio::time::timeout(Duration::from_secs(1), standby_ran.0.notified()).await;
    assert!(early.is_err() && !standby_status().await, "it worked without the lease");

    stop_leader.cancel();
    leader.await.unwrap().unwrap();
    tokio::time::timeout(Duration::from_secs(10), standby_ran.0.notified()).await.unwrap();
    assert!(standby_status().await);

    control_plane.kill_api_server().unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(10), standby).await.unwrap().unwrap();
    assert!(matches!(ended, Err(RunError::LeaseLost(_))), "{ended:?}");
}
