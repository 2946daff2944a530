//! Write an operator: one custom resource, its children, its status. The rest is done.
//!
//! The crate to add is this one; what it is made of ([`runtime`], [`apply`], [`core`], [`generate`]) is there for what it does not
//! cover. Read in this order: [`Reconcile`], what you write; [`Controller`], what it is about and what wakes it; [`Context`], what a run
//! has at hand; [`Operator`], the program.
//!
//! ```no_run
//! use konverge::prelude::*;
//!
//! #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
//! #[kube(group = "example.io", version = "v1", kind = "Greeting", namespaced, status = "Status")]
//! struct GreetingSpec {
//!     text: String,
//! }
//!
//! struct Greeter;
//!
//! impl Reconcile<Greeting> for Greeter {
//!     type Error = Error;
//!
//!     async fn apply(&self, greeting: Arc<Greeting>, context: Context<Greeting>) -> Result<Action, Error> {
//!         let mut child = ConfigMap::default();
//!         child.metadata.name = Some(greeting.name_any());
//!         child.data = Some([("text".to_owned(), greeting.spec.text.clone())].into());
//!         context.children().with(child).apply().await?;
//!         Ok(Action::Done)
//!     }
//! }
//!
//! fn main() -> ExitCode {
//!     konverge::operator!().controller(Controller::new(Greeter).owns::<ConfigMap>()).main()
//! }
//! ```
//!
//! # What every controller guarantees
//!
//! - An object is worked on by one worker at a time; whatever happens to it meanwhile leads to another run.
//!
//! - A run sends nothing for objects that are in sync: reads come from caches, and a write is decided by comparing with them.
//!
//! - Only what carries the owner's uid is changed or deleted, and deletions name the uid that was seen.
//!
//! - How a run ended is in the status and, if it failed, in an event; repetitions after failures come with growing pauses.
//!
//! - A poisoned object, a panic or a slow run delays no other object.
//!
//! It does not promise that a run sees the latest state: the run sees the cache, which has at least all writes of this process. It does not
//! run a reconcile for each single change: changes merge. A write that was already sent when the lease was lost may still arrive, and is
//! guarded by its preconditions: the API server refuses a child or a status that is late.

// The page of the registry is compiled, too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

mod annotations;
mod author_reasons;
mod children;
mod context;
mod controller;
mod crds;
mod deselected;
mod error;
mod escaped;
mod exit;
mod finalizers;
mod flags;
mod home;
mod inventory;
#[cfg(all(feature = "external", feature = "remote"))]
mod json_api;
mod leading;
mod metrics;
#[cfg(feature = "admission")]
mod migration;
mod only;
mod operator;
mod options;
#[cfg(feature = "external")]
mod outside;
mod owned;
mod owner_keys;
mod part;
mod reconcile;
#[cfg(feature = "remote")]
mod remote_objects;
mod report;
mod resync;
mod run;
mod schedule;
mod setup;
mod start_error;
mod wakes;
mod watch;
mod watched;
#[cfg(feature = "admission")]
mod webhooks;
mod write_observer;

pub mod prelude;
#[cfg(feature = "testing")]
pub mod testing;

#[cfg(feature = "admission")]
pub use konverge_admission as admission;
pub use konverge_apply as apply;
pub use konverge_core as core;
#[cfg(feature = "external")]
pub use konverge_external as external;
pub use konverge_gen as generate;
pub use konverge_macros::{resource, schema};
#[cfg(feature = "otlp")]
pub use konverge_otlp as otlp;
#[cfg(feature = "remote")]
pub use konverge_remote as remote;
pub use konverge_runtime as runtime;

// Their types are a part of this API: an author needs no dependency on these crates and cannot have another version of them.
#[cfg(feature = "cli")]
pub use clap;
pub use {k8s_openapi, kube, prometheus_client, schemars, serde, serde_json};

pub use konverge_runtime::{CancellationToken, object::Object, telemetry::LogFormat};

pub use annotations::{PAUSED, RECONCILE_AT};
pub use author_reasons::Reasons;
pub use children::Children;
pub use context::Context;
pub use controller::Controller;
pub use error::Error;
pub use home::Home;
#[cfg(all(feature = "external", feature = "remote"))]
pub use json_api::JsonApi;
#[cfg(feature = "generate")]
pub use operator::GenerateError;
pub use operator::Operator;
pub use options::Options;
#[cfg(feature = "admission")]
pub use options::WebhookOptions;
#[cfg(feature = "serve")]
pub use options::{MetricsOptions, ServerOptions};
pub use owned::Child;
pub use part::{Held, Part};
pub use reconcile::{Cleanup, FromFunction, Reconcile, reconcile_fn};
#[cfg(feature = "remote")]
pub use remote_objects::{RECORD, RemoteObject, interest_of};
pub use report::{CustomStatus, Status};
pub use setup::Setup;
pub use start_error::StartError;
pub use watch::Watch;
pub use watched::Watched;
#[cfg(feature = "admission")]
pub use webhooks::{WebhookCaches, WebhookSetup};
