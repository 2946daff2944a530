//! Manage: openZro custom resources to the openZro management API.

pub mod api;
pub mod expose;
pub mod settings;
pub mod webhook;
