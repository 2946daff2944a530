//! Everything that is kept, in one SQLite file. The only place with SQL.
//!
//! Reading order: [`Store::open`] (here) and the errors, then one file per noun. The methods are narrow and speak in the
//! server's own terms, so that a PostgreSQL variant can stand behind the same ones.
//!
//! Guarantees:
//! - Each method is one transaction: it happened or it did not. A method that changes something takes the audit row that
//!   goes with it and writes both or neither.
//! - There is one writer; every write transaction takes the write lock at its start, so none fails half-way for having read
//!   first. Readers have connections of their own and see committed states only, never wait for the writer.
//! - What was acknowledged survives a crash of the process and of the machine (write-ahead log, synced at each commit).

mod audit;
mod environments;
mod error;
mod grants;
mod invites;
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

use sqlx::{Sqlite, SqlitePool, Transaction};

pub use audit::{Action, AuditRow, Outcome};
pub use environments::{EnvironmentRow, NewEnvironment};
pub use error::StoreError;
pub use invites::{InviteRow, NewInvite, hash_token};
pub use location::{Location, LocationError};
pub use open::OpenError;
pub use permissions::{Changed, Grant, Scope};
pub use principals::{NewPrincipal, PrincipalRow, ServicePrincipalRow};
pub use projects::ProjectRow;
pub use secrets::{Change, SecretRow, Snapshot};
pub use users::{Joined, Membership, Registration};
pub use workspaces::{KeyWrap, NewWorkspace, WorkspaceRow};

/// The open database. Clones share it.
#[derive(Clone, Debug)]
pub struct Store {
    writer: SqlitePool,
    readers: SqlitePool,
}

impl Store {
    /// Begins a transaction that holds the write lock from its first moment.
    async fn write(&self) -> Result<Transaction<'static, Sqlite>, StoreError> {
        Ok(self.writer.begin_with("BEGIN IMMEDIATE").await?)
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

/// A new identifier; later ones sort after earlier ones.
pub fn new_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

#[cfg(test)]
mod tests;
