//! Objects in a store: S3 and what speaks its language, Google Cloud Storage, Azure Blob Storage, a folder, memory.
//!
//! Read in this order: [`ObjectSource`], what is watched and what a change is; [`StoredObject`], what a change carries; [`open()`], how to get
//! at a store. Any store of the crate `object_store` will do, of the version that is handed on here.

mod connector;
mod content;
mod error;
mod known;
mod open;
mod source;

pub use connector::Connector;
pub use content::Content;
pub use error::ObjectsError;
pub use object_store;
pub use open::{OpenError, open};
pub use source::{ObjectSource, StoredObject};
