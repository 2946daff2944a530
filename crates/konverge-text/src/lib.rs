//! Texts with values of Secrets in them. Pure.
//!
//! A [`Template`] is a text with places for values. A [`FileFormat`] is a whole file of several values, and [`docker_config`] writes the credentials of
//! container registries. Each result is written into a buffer of its final size and is wiped when dropped, so that no copy of a value stays in memory.
//! An error names keys and never a value.

pub mod docker_config;
pub mod dotenv;
mod file;
mod json;
mod pem;
mod properties;
mod template;

pub use self::{
    file::{FileError, FileFormat},
    template::{Placeholder, Template, TemplateError},
};
