//! A PostgreSQL database, shared by all replicas of the server.

use std::net::IpAddr;

use sqlx::{
    Connection,
    postgres::{PgConnectOptions, PgPool, PgPoolOptions, PgSslMode},
};

use super::{ACQUIRE_TIMEOUT, MadeBy, OpenError, made_by, not_migrated};
use crate::store::{location::PostgresAddress, lost, migrations, sql::Pool};

/// Changes in parallel. Reads have connections of their own, so changes that wait for each other never hold up a read.
const WRITERS: u32 = 8;
/// Reads in parallel, each of which waits for a round trip most of the time.
const READERS: u32 = 8;
/// Server-side limits, in milliseconds. A replica that was frozen in the middle of a change holds its locks for no longer than the
/// idle limit; a change waits for others no longer than the lock limit.
/// Each statement of a procedure sees what was committed before it.
const SESSION: [(&str, &str); 4] = [
    ("lock_timeout", "10000"),
    ("idle_in_transaction_session_timeout", "10000"),
    ("statement_timeout", "60000"),
    ("default_transaction_isolation", "read committed"),
];

/// The next step for a database that takes no changes.
pub(super) const WHERE_CHANGES_ARE_TAKEN: &str =
    "give the address of the primary, not of a standby, and turn default_transaction_read_only off";

/// The connections of writers and of readers.
pub(super) async fn open(address: &PostgresAddress) -> Result<(PgPool, PgPool), OpenError> {
    let connect_error = |source| OpenError::ConnectPostgres { address: address.to_string(), source };
    let options = address.options().map_err(connect_error)?.options(SESSION).application_name("zopp-server");
    warn_without_tls(address, &options);
    let pool = || {
        PgPoolOptions::new()
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .test_before_acquire(false)
            .before_acquire(|connection, used| {
                Box::pin(async move {
                    if lost::is_doubtful(used.idle_for) {
                        connection.ping().await?;
                    }
                    Ok(true)
                })
            })
            // A value of megabytes would leave its room with each connection.
            .after_release(|connection, _| {
                Box::pin(async move {
                    connection.shrink_buffers();
                    Ok(true)
                })
            })
    };

    let writer = pool().max_connections(WRITERS).connect_with(options.clone()).await.map_err(connect_error)?;
    if made_by(&Pool::Postgres(writer.clone())).await.map_err(connect_error)? == MadeBy::Original {
        return Err(OpenError::Original { database: address.to_string(), from: address.to_string() });
    }
    // Replicas that start at the same time wait for each other: sqlx takes a lock on the database.
    migrations::postgres()
        .run(&writer)
        .await
        .map_err(|source| not_migrated(address.to_string(), source, WHERE_CHANGES_ARE_TAKEN))?;
    let readers = pool().max_connections(READERS).connect_with(options).await.map_err(connect_error)?;
    Ok((writer, readers))
}

/// Logs a warning that others could read and change the traffic between this program and its database.
fn warn_without_tls(address: &PostgresAddress, options: &PgConnectOptions) {
    let host = options.get_host();
    let is_near = options.get_socket().is_some()
        || host == "localhost"
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    if !is_near && matches!(options.get_ssl_mode(), PgSslMode::Disable | PgSslMode::Allow | PgSslMode::Prefer) {
        tracing::warn!(
            database = %address,
            "the connection to the database can be without TLS: everybody on the way could read and change what is stored; add \
             sslmode=verify-full to the address"
        );
    }
}
