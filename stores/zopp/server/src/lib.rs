//! The zopp server: storage, permissions, gRPC service.

mod clock;
pub mod rbac;
pub mod store;
