//! Why the store did not do what it was asked.

use super::Revoked;
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
    /// A public key to be registered belongs to another principal.
    #[error("the public key belongs to another principal")]
    KeyTaken,
    /// A right by which the change was allowed is gone.
    #[error("the right to do it was taken away")]
    Revoked(Revoked),
    /// The request took effect before.
    #[error("this very request took effect before")]
    Replayed,
    /// There is as much of it as may be.
    #[error(transparent)]
    Limit(#[from] Reached),
    /// A row holds what no version of this server writes; the text says which.
    #[error("the database holds an invalid {0}")]
    Corrupt(&'static str),
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
            _ => Self::Database(error),
        }
    }
}

/// Did PostgreSQL refuse a text with the character NUL? Nothing in the database has such a name, so what is looked up by it is missing.
fn is_no_text(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(sqlx::error::DatabaseError::code).is_some_and(|code| code == "22021")
}
