//! Makes the crate of an operator: what `konverge new` does.
//!
//! The new crate is that in `template/`, under other names. The template is a member of this workspace, compiled, linted and tested
//! like any other. The module [`names`] says which names are good, [`substitution`] puts them in, and [`manifest`] makes a `Cargo.toml`
//! that stands alone. Then [`deploy`] generates what the new crate would generate of itself, and [`files`] is all of it together.
//! Only [`New::write`] writes.
//!
//! Guarantees: a folder that exists is left alone, and a crate that is made is made whole or not at all. Does not: fetch
//! anything, or build.

pub mod deploy;
pub mod files;
pub mod manifest;
pub mod names;
mod new;
pub mod substitution;

pub use new::{New, NewError};

/// The code in the guide, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide.md")]
pub struct Guide;

/// That of those who come from elsewhere.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/coming-from.md")]
pub struct ComingFrom;

/// That of the first page.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;
