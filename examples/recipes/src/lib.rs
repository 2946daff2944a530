//! Two operators that each show one thing: [`redis`], children that are upgraded in an order, and [`policy`], a webhook that reads a cache,
//! for a kind with two versions.

pub mod policy;
pub mod redis;
