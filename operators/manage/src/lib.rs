//! Manage: openZro custom resources to the openZro management API.

pub mod api;
