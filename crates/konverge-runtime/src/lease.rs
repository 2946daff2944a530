//! Leader election: of several replicas one works, the others stand by.
//!
//! The semantics are client-go's: a `Lease` object of 15 seconds, renewed every 2, given up after 10 without a renewal, and taken
//! by another only when it was *seen* unchanged for the whole lease. Why two never lead at once: `lease/state.rs`.
//!
//! Guarantees: [`Leadership::is_leader`] answers no from the moment the leadership could pass to another, even when the renewing
//! task is starved. A client behind [`Leadership::gate`] asks it before each step of each write. Losing the lease ends [`Elector::run`] with an error; nobody campaigns again in the same process, because
//! work begun under the old leadership may still be under way.
//!
//! Assumes: no clock runs half as fast again as another, and nobody deletes the `Lease` of a living leader, which would let a
//! second one in for up to the renew deadline. Does not fence: a request that was sent while leading
//! can arrive after the leadership ended, so every write needs a precondition or must be harmless to repeat. A machine that is
//! suspended keeps its idea of leadership for as long as its monotonic clock stands still.

mod gate;
pub(crate) mod metrics;
mod object;
mod stand_in;
mod state;

use std::time::Duration;

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::MicroTime, jiff::Timestamp};
use konverge_core::error::in_one_line;
use kube::Client;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout_at},
};
use tokio_util::sync::CancellationToken;

use crate::{
    Metrics,
    client::{self, ClientError, ClientOptions},
};
pub use gate::NotLeading;
pub use metrics::LeaseMetrics;
use object::{CallError, LeaseObject};
pub use stand_in::{PATIENCE, StandInError, stand_in};
use state::{Decision, Election};

/// How long things take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timings {
    lease_duration: Duration,
    renew_deadline: Duration,
    retry_period: Duration,
}

impl Default for Timings {
    /// 15, 10 and 2 seconds, as in every Kubernetes component.
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

impl Timings {
    /// `lease_duration` is how long the others wait after the last sign of life; whole seconds. `renew_deadline` is how long
    /// the holder goes on without a renewal; the difference is what slow machines and requests under way may take.
    /// `retry_period` is the pause between two renewals, stretched at random by up to a fifth; the others look twice as often.
    pub fn new(
        lease_duration: Duration,
        renew_deadline: Duration,
        retry_period: Duration,
    ) -> Result<Self, TimingsError> {
        let is_usable = retry_period.mul_f64(1.0 + JITTER) < renew_deadline
            && renew_deadline < lease_duration
            && lease_duration.subsec_nanos() == 0
            && i32::try_from(lease_duration.as_secs()).is_ok();
        let timings = Self { lease_duration, renew_deadline, retry_period };
        if is_usable { Ok(timings) } else { Err(TimingsError(timings)) }
    }
}

/// The timings of a lease contradict each other.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "a lease needs: retry period x 1.2 < renew deadline < lease duration, the latter in whole seconds; got {:?}, {:?}, {:?}",
    .0.retry_period, .0.renew_deadline, .0.lease_duration
)]
pub struct TimingsError(Timings);

/// Which lease, and who asks for it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LeaseOptions {
    /// Namespace of the `Lease`.
    pub namespace: String,
    /// Name of the `Lease`, the same for all replicas; it is made when it is missing.
    pub name: String,
    /// The identity of this candidate; differs between any two processes.
    pub identity: String,
    /// How long things take.
    pub timings: Timings,
}

konverge_core::with!(LeaseOptions);

impl LeaseOptions {
    /// The named lease, an identity of host name and random digits, and the usual timings.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into(), identity: identity(), timings: Timings::default() }
    }
}

/// No renewal succeeded in time, or another took the lease. All work must stop, and the process should end.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("lost the lease {namespace}/{name}{}", holder.as_ref().map(|holder| format!(" to {holder}")).unwrap_or_default())]
#[non_exhaustive]
pub struct LeaseLost {
    /// Namespace of the lease.
    pub namespace: String,
    /// Name of the lease.
    pub name: String,
    /// The holder at the last read, if it is not this process.
    pub holder: Option<String>,
}

/// Whether this process leads, for those who do the work. Clones are handles to the same fact.
#[derive(Debug, Clone)]
pub struct Leadership(watch::Receiver<Option<Instant>>);

impl Leadership {
    /// Whether this process leads at this moment.
    pub fn is_leader(&self) -> bool {
        self.0.borrow().is_some_and(|until| Instant::now() < until)
    }

