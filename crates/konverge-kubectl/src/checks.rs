//! The doctor's checks that are common to all jobs.

use jiff::Timestamp;

use crate::{Cluster, Finding, Installation, text::age};

impl Installation {
    /// Returns the finding for an operator that rejects its own arguments.
    pub fn does_not_start(&self, error: &clap::Error) -> Finding {
        let Self { namespace, name, .. } = self;
        // The rest describes how to get help for a program that is elsewhere.
        let cause = error.to_string();
        let cause = cause.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        Finding::wrong("settings", cause, format!("kubectl edit deployment/{name} -n {namespace}"))
    }

    /// Returns the finding about the number of ready replicas.
    pub fn finding(&self) -> Finding {
        let Self { namespace, name, wanted, ready, .. } = self;
        let says = format!("{namespace}/{name}: {ready} of {wanted} ready");
        match (*ready, *wanted) {
            (_, 0) => {
                Finding::wrong("operator", says, format!("kubectl scale deployment/{name} -n {namespace} --replicas=2"))
            }
            (0, _) => Finding::wrong(
                "operator",
                says,
                format!(
                    "kubectl logs deployment/{name} -n {namespace}; /readyz?verbose of a pod shows what it waits for"
                ),
            ),
            (ready, wanted) if ready < wanted => Finding::note(
                "operator",
                says,
                Some(&format!("kubectl get pods -n {namespace}; one ready replica is enough")),
            ),
            _ => Finding::fine("operator", says),
        }
    }
}

impl Cluster {
    /// Returns the finding about the leader. `elects` says whether any installation elects one.
    pub async fn leader_finding(&self, lease: &str, elects: bool) -> Finding {
        let now = Timestamp::now();
        let leaders = match self.leaders(lease, now).await {
            Ok(leaders) => leaders,
            Err(failure) => return Finding::unknown("leader", &failure),
        };
        let next = "see the operator's pods and their log";
        if leaders.is_empty() {
            return if elects {
                Finding::wrong("leader", format!("there is no lease {lease}, so no replica has ever led"), next)
            } else {
                Finding::note("leader", format!("there is no lease {lease}; a single process needs none"), None)
            };
        }
        if let Some(leader) = leaders.iter().find(|leader| leader.holder.is_some() && !leader.stale) {
            let holder = leader.holder.as_deref().unwrap_or_default();
            let renewed = leader.renewed.map(|renewed| age(renewed, now)).unwrap_or_default();
            return Finding::fine(
                "leader",
                format!("{holder}, by the lease {}/{lease} renewed {renewed} ago", leader.namespace),
            );
        }
        let said = leaders.iter().map(|leader| match (&leader.holder, leader.renewed) {
            (Some(holder), Some(renewed)) => {
                format!(
                    "no replica has renewed the lease {}/{lease} for {}; the last one was {holder}",
                    leader.namespace,
                    age(renewed, now)
                )
            }
            (Some(holder), None) => format!("{holder} never renewed the lease {}/{lease}", leader.namespace),
            (None, _) => format!("the lease {}/{lease} was released, and no replica has taken it", leader.namespace),
        });
        Finding::wrong("leader", said.collect::<Vec<_>>().join("; "), next)
    }
}
