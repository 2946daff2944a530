//! Webhooks that the API server calls before it stores or returns an object.
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
pub mod webhook;
pub mod webhooks;

pub use certificates::Certificates;
pub use configuration::Location;
pub use conversion::Converter;
pub use handler::{Defaulter, Mutation, Mutator, Validator};
pub use metrics::AdmissionMetrics;
pub use review::{Operation, Review, Undecodable};
pub use server::{Limits, Security, WebhookServer};
pub use verdict::Verdict;
pub use webhook::{FailurePolicy, OnUndecodable, SideEffects, Webhook};
pub use webhooks::{RegistrationError, Webhooks};
