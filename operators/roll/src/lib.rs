//! Roll: workloads that use a changed Secret or `ConfigMap`, or a changed secret in Vault, restart exactly once, and only then.
//!
//! ```text
//! workloads (metadata, references of their pods) ──watch──▶ index ──parts──▶ queue ──▶ reconcile: observe ▶ plan ▶ apply ▶ report
//! Secrets, `ConfigMaps` (metadata alone) ─────────watch──▶   │ ▲                              │
//!                                                          ▼ └──digests── reader ◀──read one─┘
//! VaultSyncStatus, VaultRollout ──────────────────watch──▶ index ◀──digests of versions── reader ◀──one request per path and interval
//! ```
//!
//! Read in this order:
//!
//! - [`annotations`]: the requests of workloads and sources. [`object`] and [`uses`](mod@uses): the sources that count for a workload.
//!
//! - [`trigger`], [`definition`], [`convert`], [`vault_sync_status`] and [`vault_rollout`]: objects that request rollouts of others. [`vault`]: secrets in Vault.
//!
//! - [`state`]: the state of one workload and one source, and the snapshot of both. [`index`]: all of them, and their relations.
//!
//! - [`digest`] and [`record`]: the content that is remembered, and where.
//!
//! - [`plan`](mod@plan): the plan for one workload, a pure function of its snapshot.
//!
//! - [`hold`], [`waves`], [`budget`] and [`breaker`]: the reasons to wait. [`time`]: the two clocks.
//!
//! - [`watch`] and [`parts`]: from an event to the index, and from there to the queues. [`reader`], [`missing`], [`reconcile`] and [`writer`]: the IO of a run.
//!
//! - [`trigger_status`] and [`status_controller`]: the status of triggers.
//!
//! - [`config`] and [`run`](mod@run): the program. [`job`]: the same as one of several jobs in a process. [`plugin`]: the kubectl plugin.
//!
//! **Guarantees.** First sight of content rolls nothing. Content that differs from the record of a workload rolls it once. One patch carries the record and the
//! stamp, and names the version of the workload that was decided upon. So a restart, a failover or a second leader rolls nothing, and a change in the
//! meantime is rolled once. Content that comes back to the recorded one rolls nothing.
//!
//! Of Vault, only a version that was read counts, and none that is older than the recorded one. While Vault is away nothing is forgotten,
//! and sources in the cluster do not wait for it.
//!
//! **Limits.** The operator does not know what pods have read that somebody else restarted between two changes. After a change, such pods restart once more. If the
//! content has come back by then, they keep what they have read. A change that happened while nobody watched is not seen if the selection of keys changed with
//! it, unless the earlier selection was all keys or the keys that the pods use.

pub mod annotations;
pub mod breaker;
pub mod budget;
pub mod config;
pub mod convert;
pub mod definition;
pub mod digest;
pub mod digest_key;
pub mod hold;
pub mod index;
pub mod messages;
pub mod metrics;
pub mod migrate;
pub mod missing;
pub mod object;
pub mod parts;
pub mod plan;
pub mod plugin;
pub mod reader;
pub mod reasons;
pub mod reconcile;
pub mod record;
pub mod run;
pub mod state;
pub mod status_controller;
pub mod time;
pub mod trigger;
pub mod trigger_status;
pub mod uses;
pub mod vault;
pub mod vault_rollout;
pub mod vault_sync_status;
pub mod watch;
pub mod waves;
pub mod writer;

use konverge_jobs::Job;

pub use run::run;

/// Roll as one of several jobs in a process.
pub fn job() -> Job {
    let about =
        "restarts workloads once when a Secret or ConfigMap that they use changes, as vault-rollout-operator does it";
    Job::new("roll", about, run::assemble)
}
