//! Connections, transactions and pools of either database.

use std::ops::{Deref, DerefMut};

use sqlx::{Database, PgConnection, PgPool, Postgres, Sqlite, SqliteConnection, SqlitePool, pool::PoolConnection};

/// The connections to one database.
#[derive(Clone, Debug)]
pub(in crate::store) enum Pool {
    Sqlite(SqlitePool),
    Postgres(PgPool),
}

/// One connection, inside or outside of a transaction.
pub(in crate::store) enum Connection {
    Sqlite(Link<Sqlite>),
    Postgres(Link<Postgres>),
}

/// A connection of one database.
pub(in crate::store) enum Link<DB: Database> {
    Pooled(PoolConnection<DB>),
    Transaction(sqlx::Transaction<'static, DB>),
}

/// An open transaction. Dropping it rolls it back.
pub(in crate::store) struct Transaction(Connection);

/// Where a statement runs.
pub(in crate::store) enum Source<'c> {
    SqlitePool(&'c SqlitePool),
    PostgresPool(&'c PgPool),
    Sqlite(&'c mut SqliteConnection),
    Postgres(&'c mut PgConnection),
}

impl Pool {
    pub(in crate::store) async fn acquire(&self) -> Result<Connection, sqlx::Error> {
        Ok(match self {
            Self::Sqlite(pool) => Connection::Sqlite(Link::Pooled(pool.acquire().await?)),
            Self::Postgres(pool) => Connection::Postgres(Link::Pooled(pool.acquire().await?)),
        })
    }

    /// Begins a transaction with the statement of the database at hand.
    pub(in crate::store) async fn begin(
        &self,
        sqlite: &'static str,
        postgres: &'static str,
    ) -> Result<Transaction, sqlx::Error> {
        Ok(Transaction(match self {
            Self::Sqlite(pool) => Connection::Sqlite(Link::Transaction(pool.begin_with(sqlite).await?)),
            Self::Postgres(pool) => Connection::Postgres(Link::Transaction(pool.begin_with(postgres).await?)),
        }))
    }

    /// Closes a connection to a SQLite file. SQLite opens a file that it may not write for reading only, and such a connection stays so when the
    /// file can be written again.
    pub(in crate::store) async fn reopen(&self) {
        if let Self::Sqlite(pool) = self
            && let Ok(connection) = pool.acquire().await
        {
            // It cannot write, so nothing is lost with it.
            let _ = connection.close().await;
        }
    }

    pub(in crate::store) async fn close(&self) {
        match self {
            Self::Sqlite(pool) => pool.close().await,
            Self::Postgres(pool) => pool.close().await,
        }
    }
}

impl Transaction {
    pub(in crate::store) async fn commit(self) -> Result<(), sqlx::Error> {
        match self.0 {
            Connection::Sqlite(Link::Transaction(transaction)) => transaction.commit().await,
            Connection::Postgres(Link::Transaction(transaction)) => transaction.commit().await,
            Connection::Sqlite(Link::Pooled(_)) | Connection::Postgres(Link::Pooled(_)) => Ok(()),
        }
    }
}

impl Deref for Transaction {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.0
    }
}

impl DerefMut for Transaction {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.0
    }
}

impl<DB: Database> Link<DB> {
    pub(in crate::store) fn get(&mut self) -> &mut DB::Connection {
        match self {
            Self::Pooled(connection) => connection,
            Self::Transaction(transaction) => transaction,
        }
    }
}

impl<'c> From<&'c Pool> for Source<'c> {
    fn from(pool: &'c Pool) -> Self {
        match pool {
            Pool::Sqlite(pool) => Self::SqlitePool(pool),
            Pool::Postgres(pool) => Self::PostgresPool(pool),
        }
    }
}

impl<'c> From<&'c mut Connection> for Source<'c> {
    fn from(connection: &'c mut Connection) -> Self {
        match connection {
            Connection::Sqlite(link) => Self::Sqlite(link.get()),
            Connection::Postgres(link) => Self::Postgres(link.get()),
        }
    }
}
