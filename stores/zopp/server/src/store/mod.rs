//! Everything that is kept, in a SQLite file or in a PostgreSQL database. The only place with SQL.
//!
//! Reading order: [`Store::open`] and the errors, `sql` (one set of statements for both databases), then one file per noun. The
//! methods are narrow and speak in the server's own terms; none but the change of keys knows which database it works on.
//!
//! Guarantees:
//!
//! - Each method is one transaction: it happened or it did not. A method that changes something takes the audit row that
//!   goes with it and writes both or neither.
//!
//! - A change begins with a look at the rights of its caller, which its audit row carries ([`Authority`]), and uses up the
//!   signature of its request. A signature counts once, on all replicas.
//!
//! - Changes that decide anything run one after the other: on SQLite by its write lock, on PostgreSQL by an advisory lock that they
//!   take before their first statement. On PostgreSQL, changes of secrets share that lock, and the row of their environment, which
//!   they change first, orders those of one environment. So no change fails half-way for what another one does, and none is repeated.
//!
//! - A change of one key is one round trip to PostgreSQL (`keys`), so that its environment is locked only while PostgreSQL works on it. Changes that
//!   wait for it go together (`together`).
//!
//! - Readers have connections of their own and see committed states only, never wait for a writer.
//!
//! - What was acknowledged survives a crash of the process and of the machine: on SQLite by a write-ahead log that is synced at each
//!   commit, on PostgreSQL as far as its `synchronous_commit` says.

mod announce;
mod audit;
mod audit_query;
mod authority;
mod backup;
mod batched_changes;
mod changes;
mod delegation;
mod environments;
mod error;
mod exists;
mod exports;
mod grants;
mod groups;
mod history;
mod import;
mod invites;
mod key_rotation;
mod keys;
mod lifecycle;
mod location;
mod lost;
mod migrations;
mod open;
mod partial;
mod permissions;
mod place;
mod principals;
mod projects;
mod secrets;
mod settings;
mod signatures;
mod sql;
mod transfer;
mod users;
mod workspaces;

use self::{
    batched_changes::BatchedChanges,
    sql::{Connection, Pool, Procedures, QueryAs, Transaction},
};
use crate::{
    clock,
    limits::{Limits, Reached},
};

pub use audit::{Action, AuditRow, AuditWrite, Outcome};
pub use audit_query::{AuditEntry, AuditFilter};
pub use authority::{Authority, Need, Revoked};
pub use backup::{BackupError, Restored};
pub use changes::{Attempt, EnvironmentContent, EnvironmentState, SealedManifest, SecretsChange, Wanted};
pub use environments::{EnvironmentRow, NewEnvironment};
pub use error::StoreError;
pub use exports::{ExportRow, NewExport, Opened, Opening};
pub use grants::Branch;
pub use groups::{GroupCaller, GroupChange, GroupRow, MemberRow};
pub use history::{EndRow, Extent, HistoryState, VersionRow};
pub use import::{ImportError, Imported};
pub use invites::{InviteRow, NewInvite, hash_token};
pub use key_rotation::{KeyHolderRow, KeyLinkRow, KeyRotation, KeyState, KeyedEnvironmentRow, Rotated};
pub use lifecycle::{Decision, DeletedWorkspace, Kept, Removed};
pub use location::{Location, LocationError, PostgresAddress};
pub use open::OpenError;
pub use permissions::{Changed, Grant, HolderKind, Removal, RevokedAll, Scope, Target};
pub use place::{ContentSize, KnownCaller, Located};
pub use principals::{NewPrincipal, PrincipalRow, ServicePrincipalRow};
pub use projects::ProjectRow;
pub use secrets::{Change, SecretRow, Snapshot};
pub use users::{Joined, Membership, Registration};
pub use workspaces::{Admitted, KeyWrap, NewWorkspace, WorkspaceRow};

/// The open database. Clones share it.
#[derive(Clone, Debug)]
pub struct Store {
    writer: Pool,
    readers: Pool,
    limits: Limits,
    /// Do changes tell other replicas of themselves?
    announces: bool,
    procedures: Procedures,
    batched: BatchedChanges,
}

