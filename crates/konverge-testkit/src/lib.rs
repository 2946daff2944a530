//! A real Kubernetes control plane for the tests of an operator: etcd and kube-apiserver, and kube-controller-manager on demand.
//!
//! Begin with [`ControlPlane`], which a test starts, and [`Assets`], where its programs come from. A [`Process`] is a server
//! under test that is started, killed and started again. A test waits with [`eventually`], and the [`AuditLog`] proves which
//! requests the API server got. The [`fault_proxy`] breaks connections between the two, and [`crash`] crashes an operator at each
//! of its writes. Apart from all these are [`double`], a scripted API server for unit tests without network, and
//! [`OutsideServer`], the frame of a server that an operator keeps in sync.
//!
//! Guarantees: each started process ends with the test process, however that ends. The user's own cluster is never used unasked.
//! In a named cluster no existing object is changed, and each new object has a label, so that [`take_away`] finds it. A control
//! plane that cannot be had is an error, never a skipped test. Does not: run pods, as there is no kubelet;
//! [`make_pods_ready`] says that they run.

mod admission_policy;
mod api_request;
mod argo;
mod assets;
#[doc(hidden)]
pub mod build;
mod captured_log;
mod connect_proxy;
mod control_plane;
pub mod crash;
mod denying_policy;
pub mod double;
mod environment;
mod events;
pub mod fault_proxy;
mod foreign;
mod guard;
mod held_deletions;
mod history;
mod logs;
mod outside_server;
mod pattern;
mod process;
mod ready_pods;
mod replacing_policy;
mod scrape;
mod settled;
mod tls;
mod tls_front;
mod wait;
mod written_program;

pub use api_request::{ApiRequest, Verb};
pub use argo::ARGO_ROLLOUTS;
pub use assets::{ASSETS_VARIABLE, Assets, AssetsError, Binary, KUBERNETES_VARIABLE, SUPPORTED_BEFORE};
pub use build::BuildError;
pub use captured_log::CapturedLog;
pub use connect_proxy::ConnectProxy;
pub use control_plane::{
    AuditEntry, AuditLog, AuditObject, AuditStatus, AuditUser, Cluster, ControlPlane, InstalledOperator, ManifestError,
    NotOurs, Options, ProxiedError, ProxiedOperator, RUN_LABEL, RoleUse, RouteError, Snapshot, StartError, client_for,
    create_for_run, http_get, run_name, take_away, take_away_run,
};
pub use denying_policy::DenyingPolicy;
pub use events::events_about;
pub use foreign::{FOREIGN_SECRET_SIZE, create_foreign_secrets};
pub use guard::RunDirectory;
pub use held_deletions::{HeldDeletion, HeldDeletions, HoldError};
pub use history::History;
pub use outside_server::{NextCall, OutsideServer};
pub use pattern::Pattern;
pub use process::{Process, ProcessError, ProcessSpec, free_port};
pub use ready_pods::{BROKEN_IMAGE, make_pods_ready};
pub use replacing_policy::{Replaced, ReplacingPolicy};
pub use scrape::metric;
pub use settled::settled;
pub use tls::TlsError;
pub use tls_front::{ELSEWHERE, TlsFront};
pub use wait::{NotInTime, eventually, settles_at, until, until_true};
pub use written_program::write_program;

/// Names a kubeconfig of a cluster to use instead of starting one.
pub const KUBECONFIG_VARIABLE: &str = environment::KUBECONFIG_VARIABLE;

/// Names the run that what is made in a named cluster belongs to, where several processes are one run.
pub const RUN_VARIABLE: &str = environment::RUN_VARIABLE;
