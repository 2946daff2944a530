//! The certificate of a server, and its renewal while the server runs.
//!
//! Read in this order: [`Certificate`], what a server is given; [`Slot`], where each handshake takes the current pair from; [`Pair`],
//! a chain and its key, checked before anybody is served with it.
//!
//! Guarantees: a pair that can be served is never exchanged for one that cannot; a key is wiped from the buffers that it was read
//! into, and is in no log and no error. Does not: ask anybody to sign anything, nor listen; who listens makes its
//! configuration with [`Slot::server_config`].

mod certificate;
mod files;
mod pair;
mod reading;
mod self_signed;
mod slot;

pub use certificate::Certificate;
pub use files::FilesError;
pub use pair::{Pair, PairError, Validity};
pub use reading::Reading;
pub use self_signed::SelfSignedError;
pub use slot::Slot;
