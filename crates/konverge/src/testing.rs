//! Tests of a controller without an API server.
//!
//! [`TestRun`] runs a controller once for one object and shows what it wrote, said and returned. Beneath it, [`ApiModel`] is an API
//! server in memory; [`Operator::assemble_with`](crate::Operator::assemble_with) runs a whole program against it.

mod api;
mod fields;
mod model;
mod run;
mod selector;
mod write;

pub use api::ApiModel;
pub use run::{Failed, Ran, TestError, TestRun};
pub use write::{Verb, Write};
