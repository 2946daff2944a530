//! Drives the real `zopp` binary: without a server, and against the real one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod bad_input;
mod certificates;
mod compatibility;
mod device;
mod edit;
mod formats;
mod history;
mod home;
mod identity;
mod k8s;
mod key_rotation;
mod keys_at_rest;
mod lying_server;
mod manifests;
mod odd_keys;
mod people;
mod project_files;
mod published;
mod read_only;
mod readers;
mod removal;
mod run;
mod server;
mod team;
mod terminal;
mod texts;
mod transfer;
mod unreachable;
mod values;
mod world;
