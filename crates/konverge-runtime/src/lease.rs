//! One leader among several replicas, by a Lease: the way of client-go.
//!
//! The holder writes the Lease every two seconds. One that cannot write for ten seconds stops working; the others take the
//! Lease after it has not changed for fifteen. Between the two lie five seconds, measured by each on its own monotonic clock.
//! A Lease does not fence: a write that is on its way when leadership ends still arrives, so writes must be safe to repeat.

mod record;

use std::time::Duration;

use k8s_openapi::{api::coordination::v1::Lease, jiff::Timestamp};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use record::{Observation, Step, held, released};

/// Which Lease, and its times.
#[derive(Debug, Clone)]
pub struct LeaseOptions {
    /// Where the Lease is.
    pub namespace: String,
    /// What it is called; all replicas of one program say the same.
    pub name: String,
    /// Who we are; unique per process.
    pub identity: String,
    /// How long others wait for a silent holder. Whole seconds.
    pub duration: Duration,
    /// When a holder that cannot renew gives up; less than the duration.
    pub renew_deadline: Duration,
    /// The pause between attempts.
    pub retry_period: Duration,
}

impl LeaseOptions {
    /// 15, 10 and 2 seconds; the identity is the host name and a random number.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_else(|_| "unknown".to_owned());
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: format!("{}_{:016x}", host.trim(), rand::random::<u64>()),
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// Leadership was lost: the Lease could not be renewed in time, or somebody else holds it.
#[derive(Debug, thiserror::Error)]
#[error("lost lease {namespace}/{name}: not renewed for {deadline:?}")]
pub struct LeaseLost {
    /// Where the Lease is.
    pub namespace: String,
    /// What it is called.
    pub name: String,
    /// The time within which it was to be renewed.
    pub deadline: Duration,
}

/// A candidate for leadership.
pub struct Elector {
    api: Api<Lease>,
    options: LeaseOptions,
    observation: Observation,
    leading: watch::Sender<bool>,
}

impl Elector {
    /// `client` must not repeat requests by itself and must give up soon: see
    /// [`ClientOptions::impatient`](crate::client::ClientOptions::impatient).
    pub fn new(client: Client, options: LeaseOptions) -> Self {
        let api = Api::namespaced(client, &options.namespace);
        Self { api, options, observation: Observation::default(), leading: watch::Sender::new(false) }
    }

    /// What the Lease is called.
    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// Whether we lead; changes are seen by all receivers.
    pub fn leading(&self) -> watch::Receiver<bool> {
        self.leading.subscribe()
    }

    /// Stands for election, leads, and releases the Lease after `stop` was cancelled.
    ///
    /// The caller cancels `stop` only once the leader's work has ended.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), LeaseLost> {
        if stop.run_until_cancelled(self.acquire()).await.is_none() {
            return Ok(());
        }
        tracing::info!(lease = self.options.name, identity = self.options.identity, "leading");
        self.leading.send_replace(true);
        let lost = stop.run_until_cancelled(self.hold()).await;
        self.leading.send_replace(false);
        if lost.is_some() {
            let LeaseOptions { namespace, name, renew_deadline, .. } = self.options;
            return Err(LeaseLost { namespace, name, deadline: renew_deadline });
        }
        self.release().await;
        Ok(())
    }

    async fn acquire(&mut self) {
        tracing::info!(lease = self.options.name, identity = self.options.identity, "standing for election");
        while !self.attempt_in_time(self.options.renew_deadline).await {
            // Jitter keeps candidates that began together from knocking together.
            tokio::time::sleep(self.options.retry_period.mul_f64(1.0 + 0.2 * rand::random::<f64>())).await;
        }
    }

    /// Ends when the Lease was not renewed for the deadline.
    async fn hold(&mut self) {
        let mut renewed = Instant::now();
        loop {
            tokio::time::sleep(self.options.retry_period).await;
            let left = (renewed + self.options.renew_deadline).saturating_duration_since(Instant::now());
            let began = Instant::now();
            if self.attempt_in_time(left).await {
                // Counted from before the request: others count from when they see it, which is later.
                renewed = began;
            } else if renewed.elapsed() >= self.options.renew_deadline {
                return;
            }
        }
    }

    async fn attempt_in_time(&mut self, limit: Duration) -> bool {
        match tokio::time::timeout(limit, self.attempt()).await {
            Ok(Ok(holds)) => holds,
            Ok(Err(error)) => {
                tracing::warn!(
                    lease = self.options.name,
                    error = &error as &dyn std::error::Error,
                    "cannot write the lease"
                );
                false
            }
            Err(_elapsed) => {
                tracing::warn!(lease = self.options.name, "no answer in time about the lease");
                false
            }
        }
    }

    /// Writes our name if that is right; whether we hold the Lease now.
    async fn attempt(&mut self) -> Result<bool, kube::Error> {
        let Some(lease) = self.api.get_opt(&self.options.name).await? else { return self.create().await };
        let now = Instant::now();
        self.observation.see(&lease, now);
        if self.observation.step(&self.options.identity, now) == Step::Wait {
            return Ok(false);
        }
        // The version in the object that was read makes this fail when somebody wrote in between.
        let wanted = held(&lease, &self.options.identity, self.options.duration, Timestamp::now());
        match self.api.replace(&self.options.name, &PostParams::default(), &wanted).await {
            Ok(written) => {
                self.observation.see(&written, Instant::now());
                Ok(true)
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn create(&mut self) -> Result<bool, kube::Error> {
        let metadata = ObjectMeta { name: Some(self.options.name.clone()), ..ObjectMeta::default() };
        let empty = Lease { metadata, spec: None };
        let wanted = held(&empty, &self.options.identity, self.options.duration, Timestamp::now());
        match self.api.create(&PostParams::default(), &wanted).await {
            Ok(written) => {
                self.observation.see(&written, Instant::now());
                Ok(true)
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Frees the Lease if it is still ours. When that fails, it expires.
    async fn release(&self) {
        let attempt = async {
            let lease = self.api.get(&self.options.name).await?;
            let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
            if holder == Some(&self.options.identity) {
                let free = released(&lease, Timestamp::now());
                self.api.replace(&self.options.name, &PostParams::default(), &free).await?;
            }
            Ok::<_, kube::Error>(())
        };
        match tokio::time::timeout(self.options.retry_period, attempt).await {
            Ok(Ok(())) => tracing::info!(lease = self.options.name, "released the lease"),
            Ok(Err(error)) => {
                tracing::warn!(
                    lease = self.options.name,
                    error = &error as &dyn std::error::Error,
                    "cannot release the lease"
                );
            }
            Err(_elapsed) => tracing::warn!(lease = self.options.name, "no answer in time to releasing the lease"),
        }
    }
}
