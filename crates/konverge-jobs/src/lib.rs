//! Several operators in one process: its command line, without any job.
//!
//! ```text
//! --job "pull --server …" ─▶ words, as a shell makes them ─▶ Job: its settings ─▶ ManagerGroup: one process
//! ```
//!
//! Read in this order:
//!
//! 1. [`Settings`], the settings that all jobs have. The flags that differ where a job is one of several are in [`Shared`]. Operators whose original
//!    takes the flags of Go use [`go_flags`].
//! 2. The parts of a single operator's program: [`Program`].
//! 3. The self-description of an operator's crate: [`Job`]. The macros [`reasons!`] and [`annotations!`] declare the entries of its reference pages.
//! 4. The way from a command line to jobs, `lines`, and the command, [`Run`].
//!
//! Guarantee: an error in a command line names its job and does not repeat the line, which may hold credentials.

pub mod go_flags;
mod job;
mod lines;
mod metrics;
mod probe;
mod program;
pub mod reference;
mod run;
mod settings;
mod shared;

pub use job::{Job, Ready};
pub use konverge_runtime::http_server::Listen;
pub use metrics::MetricsOptions;
pub use probe::{Page, Probe};
pub use program::{Base, Log, Program, ProgramError, run_program, run_task};
pub use run::{Run, about, flags_of};
pub use settings::Settings;
pub use shared::Shared;
