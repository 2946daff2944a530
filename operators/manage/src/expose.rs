//! Exposed Services and the Gateway API: what they ask for, as custom resources of this operator.
//!
//! Read in this order: [`service`], the annotations of a Service as one `OZResource`, pure; [`controller`], which keeps that resource;
//! [`gateway`], Gateways and routes as `NetworkResource` objects, pure.

pub mod controller;
pub mod gateway;
pub mod service;

pub use controller::services;
pub use service::{Exposed, Exposure, InvalidAnnotation, exposure};
