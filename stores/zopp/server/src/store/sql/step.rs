//! A statement of a change of a SQLite file, with the effect that it must have, and the question after all of them.

use super::{Query, batch::Effect};
use crate::store::StoreError;

/// A statement of a change.
pub(in crate::store) struct Step<'q> {
    pub(super) query: Query<'q>,
    pub(super) required: RequiredEffect,
}

/// The effect that a statement must have. Without it, the change is refused for the reason given, and nothing of it happens.
pub(super) enum RequiredEffect {
    /// None: any effect will do.
    Any,
    /// It writes a row.
    RowWritten(StoreError),
    /// It is a plain `SELECT`, and finds a row.
    RowFound(StoreError),
}

impl<'q> Step<'q> {
    pub(in crate::store) const fn write(query: Query<'q>) -> Self {
        Self { query, required: RequiredEffect::Any }
    }

    pub(in crate::store) const fn must_write(query: Query<'q>, or_else: StoreError) -> Self {
        Self { query, required: RequiredEffect::RowWritten(or_else) }
    }

    pub(in crate::store) const fn must_find(query: Query<'q>, or_else: StoreError) -> Self {
        Self { query, required: RequiredEffect::RowFound(or_else) }
    }
}

impl RequiredEffect {
    /// Refuses the change if the statement had not the effect that it must have.
    pub(super) fn check(self, effect: &Effect) -> Result<(), StoreError> {
        match self {
            Self::RowWritten(or_else) if effect.written == 0 => Err(or_else),
            Self::RowFound(or_else) if effect.rows.is_empty() => Err(or_else),
            _ => Ok(()),
        }
    }
}
