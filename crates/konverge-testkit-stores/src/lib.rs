//! Servers of outside systems for tests: [`VaultServer`], a Vault or an `OpenBao`, and [`ObjectStoreServer`], an S3 server.
//!
//! They stand apart from `konverge-testkit`, because a test of an operator needs none of them: they are built with Go from pinned
//! modules, once per machine. Their processes end with the test process, as those of the test kit do.

mod certificate;
mod object_store_server;
mod vault_server;

pub use certificate::Certificate;
pub use object_store_server::{ObjectStoreError, ObjectStoreServer};
pub use vault_server::{VaultOptions, VaultServer, VaultServerError, VaultStorage};
