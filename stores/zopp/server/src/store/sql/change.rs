//! A change of a SQLite file as a list of statements, between which nobody decides: what they depend on are statements themselves, which must have an
//! effect. They go to the thread of the connection together.

use sqlx::SqliteConnection;

use super::{
    Query, Row, Source,
    batch::{Effect, batch},
    step::{RequiredEffect, Step},
};
use crate::store::StoreError;

/// Makes a change inside of a transaction, which must not be committed if the change is refused. Returns the row that `answer` finds after it.
pub(in crate::store) async fn take(
    connection: &mut SqliteConnection,
    steps: Vec<Step<'_>>,
    answer: Query<'_>,
) -> Result<Row, StoreError> {
    let (mut all_required, mut queries) = (Vec::with_capacity(steps.len()), Vec::with_capacity(steps.len() + 1));
    for Step { query, required } in steps {
        match required {
            // A question before the first write goes alone: the driver keeps it prepared, and long questions take long to prepare.
            RequiredEffect::RowFound(_) if queries.is_empty() => {
                let rows = query.fetch_all(Source::Sqlite(&mut *connection)).await?;
                required.check(&Effect { rows, written: 0 })?;
            }
            _ => {
                all_required.push(required);
                queries.push(query);
            }
        }
    }
    queries.push(answer);
    let mut effects = batch(connection, queries).await?;
    let answered = effects.pop();
    for (required, effect) in all_required.into_iter().zip(&effects) {
        required.check(effect)?;
    }
    Ok(answered.and_then(|answered| answered.rows.into_iter().next()).ok_or(sqlx::Error::RowNotFound)?)
}
