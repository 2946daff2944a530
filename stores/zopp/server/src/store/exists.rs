//! Questions whose answer is yes or no.

use super::{
    StoreError,
    sql::{self, Connection},
};

/// Whether the query, with these texts bound, finds a row.
pub(super) async fn exists(
    connection: &mut Connection,
    query: &'static str,
    texts: &[&str],
) -> Result<bool, StoreError> {
    let mut query = sql::query(query);
    for text in texts {
        query = query.bind(*text);
    }
    Ok(query.fetch_optional(connection).await?.is_some())
}
