//! Work in the place of a program that has to be over, such as a drain before an uninstall.
//!
//! A program that was told to stop still works for a moment, and one that nobody stopped works on. Both hold the lease, if they elect a leader. So this
//! work waits for the lease, holds it while it works, and looks afterwards whether a candidate has taken it: that one was not stopped.

use std::{pin::pin, time::Duration};

use kube::Client;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{
    Elector, LeaseLost, LeaseOptions,
    object::{CallError, LeaseObject},
};

/// How long to wait for a lease: longer than an operator takes to stop in a pod, which is less than a minute, and than its lease takes to run out.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// After the lease has run out, a stand-in tries to take it every one to two and a half seconds.
const MARGIN: Duration = Duration::from_secs(15);

/// After this time each candidate has looked at a lease that is free: every one to two and a half seconds with our settings, and 4.4 with those of client-go.
const SUCCESSION: Duration = Duration::from_secs(5);

/// The program whose place is to be taken still runs, or whether it does is unknown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StandInError {
    /// The lease cannot be read.
    #[error(
        "cannot read the lease {lease}, so whether the operator still runs is unknown, and nothing was done: {source}"
    )]
    Unread {
        /// Namespace and name of the lease.
        lease: String,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Somebody holds the lease and does not give it up.
    #[error(
        "{holder} has held the lease {lease} for {} s, so the operator still runs, and nothing was done. Stop it: scale its Deployment to 0, or end \
         its process",
        limit.as_secs()
    )]
    Held {
        /// Namespace and name of the lease.
        lease: String,
        /// The holder at the last look.
        holder: String,
        /// How long it was waited for.
        limit: Duration,
    },
    /// Nobody holds the lease, and this process could not take it.
    #[error(
        "could not take the lease {lease} in {} s, and nothing was done; the role has to allow get, create and patch of leases there",
        limit.as_secs()
    )]
    Untaken {
        /// Namespace and name of the lease.
        lease: String,
        /// How long it was tried.
        limit: Duration,
    },
    /// The lease was lost while the work was under way, which was broken off.
    #[error(
        "{0}, so the work was broken off. If the operator still runs, scale its Deployment to 0 or end its process, and repeat this"
    )]
    Lost(#[from] LeaseLost),
    /// A candidate took the lease when the work was done.
    #[error(
        "{holder} has taken the lease {lease} since, so a replica of the operator still runs, and may undo this. Stop it: scale its Deployment to 0, \
         or end its process"
    )]
    Taken {
        /// Namespace and name of the lease.
        lease: String,
        /// The new holder.
        holder: String,
    },
}

/// Does the work of a task while this process holds the lease of a program that has to be over. It waits up to `limit` for the lease, and at least until the
/// lease of a program that was killed has run out. It says for whom it waits, and gives the lease up at the end. The work gets a client that writes only while the lease is held, and is broken off if the lease is lost.
///
/// Where there is no such lease, or where this role may not read it, the program elects no leader. Then nobody can see here whether it runs, and the work
/// is done at once.
///
/// # Errors
///
/// Returns an error if a program holds the lease all the time, if it takes it meanwhile, or if a replica takes it afterwards.
pub async fn stand_in(
    client: &Client,
    lease: LeaseOptions,
    limit: Duration,
    work: impl AsyncFnOnce(Client),
) -> Result<(), StandInError> {
    let identity = lease.identity.clone();
    let object = LeaseObject::new(client.clone(), lease.namespace.clone(), lease.name.clone());
    let Some(Holder { name: holder, duration }) = look(&object).await? else {
        work(client.clone()).await;
        return Ok(());
    };
    let limit = limit.max(duration + MARGIN);
    if !holder.is_empty() {
        tracing::warn!(
            lease = %full_name(&object),
            %holder,
            "the operator holds its lease: waiting up to {} s until it gives it up, or until the lease runs out. If nobody has stopped the operator, \
             scale its Deployment to 0, or end its process",
            limit.as_secs()
        );
    }
    let elector = Elector::new(client.clone(), lease);
    let mut leadership = elector.leadership();
    let gated = leadership.gate(client.clone());
    let release = CancellationToken::new();
    let mut held = pin!(elector.run(release.clone()));
    tokio::select! {
        // A lease that comes at the last moment counts.
        biased;
        lost = &mut held => lost?,
        () = leadership.acquired() => {}
        () = sleep(limit) => {
            let (lease, holder) = (full_name(&object), look(&object).await?.unwrap_or_default().name);
            let is_free = holder.is_empty();
            return Err(if is_free { StandInError::Untaken { lease, limit } } else { StandInError::Held { lease, holder, limit } });
        }
    }
    tokio::select! {
        lost = &mut held => lost?,
        () = work(gated) => {}
    }
    release.cancel();
    held.await?;
    sleep(SUCCESSION).await;
    match look(&object).await? {
        Some(Holder { name: holder, .. }) if !holder.is_empty() && holder != identity => {
            Err(StandInError::Taken { lease: full_name(&object), holder })
        }
        _ => Ok(()),
    }
}

/// The holder of a lease.
#[derive(Default)]
struct Holder {
    /// Empty if nobody holds it.
    name: String,
    /// How long after its last renewal the lease runs out.
    duration: Duration,
}

/// The holder of the lease. `None` if there is no lease to take.
async fn look(object: &LeaseObject) -> Result<Option<Holder>, StandInError> {
    let why = match object.read().await {
        Ok(Some((spec, _))) => {
            let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
            let duration = Duration::from_secs(seconds.unwrap_or_default());
            return Ok(Some(Holder { name: spec.holder_identity.unwrap_or_default(), duration }));
        }
        Ok(None) => "there is no such lease",
        Err(CallError::Kube(error)) if matches!(&*error, kube::Error::Api(status) if status.code == 403) => {
            "this role may not read the lease"
        }
        Err(source) => return Err(StandInError::Unread { lease: full_name(object), source: source.into() }),
    };
    tracing::warn!(
        lease = %full_name(object),
        "{why}, so the operator elects no leader, or it is in another namespace: nobody can see here whether it is stopped"
    );
    Ok(None)
}

fn full_name(object: &LeaseObject) -> String {
    format!("{}/{}", object.namespace(), object.name())
}

#[cfg(test)]
mod tests;
