//! Several statements that do not wait for each other's results.

use futures::TryStreamExt;
use sqlx::{Either, Executor};

use super::{Connection, Query, Row, Source};

/// Runs the statements in their order and returns the rows of each. If one fails, those behind it are not run.
///
/// SQLite's driver has a thread for each connection, and the way there and back takes longer than most statements. So the statements go there
/// together. To PostgreSQL they go one after the other.
///
/// The driver does not keep them prepared: it panics when it resets several statements of which one failed because the schema had changed since.
pub(in crate::store) async fn batch(
    connection: &mut Connection,
    statements: Vec<Query<'_>>,
) -> Result<Vec<Vec<Row>>, sqlx::Error> {
    let mut results = Vec::with_capacity(statements.len());
    if statements.is_empty() {
        return Ok(results);
    }
    if let Source::Sqlite(connection) = Source::from(&mut *connection) {
        let mut rows = Vec::new();
        let mut steps = connection.fetch_many(Query::joined(statements).sqlite().persistent(false));
        while let Some(step) = steps.try_next().await? {
            match step {
                Either::Right(row) => rows.push(Row::Sqlite(row)),
                // A statement is complete.
                Either::Left(_) => results.push(std::mem::take(&mut rows)),
            }
        }
        return Ok(results);
    }
    for statement in statements {
        results.push(statement.fetch_all(&mut *connection).await?);
    }
    Ok(results)
}
