//! Several statements that do not wait for each other's results.

use futures::TryStreamExt;
use sqlx::{Either, Executor, SqliteConnection};

use super::{Query, Row};

/// The effect of one of them.
#[derive(Default)]
pub(super) struct Effect {
    /// The rows that it returned.
    pub(super) rows: Vec<Row>,
    /// The number of rows that it wrote, if it writes.
    pub(super) written: u64,
}

/// Runs the statements in their order and returns the effect of each. If one fails, those behind it are not run.
///
/// SQLite's driver has a thread for each connection, and the way there and back takes longer than most statements. So the statements go there
/// together.
///
/// The driver does not keep them prepared: it panics when it resets several statements of which one failed because the schema had changed since.
pub(super) async fn batch(
    connection: &mut SqliteConnection,
    statements: Vec<Query<'_>>,
) -> Result<Vec<Effect>, sqlx::Error> {
    let mut effects = Vec::with_capacity(statements.len());
    let mut rows = Vec::new();
    let mut steps = connection.fetch_many(Query::joined(statements).sqlite().persistent(false));
    while let Some(step) = steps.try_next().await? {
        match step {
            Either::Right(row) => rows.push(Row::Sqlite(row)),
            // A statement is complete.
            Either::Left(done) => {
                effects.push(Effect { rows: std::mem::take(&mut rows), written: done.rows_affected() });
            }
        }
    }
    Ok(effects)
}
