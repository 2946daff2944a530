//! Servers of outside systems for tests: [`VaultServer`], a Vault or an `OpenBao`; [`ObjectStoreServer`], an S3 server; [`OpenZroServer`], the
//! management server of openZro; [`PublishedZopp`], the original's zopp; and [`HttpFront`], which breaks requests and answers on the way to any of
//! them.
//! [`PrometheusServer`] is a Prometheus, and [`promtool()`] builds the program that evaluates alerts.
//!
//! They stand apart from `konverge-testkit`, because a test of an operator needs none of them: they are built with Go from pinned
//! modules, once per machine, except openZro's, which a machine has or lacks, and zopp, which cargo builds on request. Their processes end with the
//! test process, as those of the test kit do.

mod certificate;
mod http_front;
mod object_store_server;
mod openzro_server;
mod prometheus;
mod published_zopp;
mod vault_server;

pub use certificate::Certificate;
pub use http_front::{Fault, HttpFront, Seen};
pub use object_store_server::{ObjectStoreError, ObjectStoreServer};
pub use openzro_server::{OpenZroAccount, OpenZroServer, OpenZroServerError, personal_access_token};
pub use prometheus::{PrometheusError, PrometheusServer, promtool};
pub use published_zopp::{PublishedSuite, PublishedZopp, PublishedZoppError, PublishedZoppServer};
pub use vault_server::{VaultOptions, VaultServer, VaultServerError, VaultStorage};
