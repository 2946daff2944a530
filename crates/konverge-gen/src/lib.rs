//! Manifests and reference pages out of code.
//!
//! [`access`] collects what a program needs of the API server, and [`role`] makes the objects that let it do that and nothing else.
//! [`files`] is the set of generated files: printed, written to a folder, or compared with what is committed there.
//! [`mod@reference`] makes the pages that people look things up in, and [`watching`] a dashboard and alerts.
//! Custom resource definitions and webhook configurations are objects like any other ([`files::Files::objects`]).
//!
//! Everything here is pure but for reading and writing the folder: the same code gives the same bytes.

pub mod access;
pub mod files;
pub mod reference;
pub mod role;
pub mod watching;

pub use access::Access;
pub use files::Files;
