//! Why the store did not do what it was asked.

use super::{Revoked, lost};
use crate::limits::Reached;

/// Why the store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Something of that name or identity is there already.
    #[error("it exists already")]
    Duplicate,
    /// The object to change, or one that it refers to, does not exist.
    #[error("it does not exist")]
    Missing,
    /// The environment in which a key is to be changed does not exist (any more).
    #[error("the environment does not exist")]
    EnvironmentGone,
    /// A public key to be registered belongs to another principal.
    #[error("the public key belongs to another principal")]
    KeyTaken,
    /// A right by which the change was allowed is gone.
    #[error("the right to do it was taken away")]
    Revoked(Revoked),
    /// The rights of the caller are not those by which the change was decided. It may still be allowed.
    #[error("the rights of the caller changed again and again meanwhile")]
    RightsChanged,
    /// The request took effect before.
    #[error("this very request took effect before")]
    Replayed,
    /// There is as much of it as may be.
    #[error(transparent)]
    Limit(#[from] Reached),
    /// The procedure by which PostgreSQL makes changes of secrets cannot be used. Not for the eyes of callers.
    #[error(
        "the procedure {name} of the database cannot be used: {cause}; drop a procedure of that name, and let this server's role alone create anything \
         in a schema of its own (CREATE SCHEMA … AUTHORIZATION, REVOKE CREATE ON SCHEMA … FROM PUBLIC)"
    )]
    Procedure {
        /// Its name.
        name: String,
        /// The reason.
        cause: String,
    },
    /// A row holds what no version of this server writes; the text says which.
    #[error("the database holds an invalid {0}")]
    Corrupt(&'static str),
    /// The database cannot be reached or written for now: it starts anew, its disk is full, or it is read-only. Not for the eyes of callers.
    #[error("the database cannot be reached or written for now")]
    Outage(#[source] sqlx::Error),
    /// The database failed. Not for the eyes of callers.
    #[error("the database failed")]
    Database(#[source] sqlx::Error),
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        match error.as_database_error().map(sqlx::error::DatabaseError::kind) {
            Some(sqlx::error::ErrorKind::UniqueViolation) => Self::Duplicate,
            // A row that a foreign key points to is gone: deleted between the check and the write.
            Some(sqlx::error::ErrorKind::ForeignKeyViolation) => Self::Missing,
            _ if is_no_text(&error) => Self::Missing,
            _ if is_outage(&error) => {
                lost::note();
                Self::Outage(error)
            }
            _ => Self::Database(error),
        }
    }
}

/// Did PostgreSQL give up waiting for a lock?
pub(super) fn is_lock_timeout(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(sqlx::error::DatabaseError::code).is_some_and(|code| code == "55P03")
}

/// Did PostgreSQL refuse a text with the character NUL? Nothing in the database has such a name, so what is looked up by it is missing.
fn is_no_text(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(sqlx::error::DatabaseError::code).is_some_and(|code| code == "22021")
}

/// Did the database refuse a change because it takes none: a file or a file system that is read-only, a standby?
pub(super) fn is_read_only(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(sqlx::error::DatabaseError::code).is_some_and(|code| is_read_only_code(&code))
}

fn is_read_only_code(code: &str) -> bool {
    code == "25006" || (code.len() != 5 && code.parse::<u32>().is_ok_and(|code| code & 0xff == 8))
}

/// Whether the same statement can succeed later, without a change of ours.
fn is_outage(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed => true,
        sqlx::Error::Database(error) => error.code().is_some_and(|code| is_outage_code(&code)),
        _ => false,
    }
}

/// The same by the database's code: five characters of PostgreSQL, or a number of SQLite, whose lowest byte is the kind of the error.
fn is_outage_code(code: &str) -> bool {
    /// Busy, read-only, a failed read or write, a full disk, and a file that cannot be opened.
    const OF_SQLITE: [u32; 5] = [5, 8, 10, 13, 14];
    if code.len() == 5 {
        // Connections, resources such as the disk, a stop or a start of the server, a failed read or write, a standby, and those who were in
        // each other's way for too long.
        const OF_POSTGRES: [&str; 9] = ["08", "53", "57P0", "58030", "25006", "25P03", "55P03", "40001", "40P01"];
        return OF_POSTGRES.iter().any(|prefix| code.starts_with(prefix));
    }
    code.parse::<u32>().is_ok_and(|code| OF_SQLITE.contains(&(code & 0xff)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_that_takes_no_changes_is_told_from_others() {
        // SQLITE_READONLY, SQLITE_READONLY_DBMOVED; read_only_sql_transaction.
        for code in ["8", "1032", "25006"] {
            assert!(is_read_only_code(code), "{code}");
        }
        // SQLITE_FULL; disk_full, in_failed_sql_transaction, a code of PostgreSQL whose lowest byte as a number is 8, nonsense.
        for code in ["13", "53100", "25P02", "22024", "", "x"] {
            assert!(!is_read_only_code(code), "{code}");
        }
    }

    #[test]
    fn an_outage_is_told_from_a_fault() {
        // SQLITE_BUSY_SNAPSHOT, SQLITE_READONLY_DBMOVED, SQLITE_IOERR_WRITE, SQLITE_FULL, SQLITE_CANTOPEN; disk_full, admin_shutdown,
        // cannot_connect_now, connection_failure, read_only_sql_transaction, lock_not_available.
        for code in ["517", "1032", "778", "13", "14", "53100", "57P01", "57P03", "08006", "25006", "55P03"] {
            assert!(is_outage_code(code), "{code}");
        }
        // SQLITE_ERROR, SQLITE_CORRUPT, SQLITE_CONSTRAINT_UNIQUE; unique_violation, undefined_table, query_canceled, nonsense.
        for code in ["1", "11", "2067", "23505", "42P01", "57014", "", "x"] {
            assert!(!is_outage_code(code), "{code}");
        }
        assert!(matches!(StoreError::from(sqlx::Error::PoolTimedOut), StoreError::Outage(_)));
        assert!(matches!(StoreError::from(sqlx::Error::RowNotFound), StoreError::Database(_)));
    }
}
