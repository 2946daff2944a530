//! Leadership among candidates on one API server.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use konverge_runtime::{
    LeaseOptions, Metrics,
    client::{self, ClientOptions},
    lease::Elector,
};
use konverge_testkit::{ControlPlane, Options, eventually};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use super::control_plane;

struct Candidate {
    identity: String,
    leading: watch::Receiver<bool>,
    stop: CancellationToken,
    run: JoinHandle<Result<(), konverge_runtime::lease::LeaseLost>>,
}

async fn impatient(control_plane: &ControlPlane) -> Client {
    let options = ClientOptions { kubeconfig: Some(control_plane.kubeconfig().to_owned()), ..ClientOptions::default() };
    client::build(&options.impatient(), Metrics::new("test", "0").client()).await.unwrap()
}

/// A candidate whose times are a fifth of the usual ones.
async fn candidate(control_plane: &ControlPlane, namespace: &str) -> Candidate {
    let options = LeaseOptions {
        duration: Duration::from_secs(3),
        renew_deadline: Duration::from_secs(2),
        retry_period: Duration::from_millis(200),
        ..LeaseOptions::new(namespace, "test")
    };
    let (identity, stop) = (options.identity.clone(), CancellationToken::new());
    let elector = Elector::new(impatient(control_plane).await, options);
    Candidate { identity, leading: elector.leading(), stop: stop.clone(), run: tokio::spawn(elector.run(stop)) }
}

impl Candidate {
    fn leads(&self) -> bool {
        *self.leading.borrow()
    }

    async fn comes_to_lead(&mut self) {
        let led = tokio::time::timeout(Duration::from_secs(20), self.leading.wait_for(|leads| *leads)).await;
        assert!(matches!(led, Ok(Ok(_))), "{} does not lead", self.identity);
    }
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
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(first.leads() && !second.leads(), "longer than the lease, and the first still renews");

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
    tokio::time::sleep(Duration::from_millis(500)).await;
    first.run.abort();
    let died = std::time::Instant::now();
    second.comes_to_lead().await;
    assert!(died.elapsed() > Duration::from_secs(2), "{:?}", died.elapsed());
}

#[tokio::test]
async fn without_an_api_server_leadership_is_lost_before_the_lease_ends() {
    let mut control_plane = ControlPlane::start(Options::default()).await.unwrap();
    let namespace = control_plane.namespace("lease").await.unwrap();
    let mut only = candidate(&control_plane, &namespace).await;
    only.comes_to_lead().await;
    control_plane.kill_api_server().unwrap();
    let away = std::time::Instant::now();
    let lost = eventually(Duration::from_secs(10), async || (!only.leads()).then(|| away.elapsed())).await.unwrap();
    assert!(lost < Duration::from_secs(3), "{lost:?}");
    let error = only.run.await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), format!("lost lease {namespace}/test: not renewed for 2s"));
}