    /// Returns as soon as this process leads; never, when it is not to be. Cancel safe.
    pub async fn acquired(&mut self) {
        if self.0.wait_for(Option::is_some).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Asks for the lease, and keeps it.
pub struct Elector {
    object: LeaseObject,
    election: Election,
    timings: Timings,
    leads_until: watch::Sender<Option<Instant>>,
    metrics: LeaseMetrics,
    /// So that an absent API server is told once and not every two seconds.
    is_failing: bool,
}

impl Elector {
    /// Asks for the lease of this name in the namespace that the program is in, with a client of its own whose calls are short.
    pub async fn build(options: &ClientOptions, metrics: &Metrics, name: &str) -> Result<Self, ClientError> {
        let options = options.fail_fast();
        // Separate, so that the future of a program contains the construction of one client and not of two.
        let fail_fast = Box::pin(client::build(&options, metrics.client())).await?;
        let lease = LeaseOptions::new(fail_fast.default_namespace(), name);
        Ok(Self::new(fail_fast, lease))
    }

    /// `client` should be one whose calls are short and not repeated behind the elector's back
    /// ([`ClientOptions::fail_fast`](crate::client::ClientOptions::fail_fast)).
    pub fn new(client: Client, options: LeaseOptions) -> Self {
        let LeaseOptions { namespace, name, identity, timings } = options;
        Self {
            election: Election::new(identity, timings),
            object: LeaseObject::new(client, namespace, name),
            timings,
            leads_until: watch::Sender::new(None),
            metrics: LeaseMetrics::default(),
            is_failing: false,
        }
    }

    /// Sets the metrics that show the leader.
    #[must_use]
    pub fn metrics(mut self, metrics: &LeaseMetrics) -> Self {
        self.metrics = metrics.clone();
        self
    }

    /// For those who do the work.
    pub fn leadership(&self) -> Leadership {
        Leadership(self.leads_until.subscribe())
    }

    /// Asks for the lease and keeps it until `release` is cancelled, and then gives it up so that a successor need not wait.
    ///
    /// Cancel `release` only when all work has stopped. A release that fails is logged: the lease then runs out by itself.
    pub async fn run(mut self, release: CancellationToken) -> Result<(), LeaseLost> {
        tracing::info!(lease = self.object.name(), identity = self.election.identity(), "asking for the lease");
        self.metrics.set_leader(self.object.name(), false);
        loop {
            let pause = tokio::select! {
                biased;
                () = release.cancelled() => break,
                round = self.round() => { round?; self.pause() }
            };
            tokio::select! {
                () = release.cancelled() => break,
                () = sleep_until(pause) => {}
            }
        }
        self.release().await;
        Ok(())
    }

    /// When the next round begins. Candidates that started together spread out; a leader never sleeps past its time, and a
    /// candidate not past the end of a lease that nobody renews.
    fn pause(&self) -> Instant {
        let (period, at_the_latest) = match self.election.leads_until() {
            Some(until) => (self.timings.retry_period, Some(until)),
            // The sooner a renewal is seen, the sooner its absence is: a takeover is late by as much as the last look was.
            None => (self.timings.retry_period / 2, self.election.runs_out()),
        };
        let now = Instant::now();
        let next = now + period.mul_f64(1.0 + JITTER * rand::random::<f64>());
        at_the_latest.filter(|end| *end > now).map_or(next, |end| next.min(end))
    }

    /// One look or renewal. Ends early when nothing can be done before the next.
    async fn round(&mut self) -> Result<(), LeaseLost> {
        self.election.begin_round();
        // Read, write, and once more after a conflict; then it is the next round's turn.
        for _ in 0..4 {
            let sent = Instant::now();
            let stamp = MicroTime(Timestamp::now());
            let decision = self.election.decide(sent, &stamp);
            // Leading ends at that time, whatever a call still waits for.
            let half = sent + self.timings.renew_deadline / 2;
            let patience = self.election.leads_until().map_or(half, |until| half.min(until));
            let (answer, is_write) = match decision {
                Decision::Lost => return Err(self.lost()),
                Decision::Wait => return Ok(()),
                Decision::Read => {
                    self.metrics.slow_path(self.object.name());
                    (timeout_at(patience, self.object.read()).await, false)
                }
                Decision::Create(spec) => (timeout_at(patience, self.object.create(spec)).await, true),
                Decision::Replace { spec, version } => {
                    (timeout_at(patience, self.object.replace(&spec, &version)).await, true)
                }
            };
            match answer.unwrap_or(Err(CallError::TooLate)) {
                Ok(found) if !is_write => {
                    self.is_failing = false;
                    self.election.found(found, Instant::now());
                }
                Ok(Some((spec, version))) => {
                    self.is_failing = false;
                    self.election.written(spec, version, sent);
                    self.announce();
                    return Ok(());
                }
                Ok(None) | Err(CallError::Conflict) => self.election.failed(),
                Err(error) => {
                    self.failed(&error);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn failed(&mut self, error: &CallError) {
        self.election.failed();
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::warn!(
                error = %in_one_line(error),
                lease = self.object.name(),
                "cannot look after the lease; trying on (said once until it works)"
            );
        }
    }

    fn announce(&self) {
        let until = self.election.leads_until();
        if self.leads_until.send_replace(until).is_none() {
            tracing::info!(lease = self.object.name(), "leading");
            self.metrics.set_leader(self.object.name(), true);
        }
    }

    fn lost(&self) -> LeaseLost {
        self.leads_until.send_replace(None);
        self.metrics.set_leader(self.object.name(), false);
        LeaseLost {
            namespace: self.object.namespace().to_owned(),
            name: self.object.name().to_owned(),
            holder: self.election.other_holder().map(ToOwned::to_owned),
        }
    }

    async fn release(&mut self) {
        self.leads_until.send_replace(None);
        self.metrics.set_leader(self.object.name(), false);
        let patience = Instant::now() + self.timings.retry_period;
        // A call may have been cut off, so that the version is unknown: then look first.
        if self.election.leads_until().is_some()
            && let Ok(Ok(found)) = timeout_at(patience, self.object.read()).await
        {
            self.election.found(found, Instant::now());
        }
        let Some((spec, version)) = self.election.release(&MicroTime(Timestamp::now())) else { return };
        match timeout_at(patience, self.object.replace(&spec, &version)).await.unwrap_or(Err(CallError::TooLate)) {
            Ok(_) => tracing::info!(lease = self.object.name(), "gave up the lease"),
            Err(error) => tracing::warn!(
                error = %in_one_line(&error),
                lease = self.object.name(),
                "could not give up the lease; it runs out by itself"
            ),
        }
    }
}

/// How much longer than the retry period a pause may be.
const JITTER: f64 = 0.2;

/// The host's name, as far as it is known, and random digits: two processes on one host still differ.
fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_else(|_| "unknown".to_owned());
    format!("{}_{:016x}", host.trim(), rand::random::<u64>())
}

#[cfg(test)]
pub(crate) mod tests;
