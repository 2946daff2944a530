//! A statement of a change of a SQLite file, with the effect that it must have, and the question after all of them.

use super::{Query, batch::Effect};
use crate::store::StoreError;

/// A statement of a change.
pub(in crate::store) struct Step<'q> {
    pub(super) query: Query<'q>,
    pub(super) kind: Kind,
}

/// The effect that a statement must have. Without it, the change is refused for the reason given, and nothing of it happens.
pub(super) enum Kind {
    /// Any.
    Write,
    /// It writes a row.
    MustWrite(StoreError),
    /// It is a plain `SELECT`, and finds a row.
    MustFind(StoreError),
}

impl<'q> Step<'q> {
    pub(in crate::store) const fn write(query: Query<'q>) -> Self {
        Self { query, kind: Kind::Write }
    }

    pub(in crate::store) const fn must_write(query: Query<'q>, or_else: StoreError) -> Self {
        Self { query, kind: Kind::MustWrite(or_else) }
    }

    pub(in crate::store) const fn must_find(query: Query<'q>, or_else: StoreError) -> Self {
        Self { query, kind: Kind::MustFind(or_else) }
    }
}

impl Kind {
    /// Refuses the change if the statement had not the effect that it must have.
    pub(super) fn check(self, effect: &Effect) -> Result<(), StoreError> {
        match self {
            Self::MustWrite(or_else) if effect.written == 0 => Err(or_else),
            Self::MustFind(or_else) if effect.rows.is_empty() => Err(or_else),
            _ => Ok(()),
        }
    }
}
