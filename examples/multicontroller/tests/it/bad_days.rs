//! Bad days of the API server and of the way to it, with two controllers that share a client, caches and a lease. What one controller
//! does is shown by the example with one; here it is that both get over it, and that the values of Secrets are not at risk.

mod leadership;
mod requests;
mod resources;
mod stage;
mod unobserved;
mod watches;
