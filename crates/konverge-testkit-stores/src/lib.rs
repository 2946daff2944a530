//! Servers of outside systems for tests. A [`VaultServer`] is a Vault or an `OpenBao`, an [`ObjectStoreServer`] an S3 server, an [`OpenZroServer`]
//! the management server of openZro, and [`PublishedZopp`] the original's zopp. An [`HttpFront`] breaks requests and answers on the way to any of
//! them. A [`PrometheusServer`] is a Prometheus, and [`promtool()`] builds the program that evaluates alerts.
//!
//! They are not in `konverge-testkit`, because a test of an operator needs none of them. Most are built with Go from pinned modules, once per
//! machine. The server of openZro is not built: a machine has it or lacks it. Cargo builds zopp on request. Their processes end with the test
//! process, as those of the test kit do.

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
