//! Everything that is kept, in one SQLite file. The only place with SQL.
//!
//! Reading order: [`Store::open`] (here) and the errors, then one file per noun. The methods are narrow and speak in the
//! server's own terms, so that a PostgreSQL variant can stand behind the same ones.
//!
//! Guarantees:
//! - Each method is one transaction: it happened or it did not. A method that changes something takes the audit row that
//!   goes with it and writes both or neither.
//! - A change begins with a look at the rights of its caller, which its audit row carries ([`Authority`]).
//! - There is one writer; every write transaction takes the write lock at its start, so none fails half-way for having read
//!   first. Readers have connections of their own and see committed states only, never wait for the writer.
//! - What was acknowledged survives a crash of the process and of the machine (write-ahead log, synced at each commit).

mod audit;
mod audit_query;
mod authority;
mod delegation;
mod environments;
mod error;
mod exports;
mod grants;
mod groups;
mod invites;
mod lifecycle;
mod location;
mod migrations;
mod open;
mod permissions;
mod principals;
mod projects;
mod row;
mod secrets;
mod users;
mod workspaces;

use sqlx::{Sqlite, SqliteConnection, SqlitePool, Transaction};

use crate::limits::{Limits, Reached};

pub use audit::{Action, AuditRow, AuditWrite, Outcome};
pub use audit_query::{AuditEntry, AuditFilter};
pub use authority::{Authority, Need, Revoked};
pub use environments::{EnvironmentRow, NewEnvironment};
pub use error::StoreError;
pub use exports::{ExportRow, NewExport, Opened, Opening};
pub use grants::Branch;
pub use groups::{GroupCaller, GroupChange, GroupRow, MemberRow};
pub use invites::{InviteRow, NewInvite, hash_token};
pub use lifecycle::{Decision, Kept, Removed};
pub use location::{Location, LocationError};
pub use open::OpenError;
pub use permissions::{Changed, Grant, HolderKind, Removal, RevokedAll, Scope, Target};
pub use principals::{NewPrincipal, PrincipalRow, ServicePrincipalRow};
pub use projects::ProjectRow;
pub use secrets::{Change, SecretRow, Snapshot};
pub use users::{Joined, Membership, Registration};
pub use workspaces::{Admitted, KeyWrap, NewWorkspace, WorkspaceRow};

/// The open database. Clones share it.
#[derive(Clone, Debug)]
pub struct Store {
    writer: SqlitePool,
    readers: SqlitePool,
    limits: Limits,
}

impl Store {
    /// Begins a change: a transaction that holds the write lock from its first moment. Fails if the caller lost, since the handler
    /// decided, a right that the change depends on.
    async fn write(&self, row: &AuditRow) -> Result<Transaction<'static, Sqlite>, StoreError> {
        let mut transaction = self.begin().await?;
        row.authority.check(&mut transaction).await?;
        Ok(transaction)
    }

    /// Begins a transaction that is nobody's change: of the server itself, or of its operator.
    async fn begin(&self) -> Result<Transaction<'static, Sqlite>, StoreError> {
        Ok(self.writer.begin_with("BEGIN IMMEDIATE").await?)
    }

    /// The same store, in which no more is kept than these limits say.
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// How much may be kept.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Can the database be read and written right now?
    pub async fn ping(&self) -> Result<(), StoreError> {
        sqlx::query("SELECT 1 FROM users LIMIT 1").fetch_optional(&self.readers).await?;
        Ok(())
    }

    /// Waits for what is under way and closes the file.
    pub async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }
}

/// Fails if `query`, with these texts bound, counts as many as there may be.
async fn bound(
    connection: &mut SqliteConnection,
    query: &'static str,
    texts: &[&str],
    reached: Reached,
) -> Result<(), StoreError> {
    let mut query = sqlx::query_as(query);
    for text in texts {
        query = query.bind(*text);
    }
    let (count,): (i64,) = query.fetch_one(connection).await?;
    if count >= i64::from(reached.limit) { Err(reached.into()) } else { Ok(()) }
}

/// A new identifier; later ones sort after earlier ones.
pub fn new_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

#[cfg(test)]
mod tests;
