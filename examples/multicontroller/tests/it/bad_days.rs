//! Bad days of the API server and of the way to it, with two controllers that share a client, caches and a lease. The example with one controller
//! shows the behaviour of each. Here, both controllers recover, and the values of Secrets are not at risk.

mod leadership;
mod requests;
mod resources;
mod stage;
mod unobserved;
mod watches;
