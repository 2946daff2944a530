//! Manifests and reference pages out of code.
//!
//! [`access`] collects what a program needs of the API server, and [`role`] makes the objects that let it do that and nothing else.
//! The set of generated [`files`] is printed, written to a folder, or compared with the committed ones. The module
//! [`mod@reference`] makes the pages that people look things up in, and [`watching`] a dashboard and alerts. The module [`chart`]
//! makes a Helm chart of the same objects. The function [`remove_unknown_formats`] keeps the API server from warning about the
//! formats of a definition. Custom resource definitions and webhook configurations are objects like any other
//! ([`files::Files::objects`]).
//!
//! Everything here is pure but for reading and writing the folder: the same code gives the same bytes.

pub mod access;
#[cfg(feature = "generate")]
pub mod chart;
#[cfg(feature = "generate")]
pub mod files;
mod formats;
#[cfg(feature = "generate")]
pub mod reference;
pub mod role;
#[cfg(feature = "generate")]
pub mod watching;

pub use access::Access;
#[cfg(feature = "generate")]
pub use files::Files;
pub use formats::remove_unknown_formats;
