//! Roll: what uses a changed Secret or `ConfigMap`, or a changed secret in Vault, restarts exactly once, and only then.
//!
//! ```text
//! workloads (metadata, what their pods use) ──watch──▶ index ──wake──▶ queue ──▶ reconcile: look ▶ decide ▶ patch ▶ report
//! Secrets, `ConfigMaps` (metadata alone) ─────watch──▶   │ ▲                              │
//!                                                      ▼ └──digests── reader ◀──read one─┘
//! VaultSyncStatus, VaultRollout ──────────────watch──▶ index ◀──digests of versions── vault ◀──one question per path and interval
//! ```
//!
//! Read in this order: [`declarations`], what annotations ask for; [`object`] and [`uses`](mod@uses), which sources count for a workload;
//! [`trigger`], [`vault_sync_status`] and [`vault_rollout`], what objects ask for on behalf of others, and [`vault`], what they ask it for; [`index`], how all
//! that is known both ways; [`digest`] and [`record`], what is remembered of content, and where; [`decision`], whether
//! anything is to be done, without IO; [`hold`], [`waves`], [`budget`], [`breaker`] and [`wait`], what keeps it waiting; [`reader`],
//! [`reconcile`] and [`writer`], the way through; [`outlook`], [`status`] and [`teller`], how those who ask on behalf of others are told; [`config`] and
//! [`run`](mod@run), the program, and [`job`], the same as one of several in a process; [`inspect`], what the plugin of kubectl tells.
//!
//! **Guarantees.** What was never seen rolls nothing. Content that differs from what is recorded on the workload rolls it once, in one
//! patch that carries record and stamp together and names the version of the workload that was decided upon; so a restart, a
//! failover or a second leader rolls nothing, and what changed meanwhile is rolled once. What comes back to what it was rolls nothing.
//!
//! Of Vault, only a version that was read counts, and none that is older than the one that is recorded. While it is away nothing is forgotten,
//! and what is not in Vault does not wait for it.
//!
//! **Does not** know what pods have read that somebody else restarted between two changes: after a change they restart once more, and if the
//! content is what it was before by then, they keep what they have read. Nor does it see a change of content that happened while
//! nobody watched, if another choice of keys came with it and the one before was neither all of them nor what the pods use.

pub mod breaker;
pub mod budget;
pub mod config;
pub mod decision;
pub mod declarations;
pub mod digest;
pub mod digest_key;
pub mod hold;
pub mod index;
pub mod inspect;
pub mod job;
mod kinds_seen;
pub mod messages;
pub mod metrics;
pub mod object;
pub mod outlook;
pub mod reader;
pub mod reasons;
pub mod reconcile;
pub mod record;
pub mod run;
mod schema;
pub mod spelling;
pub mod status;
pub mod teller;
pub mod trigger;
pub mod unheard;
pub mod uses;
pub mod vault;
pub mod vault_rollout;
pub mod vault_sync_status;
pub mod wait;
pub mod watch;
pub mod waves;
pub mod writer;

pub use run::run;
