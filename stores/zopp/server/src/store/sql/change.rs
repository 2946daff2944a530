//! A change of a SQLite file as a list of statements, between which nobody decides: what they depend on are statements themselves, which must have an
//! effect. They go to the thread of the connection together.

use sqlx::SqliteConnection;

use super::{
    Query, Row, Source,
    batch::{Effect, batch},
    step::{Kind, Step},
};
use crate::store::StoreError;

/// Makes a change inside of a transaction, which must not be committed if the change is refused. Returns the row that `answer` finds after it.
pub(in crate::store) async fn take(
    connection: &mut SqliteConnection,
    steps: Vec<Step<'_>>,
    answer: Query<'_>,
) -> Result<Row, StoreError> {
    let (mut kinds, mut queries) = (Vec::with_capacity(steps.len()), Vec::with_capacity(steps.len() + 1));
    for Step { query, kind } in steps {
        match kind {
            // A question before the first write goes alone: the driver keeps it prepared, and long questions take long to prepare.
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
    queries.push(answer);
    let mut effects = batch(connection, queries).await?;
    let answered = effects.pop();
    for (kind, effect) in kinds.into_iter().zip(&effects) {
        kind.check(effect)?;
    }
    Ok(answered.and_then(|answered| answered.rows.into_iter().next()).ok_or(sqlx::Error::RowNotFound)?)
}
