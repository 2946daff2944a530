//! Several operators in one process: its command line, without any job.
//!
//! ```text
//! --job "pull --server …" ─▶ words, as a shell makes them ─▶ Job: its settings ─▶ Together: one process
//! ```
//!
//! Read in this order:
//!
//! 1. [`Settings`], what the settings of all jobs have. [`Shared`] names the flags that are another matter where a job is one of several, and [`go_flags`] is
//!    for operators whose original takes the flags of Go.
//! 2. [`Program`], the parts of a single operator's program.
//! 3. [`Job`], what an operator's crate says about itself. [`reasons!`] and [`annotations!`] declare what its reference pages list.
//! 4. `lines`, how a command line becomes jobs, and [`Run`], the command.
//!
//! Guarantee: what is wrong with a command line is told by the name of its job, without the line, which may hold credentials.

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
