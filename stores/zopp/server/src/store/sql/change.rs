//! A change as a list of statements, between which nobody decides: what they depend on are statements themselves, which must have an effect.
//!
//! So the way to the database and back is not in between, while others wait for a row. SQLite gets all that write together inside of a transaction,
//! PostgreSQL gets all as one [`procedure`].

use super::{
    Connection, Pool, Row, Source,
    batch::{Effect, batch},
    procedure::{self, Procedures},
    step::{Answer, Kind, Step},
};
use crate::store::StoreError;

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
