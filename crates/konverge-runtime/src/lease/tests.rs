use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};

use super::*;

/// As much of an API server as one Lease needs, in memory.
#[derive(Clone, Default)]
pub(crate) struct LeaseServer(Arc<Inner>);

#[derive(Default)]
struct Inner {
    lease: Mutex<Option<Value>>,
    hangs: AtomicBool,
}

impl LeaseServer {
    pub(crate) fn elector(&self, identity: &str) -> Elector {
        self.elector_that_renews_every(identity, Duration::from_millis(50))
    }

    fn elector_that_renews_every(&self, identity: &str, period: Duration) -> Elector {
        let timings = Timings::new(Duration::from_secs(4), Duration::from_secs(2), period);
        let options = LeaseOptions {
            identity: identity.to_owned(),
            timings: timings.expect("good timings"),
            ..LeaseOptions::new("shop", "pull")
        };
        Elector::new(self.client(), options)
    }

    pub(crate) fn client(&self) -> Client {
        let server = self.clone();
        Client::new(tower::service_fn(move |request| server.clone().answer(request)), "shop")
    }

    pub(crate) fn has_lease(&self) -> bool {
        self.0.lease.lock().expect("no panic").is_some()
    }

    /// From now on no answer comes.
    pub(crate) fn hang(&self) {
        self.0.hangs.store(true, Ordering::SeqCst);
    }

    pub(crate) fn spec(&self) -> Value {
        self.0.lease.lock().expect("no panic").as_ref().expect("a lease")["spec"].clone()
    }

    async fn answer(self, request: Request<Body>) -> Result<Response<Body>, tower::BoxError> {
        if self.0.hangs.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        let method = request.method().clone();
        let body = request.into_body().collect_bytes().await?;
        let mut sent: Value = serde_json::from_slice(&body).unwrap_or_default();
        let mut lease = self.0.lease.lock().expect("no panic");
        let version = |lease: &Value| lease["metadata"]["resourceVersion"].as_str().map(ToOwned::to_owned);
        let code = match (&method, &mut *lease) {
            (&Method::GET, Some(_)) => StatusCode::OK,
            (&Method::GET | &Method::PATCH, None) => StatusCode::NOT_FOUND,
            (&Method::POST, None) => {
                sent["metadata"]["resourceVersion"] = json!("1");
                *lease = Some(sent);
                StatusCode::CREATED
            }
            (&Method::PATCH, Some(old)) if version(old) == version(&sent) => {
                let next = version(old).and_then(|version| version.parse::<u64>().ok()).expect("a number") + 1;
                old["metadata"]["resourceVersion"] = json!(next.to_string());
                old["spec"] = sent["spec"].take();
                StatusCode::OK
            }
            _ => StatusCode::CONFLICT,
        };
        let reason = if code == StatusCode::NOT_FOUND { "NotFound" } else { "Conflict" };
        let refusal =
            json!({"kind": "Status", "status": "Failure", "code": code.as_u16(), "reason": reason, "message": ""});
        let answer = lease.as_ref().filter(|_| code.is_success()).unwrap_or(&refusal);
        Ok(Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()))?)
    }
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), what).await.expect("in time")
}

#[tokio::test]
async fn the_first_leads_and_its_release_lets_the_second_in_at_once() {
    let server = LeaseServer::default();
    let (first, second) = (server.elector("first"), server.elector("second"));
    let (mut first_leads, mut second_leads) = (first.leadership(), second.leadership());
    let (release, stop) = (CancellationToken::new(), CancellationToken::new());
    let first = tokio::spawn(first.run(release.clone()));
    soon(first_leads.acquired()).await;
    let second = tokio::spawn(second.run(stop.clone()));
    assert!(first_leads.is_leader() && !second_leads.is_leader());

    release.cancel();
    soon(first).await.expect("no panic").expect("a clean end");
    assert!(!first_leads.is_leader());
    // Four seconds would be the lease of a holder that said nothing.
    let waiting_since = Instant::now();
    soon(second_leads.acquired()).await;
    assert!(waiting_since.elapsed() < Duration::from_secs(2));
    assert_eq!((&server.spec()["holderIdentity"], &server.spec()["leaseTransitions"]), (&json!("second"), &json!(1)));

    stop.cancel();
    soon(second).await.expect("no panic").expect("a clean end");
    assert_eq!(server.spec()["holderIdentity"], json!(""));
}

#[tokio::test]
async fn a_leader_that_cannot_renew_stops_leading_by_itself() {
    let server = LeaseServer::default();
    let elector = server.elector("only");
    let mut leadership = elector.leadership();
    let running = tokio::spawn(elector.run(CancellationToken::new()));
    soon(leadership.acquired()).await;
    server.hang();
    let error = soon(running).await.expect("no panic").expect_err("a lost lease");
    assert_eq!(error.to_string(), "lost the lease shop/pull");
    assert!(!leadership.is_leader());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_nobody_renews_is_taken_when_it_runs_out_and_not_at_the_next_look() {
    let server = LeaseServer::default();
    let first = server.elector("first");
    let mut leads = first.leadership();
    let first = tokio::spawn(first.run(CancellationToken::new()));
    leads.acquired().await;
    first.abort();
    // The lease is of four seconds, and looks every 0.8 to 0.96 seconds come at no multiple of it.
    let second = server.elector_that_renews_every("second", Duration::from_millis(1600));
    let (mut leads, began) = (second.leadership(), Instant::now());
    let second = tokio::spawn(second.run(CancellationToken::new()));
    leads.acquired().await;
    let waited = began.elapsed();
    assert!(waited >= Duration::from_secs(4) && waited < Duration::from_millis(4050), "{waited:?}");
    second.abort();
}

#[tokio::test]
async fn a_standby_can_be_stopped_while_nothing_answers() {
    let server = LeaseServer::default();
    server.hang();
    let stop = CancellationToken::new();
    let running = tokio::spawn(server.elector("only").run(stop.clone()));
    stop.cancel();
    soon(running).await.expect("no panic").expect("a clean end");
}

#[test]
fn a_starved_leader_stops_being_one() {
    let sender = watch::Sender::new(Some(Instant::now() + Duration::from_secs(10)));
    let leadership = Leadership(sender.subscribe());
    assert!(leadership.is_leader());
    sender.send_replace(Some(Instant::now()));
    assert!(!leadership.is_leader());
}

#[test]
fn timings_that_contradict_each_other_are_refused() {
    let timings = |numbers: [u64; 3]| {
        let [lease, renew, retry] = numbers.map(Duration::from_millis);
        Timings::new(lease, renew, retry).map_err(|error| error.to_string())
    };
    assert_eq!(timings([15_000, 10_000, 2_000]), Ok(Timings::default()));
    for wrong in [[15_500, 10_000, 2_000], [10_000, 10_000, 2_000], [15_000, 2_000, 2_000]] {
        assert!(timings(wrong).is_err_and(|error| error.contains("renew deadline")), "{wrong:?}");
    }
}

#[test]
fn no_two_identities_are_equal() {
    assert_ne!(identity(), identity());
}
