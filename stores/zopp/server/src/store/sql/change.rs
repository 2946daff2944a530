//! A change as a list of statements, between which nobody decides: what they depend on are statements themselves, which must have an effect.
//!
//! So the way to the database and back is not in between, while others wait for a row. SQLite gets all that write together inside of a transaction,
//! PostgreSQL gets all as one [procedure](super::procedure).

use super::{
    Connection, Pool, Query, Row, Source,
    batch::{Effect, batch},
    procedure::{self, Procedures},
};
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
    /// It is the `SELECT` of a function that only PostgreSQL has, and is left out on SQLite.
    OfPostgres,
}

/// The `SELECT` after all statements of a change: one row of so many integers.
#[derive(Clone)]
pub(in crate::store) struct Answer<'q> {
    pub(in crate::store) query: Query<'q>,
    pub(in crate::store) columns: usize,
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

    pub(in crate::store) const fn of_postgres(query: Query<'q>) -> Self {
        Self { query, kind: Kind::OfPostgres }
    }
}

impl Pool {
    /// Makes a change in a transaction of its own, which SQLite begins by the statement given.
    pub(in crate::store) async fn change(
        &self,
        begin: &'static str,
        steps: Vec<Step<'_>>,
        answer: Answer<'_>,
    ) -> Result<Row, StoreError> {
        if let Self::Postgres(pool) = self {
            return procedure::call(pool, steps, &answer).await;
        }
        let mut transaction = self.begin(begin, begin).await?;
        let row = take(&mut transaction, &mut Procedures::default(), steps, answer).await?;
        transaction.commit().await?;
        Ok(row)
    }
}

/// Makes a change inside of a transaction, which must not be committed if the change is refused. `procedures` are those that the transaction knows.
pub(in crate::store) async fn take(
    connection: &mut Connection,
    procedures: &mut Procedures,
    steps: Vec<Step<'_>>,
    answer: Answer<'_>,
) -> Result<Row, StoreError> {
    let connection = match connection {
        Connection::Sqlite(link) => link.get(),
        Connection::Postgres(link) => return procedures.call(link.get(), steps, &answer).await,
    };
    let (mut kinds, mut queries) = (Vec::with_capacity(steps.len()), Vec::with_capacity(steps.len() + 1));
    for Step { query, kind } in steps {
        match kind {
            Kind::OfPostgres => {}
            // What is asked before anything is written goes alone: the driver keeps it prepared, and long questions take long to prepare.
            Kind::MustFind(_) if queries.is_empty() => {
                let rows = query.fetch_all(Source::Sqlite(&mut *connection)).await?;
                kind.check(&Effect { rows, written: 0 })?;
            }
            _ => {
                kinds.push(kind);
                queries.push(query);
            }
        }
    }
    queries.push(answer.query);
    let mut effects = batch(connection, queries).await?;
    let answered = effects.pop();
    for (kind, effect) in kinds.into_iter().zip(&effects) {
        kind.check(effect)?;
    }
    Ok(answered.and_then(|answered| answered.rows.into_iter().next()).ok_or(sqlx::Error::RowNotFound)?)
}

impl Kind {
    fn check(self, effect: &Effect) -> Result<(), StoreError> {
        match self {
            Self::MustWrite(or_else) if effect.written == 0 => Err(or_else),
            Self::MustFind(or_else) if effect.rows.is_empty() => Err(or_else),
            _ => Ok(()),
        }
    }
}
