//! The metrics of the election, under the names of controller-runtime.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    name: String,
}

/// The series of all leases of a process.
#[derive(Clone, Default)]
pub struct LeaseMetrics {
    leads: Family<Labels, Gauge>,
    slow_path: Family<Labels, Counter>,
}

impl LeaseMetrics {
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "leader_election_master_status",
            "Whether this process leads: 1 for leading, 0 for standing by",
            metrics.leads.clone(),
        );
        registry.register(
            "leader_election_slowpath",
            "Rounds that had to read the lease before writing it",
            metrics.slow_path.clone(),
        );
        metrics
    }

    pub(crate) fn set_leader(&self, lease: &str, is_leader: bool) {
        self.leads.get_or_create(&labels(lease)).set(is_leader.into());
    }

    pub(crate) fn slow_path(&self, lease: &str) {
        self.slow_path.get_or_create(&labels(lease)).inc();
    }
}

fn labels(lease: &str) -> Labels {
    Labels { name: lease.to_owned() }
}
