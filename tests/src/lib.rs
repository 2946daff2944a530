//! The stage on which everything meets: control plane, secrets manager, command line and operator, as real processes.
//!
//! Tests, the demo and the benchmarks set the same [`Stage`]. It assumes that the programs were built into the folder that the
//! caller was built into; `cargo xtask` sees to that.

mod binaries;
mod cast;
mod manage_stage;
mod manifest;
mod operator;
mod push_stage;
mod rbac;
mod roll_stage;
mod shell;
mod signals;
mod stage;
mod watcher;
mod zopp;

pub use binaries::binary;
pub use cast::Cast;
pub use manage_stage::{ManageStage, OpenZroAccount};
pub use manifest::{annotated_deployment, annotated_secret, followed_deployment, yaml};
pub use operator::Operator;
pub use push_stage::{Held, PushStage, Vault};
pub use rbac::operator_rules;
pub use roll_stage::RollStage;
pub use shell::quoted;
pub use signals::Signals;
pub use stage::{Stage, bind};
pub use watcher::{Seen, Watcher};
pub use zopp::{Server, User};
