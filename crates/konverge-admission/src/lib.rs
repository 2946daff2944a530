//! Webhooks that the API server calls before it stores or returns an object: rules, changes, defaults and conversions, with
//! their server, their certificates and their declarations.
//!
//! Begin with [`handler`], the part that an author writes. A handler gets a [`review`] and returns a [`verdict`]. The modules [`conversion`] and
//! [`versions`] serve one kind in several versions. The modules [`webhook`] and [`webhooks`] say which handler is called for which objects, and the
//! [`configuration`] tells the API server. The [`server`] answers the calls and proves its name with [`certificates`]. The module [`metrics`] lists
//! the counters.
//!
//! ```no_run
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use konverge_admission::{
//!     Certificates, Location, Review, Validator, Verdict, Webhook, WebhookServer, Webhooks,
//!     certificates::{SelfMade, Target},
//! };
//! use tokio_util::sync::CancellationToken;
//!
//! struct Settings;
//!
//! impl Validator<ConfigMap> for Settings {
//!     type Error = std::convert::Infallible;
//!
//!     async fn validate(&self, review: &Review<ConfigMap>) -> Result<Verdict, Self::Error> {
//!         let empty = review.object.as_ref().is_some_and(|object| object.data.is_none());
//!         Ok(Verdict::unless(empty.then_some(("data", "needs a setting"))))
//!     }
//! }
//!
//! # async fn run(client: kube::Client, stop: CancellationToken) -> Result<(), Box<dyn std::error::Error>> {
//! let webhook = Webhook::of::<ConfigMap>().object_labels([("kind", "settings")]);
//! let webhooks = Webhooks::new().validate(webhook, Settings);
//! let mut certificates = SelfMade::new("shop", "settings-webhooks");
//! if let Some(declared) = webhooks.validating_configuration("settings", &Location::service("shop", "settings-webhooks")) {
//!     certificates = certificates.inject(Target::ApplyValidating(Box::new(declared)));
//! }
//! let certificates = Certificates::self_made(client, certificates);
//! WebhookServer::bind(([0, 0, 0, 0], 9443).into(), webhooks, certificates).await?.run(stop).await;
//! # Ok(())
//! # }
//! ```
//!
//! Guarantees: an answer has the uid and the version of its question. The server sends back to the letter what a handler did not
//! change, also fields that the handler's type does not know. A handler that fails or panics harms no other call, and leaves the
//! decision to the failure policy. A valid certificate is never exchanged for an unusable one. The server uses a certificate only
//! once the API server knows its authority, unless it has no other. A stop lets calls end, within a limit.
//!
//! Assumes that the API server is the caller: every client that reaches the port is answered, unless [`Certificates::only_for`] restricts it.
//!
//! Does not prevent side effects of a handler. Handlers must have none, because the request may still be refused elsewhere.
//! Does not make the Service that leads here, and does not migrate objects that are stored in an old version: the crate
//! `konverge` does.

mod admission;
pub mod certificates;
pub mod configuration;
pub mod conversion;
mod endpoint;
pub mod handler;
pub mod metrics;
mod patch;
pub mod review;
pub mod server;
pub mod verdict;
pub mod versions;
pub mod webhook;
pub mod webhooks;

pub use certificates::Certificates;
pub use configuration::Location;
pub use conversion::Converter;
pub use handler::{Defaulter, Mutation, Mutator, Validator};
pub use metrics::AdmissionMetrics;
pub use review::{Operation, Review, Undecodable};
// `Security::Config` takes a configuration of it.
pub use rustls;
pub use server::{Limits, Security, WebhookServer};
pub use verdict::Verdict;
pub use versions::{CrdVersions, crd_versions};
pub use webhook::{FailurePolicy, OnUndecodable, SideEffects, Webhook};
pub use webhooks::{RegistrationError, Webhooks};
