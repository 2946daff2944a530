//! The zopp server: storage, permissions, gRPC service.

mod audit;
mod auth;
mod call;
mod clock;
mod events;
mod handlers;
pub mod rbac;
mod service;
mod state;
mod status;
pub mod store;
mod validate;
