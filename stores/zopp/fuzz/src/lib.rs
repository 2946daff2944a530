//! Targets for fuzzing: each parser of bytes that come to zopp from outside, as a function that panics if the parser breaks its promise.
//!
//! `tests/it.rs` runs each target for a moment in the normal test run, on the seeds and on mutations of them. `cargo-fuzz/` beside this file runs
//! them under libFuzzer for as long as one likes; its README has the commands.
//!
//! | Target | Bytes | From |
//! |---|---|---|
//! | `config_file` | `~/.zopp/config.json` of either generation, or a credentials file | other programs, a mounted Secret |
//! | `dotenv` | what `secret import` reads | anybody |
//! | `project_file` | `zopp.toml`, `.yaml`, `.json` | a repository |
//! | `invite_code` | an invite, a fingerprint | whoever invites |
//! | `envelope` | wrapped keys, values, exports, manifests | the server, or a thief of its database |
//! | `key_link` | links between the keys of a workspace | the server, or somebody who was removed |
//! | `message` | requests and answers of all calls | the network |
//! | `address` | addresses of databases, servers and proxies | whoever configures them |
//!
//! The original's rows and backup files need a database each, so they are property tests of the server's store
//! (`stores/zopp/server/src/store/tests/`). Requests over the wire are in `stores/zopp/server/tests/it/hostile.rs`.

#![allow(clippy::panic, clippy::expect_used, clippy::unwrap_used, reason = "a target reports by panicking")]

mod address;
mod config_file;
mod dotenv;
mod envelope;
mod invite_code;
mod key_link;
mod message;
mod project_file;

/// A function of bytes, with bytes to begin with.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// As the table above names it.
    pub name: &'static str,
    /// The inputs of the parser, in their forms.
    pub seeds: &'static [&'static [u8]],
    /// Panics if the parser breaks its promise.
    pub run: fn(&[u8]),
}

/// All targets.
pub const TARGETS: [Target; 8] = [
    Target { name: "config_file", seeds: config_file::SEEDS, run: config_file::run },
    Target { name: "dotenv", seeds: dotenv::SEEDS, run: dotenv::run },
    Target { name: "project_file", seeds: project_file::SEEDS, run: project_file::run },
    Target { name: "invite_code", seeds: invite_code::SEEDS, run: invite_code::run },
    Target { name: "envelope", seeds: envelope::SEEDS, run: envelope::run },
    Target { name: "key_link", seeds: key_link::SEEDS, run: key_link::run },
    Target { name: "message", seeds: message::SEEDS, run: message::run },
    Target { name: "address", seeds: address::SEEDS, run: address::run },
];

/// The target of this name.
///
/// # Panics
/// If there is none.
pub fn target(name: &str) -> Target {
    TARGETS.into_iter().find(|target| target.name == name).expect("a name of the table")
}
