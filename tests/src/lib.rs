//! The stage on which everything meets: control plane, secrets manager, command line and operator, as real processes.
//!
//! Tests, the demo and the benchmarks set the same [`Stage`]. It assumes that the programs were built into the folder that the
//! caller was built into; `cargo xtask` sees to that.

mod binaries;
mod http;
mod operator;
mod stage;
mod watcher;
mod zopp;

pub use binaries::binary;
pub use operator::Operator;
pub use stage::{Stage, annotated_secret};
pub use watcher::{Seen, Watcher};
pub use zopp::{Server, User};
