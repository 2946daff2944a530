//! A database of the original server, read into a new one of ours.
//!
//! Ids, versions and ciphertexts stay. Tokens become hashes, times become numbers. Data that today's rules refuse is taken as it is and reported
//! ([`Imported::remarks`]), because somebody depends on it; nothing is left out in silence.
//!
//! The original's schema grew by eight migrations. The reader takes the columns that are there, so it needs no version: a table that is
//! missing is empty, a column that is missing is `NULL` or 0.

mod remarks;
mod schema;
mod source;

use std::collections::HashMap;

use futures::TryStreamExt;

use self::{
    remarks::Remarks,
    schema::{Column, OriginalTable, TABLES},
    source::Original,
};
use super::{
    AuditRow, Location, Store, StoreError, audit,
    backup::{BackupError, NewDatabase},
    exports::proof,
    hash_token,
    sql::{self, Connection},
    transfer::{Cell, Inserter},
};

/// Why nothing was imported. Each text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The original's database cannot be opened.
    #[error("cannot open {database}: {source}; check the address and that this user may read it")]
    Connect {
        /// The database, without a password.
        database: String,
        /// The cause.
        source: sqlx::Error,
    },
    /// It was made by another program.
    #[error(
        "{0} is not a database of the original zopp-server; --from takes one whose schema zopp-server 0.1.1 or its successor made"
    )]
    NotOriginal(String),
    /// This server made it.
    #[error(
        "{0} is a database of this server already: give it as --database-url, or move it with zopp-server backup and restore"
    )]
    Ours(String),
    /// A row cannot be understood.
    #[error("{table}: the row {id} has an invalid {column}; correct it with the database's own tools and import again")]
    Row {
        /// The table.
        table: &'static str,
        /// The row's id.
        id: String,
        /// The column.
        column: &'static str,
    },
    /// A row cannot be stored.
    #[error("{table}: {source}; correct the row with the database's own tools and import again")]
    Insert {
        /// The table.
        table: &'static str,
        /// The words of the database.
        source: sqlx::Error,
    },
    /// The new database cannot be made.
    #[error(transparent)]
    New(#[from] BackupError),
    /// A database failed.
    #[error("the database failed: {0}")]
    Database(#[from] sqlx::Error),
    /// The record of the import cannot be written.
    #[error("the database failed: {0}")]
    Record(#[from] StoreError),
}

/// The effect of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// How many rows each table got, in the order in which they were read.
    pub rows: Vec<(&'static str, u64)>,
    /// Data that today's rules would refuse, and what it means.
    pub remarks: Vec<String>,
}

impl Store {
    /// Reads a database of the original server into a new one: a SQLite file that does not exist, or a PostgreSQL database that is empty. The
    /// original's is not changed. `audit` is recorded in the new one.
    pub async fn import(from: &Location, to: &Location, audit: &AuditRow) -> Result<Imported, ImportError> {
        let original = Original::open(from).await?;
        let new = NewDatabase::create(to).await?;
        let mut source = original.read().await?;
        let mut target = new.begin().await?;
        let mut remarks = Remarks::default();
        let mut rows = Vec::with_capacity(TABLES.len());
        for table in TABLES {
            let inserted = table_rows(table, &original, &mut source, &mut target, &mut remarks).await?;
            rows.push((table.name, inserted));
        }
        drop(source);
        for unknown in original.unknown_tables().await? {
            remarks.add(format!("table {unknown} is none that this server knows; its rows were left out"));
        }
        sql::query(
            "UPDATE environments SET key_count = (SELECT count(*) FROM secrets WHERE env_id = environments.id), \
             byte_count = (SELECT coalesce(sum(length(ciphertext)), 0) FROM secrets WHERE env_id = environments.id)",
        )
        .execute(&mut *target)
        .await?;
        remarks.add_members_without_roles(&mut target).await?;
        let details = serde_json::json!({ "rows": rows.iter().map(|(_, count)| count).sum::<u64>() }).to_string();
        audit::insert(&mut target, &AuditRow { details: Some(details), ..audit.clone() }).await?;
        target.commit().await?;
        new.publish().await?;
        Ok(Imported { rows, remarks: remarks.into_texts() })
    }
}

/// Copies one table. Returns how many rows were inserted.
async fn table_rows(
    table: &'static OriginalTable,
    original: &Original,
    source: &mut Connection,
    target: &mut Connection,
    remarks: &mut Remarks,
) -> Result<u64, ImportError> {
    let Some(select) = original.select(table) else { return Ok(0) };
    let insert_error = |source| ImportError::Insert { table: table.name, source };
    let mut inserter = Inserter::new(table.name, table.columns.iter().map(|column| column.target).collect());
    let mut positions = HashMap::new();
    let mut rows = sql::query_made(select).fetch(source);
    while let Some(row) = rows.try_next().await? {
        let mut cells = Vec::with_capacity(table.columns.len());
        for (index, column) in table.columns.iter().enumerate() {
            // SQLite keeps values of any type, and texts that are none, in any column.
            let read = Cell::read(&row, index, column.kind.read_as()).ok();
            let Some(cell) = read.and_then(|read| convert(column, read)) else {
                let id = match cells.first() {
                    Some(Cell::Text(Some(id))) => id.clone(),
                    _ => "?".to_owned(),
                };
                return Err(ImportError::Row { table: table.name, id, column: column.source });
            };
            cells.push(cell);
        }
        if table.name == "invite_workspaces" {
            number_workspace(&mut cells, &mut positions);
        }
        remarks.look(table, &mut cells);
        inserter.push(cells, target).await.map_err(insert_error)?;
    }
    drop(rows);
    inserter.finish(target).await.map_err(insert_error)
}

/// Returns the value as our schema has it; `None` if it is not understood.
fn convert(column: &Column, read: Cell) -> Option<Cell> {
    use schema::OriginalType;
    Some(match (column.kind, read) {
        (OriginalType::Seconds, Cell::Text(Some(text))) => Cell::Integer(Some(schema::time(&text)?.as_second())),
        (OriginalType::Milliseconds, Cell::Text(Some(text))) => {
            Cell::Integer(Some(schema::time(&text)?.as_millisecond()))
        }
        (OriginalType::Token, Cell::Text(Some(token))) => Cell::Bytes(Some(hash_token(&token).to_vec())),
        (OriginalType::Proof, Cell::Text(Some(hash))) => Cell::Text(Some(proof(&hash))),
        (OriginalType::Seconds | OriginalType::Milliseconds | OriginalType::Token | OriginalType::Proof, _) => {
            return None;
        }
        (OriginalType::Integer | OriginalType::Flag, Cell::Integer(number)) => {
            Cell::Integer(Some(number.unwrap_or_default()))
        }
        (_, other) => other,
    })
}

/// Gives each workspace of an invite its place: the first one is in the encryption context of the key.
fn number_workspace(cells: &mut [Cell], positions: &mut HashMap<String, i64>) {
    if let [Cell::Text(Some(invite)), _, position @ Cell::Integer(_)] = cells {
        let next = positions.entry(invite.clone()).or_default();
        *position = Cell::Integer(Some(*next));
        *next += 1;
    }
}
