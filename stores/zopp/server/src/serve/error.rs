//! Why the server did not start, or did not go on. Each says what to do.

use std::io;

use super::TlsError;
use crate::store::{OpenError, StoreError};

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The TLS files are not good.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A port could not be had.
    #[error("cannot listen on {address} ({flag}): {source}; {}", hint(source))]
    Bind {
        /// As given.
        address: String,
        /// Where it was given.
        flag: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The database could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The PostgreSQL by which replicas tell each other of changes cannot be reached.
    #[error(
        "cannot connect to {address}, by which replicas tell each other of changes: {source}; check --events-database-url, or \
         turn it off with --events-backend memory if this is the only replica"
    )]
    Events {
        /// The address, without its password.
        address: String,
        /// The cause.
        source: sqlx::Error,
    },
    /// The database was opened but cannot be read.
    #[error("cannot read from the database which requests were used: {0}; check the file and its disk")]
    Read(#[source] StoreError),
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "another program has this port: stop it or choose another port",
        io::ErrorKind::PermissionDenied => "ports below 1024 need a privilege: choose another port",
        io::ErrorKind::AddrNotAvailable => "this machine does not have this address: choose one of its own, or 0.0.0.0",
        _ => "give a host and a port, such as 0.0.0.0:50051",
    }
}

/// Why a running server ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The gRPC listener failed.
    #[error("serving gRPC failed")]
    Serve(#[source] tonic::transport::Error),
    /// The health listener failed.
    #[error("serving health checks failed")]
    Health(#[source] io::Error),
}