/// How SQLite begins each transaction that writes: with the write lock.
const SQLITE_BEGIN: &str = "BEGIN IMMEDIATE";
/// How PostgreSQL begins a change that decides anything: alone among all changes, as on SQLite. The lock is taken before the first
/// statement looks at anything, and each statement sees what was committed before it.
const ALONE: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock(8821962840116625409)";
/// How PostgreSQL lets a change of secrets be beside others of its kind, but beside no change that decides. The row of the
/// environment orders those of one environment.
const BESIDE: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock_shared(8821962840116625409)";
/// How PostgreSQL begins a transaction that neither decides anything nor touches what others decide by.
const APART: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";
/// How PostgreSQL begins to read more than once of the same moment.
const ONE_MOMENT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

impl Store {
    /// Begins a change: a transaction that holds the write lock from its first moment. Fails if the caller lost, since the handler
    /// decided, a right that the change depends on, or if the request took effect before.
    async fn write(&self, row: &AuditRow) -> Result<Transaction, StoreError> {
        let transaction = self.begin().await?;
        authorized(transaction, row).await
    }

    /// The same for a change that touches nothing but the secrets and the version of one environment, whose row it must change first.
    async fn write_secret(&self, row: &AuditRow) -> Result<Transaction, StoreError> {
        let transaction = self.writer.begin(SQLITE_BEGIN, BESIDE).await?;
        authorized(transaction, row).await
    }

    /// Begins a transaction that is nobody's change: of the server itself, or of its operator.
    async fn begin(&self) -> Result<Transaction, StoreError> {
        Ok(self.writer.begin(SQLITE_BEGIN, ALONE).await?)
    }

    /// Begins a transaction that only adds to, or trims, what no change reads: the audit log and the used signatures.
    async fn begin_apart(&self) -> Result<Transaction, StoreError> {
        Ok(self.writer.begin(SQLITE_BEGIN, APART).await?)
    }

    /// Begins to read: all of one moment.
    async fn read(&self) -> Result<Transaction, StoreError> {
        Ok(self.readers.begin("BEGIN", ONE_MOMENT).await?)
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

    /// Can the database be read right now?
    pub async fn ping(&self) -> Result<(), StoreError> {
        sql::query("SELECT 1 FROM users LIMIT 1").fetch_optional(&self.readers).await?;
        Ok(())
    }

    /// Can the database be written right now? Commits a change of one row, so it also fails if the disk is full. After a failure because of a
    /// read-only file, the next writer opens the file anew.
    pub async fn try_write(&self) -> Result<(), StoreError> {
        let written = async {
            let mut transaction = self.begin_apart().await?;
            sql::query("UPDATE readiness SET checked_at = ?").bind(clock::now()).execute(&mut *transaction).await?;
            Ok(transaction.commit().await?)
        };
        let written = written.await;
        if let Err(StoreError::Outage(error)) = &written
            && error::is_read_only(error)
        {
            self.writer.reopen().await;
        }
        written
    }

    /// Empties the write-ahead log of a SQLite file, in which replaced and deleted ciphertexts stay until they are written over. Does nothing
    /// while somebody still reads an earlier state; waits for nobody.
    pub async fn empty_log(&self) -> Result<(), StoreError> {
        if matches!(self.writer, Pool::Postgres(_)) {
            return Ok(());
        }
        let mut writer = self.writer.acquire().await?;
        // With a patience, the checkpoint would hold writers up while it waits for readers.
        sql::query("PRAGMA busy_timeout = 0").execute(&mut writer).await?;
        let emptied = sql::query("PRAGMA wal_checkpoint(TRUNCATE)").fetch_optional(&mut writer).await;
        sql::query_made(format!("PRAGMA busy_timeout = {}", open::BUSY_TIMEOUT.as_millis()))
            .execute(&mut writer)
            .await?;
        Ok(emptied.map(drop)?)
    }

    /// Waits for what is under way and closes the file.
    pub async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }
}

/// A transaction whose caller has its rights and whose request has not taken effect before.
async fn authorized(mut transaction: Transaction, row: &AuditRow) -> Result<Transaction, StoreError> {
    row.authority.check(&mut transaction).await?;
    if !signatures::use_up(&mut transaction, row).await? {
        return Err(StoreError::Replayed);
    }
    Ok(transaction)
}

/// Fails if `query` counts as many as there may be.
async fn bound(connection: &mut Connection, query: QueryAs<'_, (i64,)>, reached: Reached) -> Result<(), StoreError> {
    let (count,) = query.fetch_one(connection).await?;
    if count >= i64::from(reached.limit) { Err(reached.into()) } else { Ok(()) }
}

/// A new identifier; later ones sort after earlier ones.
pub fn new_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

#[cfg(test)]
mod tests;
