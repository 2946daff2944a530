//! A real Kubernetes control plane for the tests of an operator: etcd and kube-apiserver, and kube-controller-manager on demand.
//!
//! Read in this order: [`ControlPlane`], what a test starts; [`Assets`], where its programs come from; [`Process`], how a server
//! under test is started, killed and started again; [`eventually`], how a test waits; [`AuditLog`], how it proves what was
//! asked of the API server; [`fault_proxy`], what goes wrong between the two; [`crash`], which crashes an operator at each of its
//! writes. Apart from all these are [`double`], a scripted API server for unit tests
//! without network, and [`OutsideServer`], the frame of a server that an operator keeps in sync.
//!
//! Guarantees: what is started ends with the test process, however that ends; the user's own cluster is never used unasked; in a
//! named cluster nothing is changed that was there, and what is made is labelled, so that [`take_away`] finds it; a control
//! plane that cannot be had is an error, never a skipped test. Does not: run pods, as there is no kubelet.

mod admission_policy;
mod api_request;
mod assets;
#[doc(hidden)]
pub mod build;
mod captured_log;
mod control_plane;
pub mod crash;
mod denying_policy;
pub mod double;
mod environment;
mod events;
pub mod fault_proxy;
mod foreign;
mod guard;
mod history;
mod logs;
mod outside_server;
mod pattern;
mod process;
mod replacing_policy;
mod scrape;
mod settled;
mod wait;

pub use api_request::{ApiRequest, Verb};
pub use assets::{ASSETS_VARIABLE, Assets, AssetsError, Binary, KUBERNETES_VARIABLE, SUPPORTED_BEFORE};
pub use build::BuildError;
pub use captured_log::CapturedLog;
pub use control_plane::{
    AuditEntry, AuditLog, AuditObject, AuditStatus, AuditUser, Cluster, ControlPlane, InstalledOperator, ManifestError,
    NotOurs, Options, ProxiedError, ProxiedOperator, RUN_LABEL, RoleUse, RouteError, Snapshot, StartError, client_for,
    create_for_run, http_get, run_name, take_away, take_away_run,
};
pub use denying_policy::DenyingPolicy;
pub use events::events_about;
pub use foreign::{FOREIGN_SECRET_SIZE, create_foreign_secrets};
pub use guard::RunDirectory;
pub use history::History;
pub use outside_server::{NextCall, OutsideServer};
pub use pattern::Pattern;
pub use process::{Process, ProcessError, ProcessSpec, free_port};
pub use replacing_policy::{Replaced, ReplacingPolicy};
pub use scrape::metric;
pub use settled::settled;
pub use wait::{NotInTime, eventually, settles_at, until, until_true};

/// Names a kubeconfig of a cluster to use instead of starting one.
pub const KUBECONFIG_VARIABLE: &str = environment::KUBECONFIG_VARIABLE;

/// Names the run that what is made in a named cluster belongs to, where several processes are one run.
pub const RUN_VARIABLE: &str = environment::RUN_VARIABLE;
