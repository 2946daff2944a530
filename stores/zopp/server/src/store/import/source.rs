//! The original's database, which is only read.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::{
    postgres::PgPoolOptions,
    sqlite::{SqliteConnectOptions, SqlitePoolOptions},
};

use super::{
    ImportError,
    schema::{Column, OriginalTable, OriginalType, TABLES},
};
use crate::store::{
    Location,
    open::{MadeBy, made_by},
    sql::{self, Pool, Transaction},
};

/// The table in which migrations are recorded.
const MIGRATIONS: &str = "_sqlx_migrations";
/// Stands in for a time that a table does not have.
const CREATED_AT: &str = "created_at";
/// How PostgreSQL begins to read all of one moment, however long that takes.
const READ: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; \
    SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0";

/// The original's database, and the columns of its tables.
pub(super) struct Original {
    pool: Pool,
    tables: BTreeMap<String, BTreeSet<String>>,
}

impl Original {
    pub(super) async fn open(location: &Location) -> Result<Self, ImportError> {
        let connect_error = |source| ImportError::Connect { database: location.to_string(), source };
        let pool = match location {
            Location::Sqlite { path, .. } => {
                let options = SqliteConnectOptions::new().filename(path).create_if_missing(false);
                let options = options.pragma("query_only", "on");
                let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await;
                Pool::Sqlite(pool.map_err(connect_error)?)
            }
            Location::Postgres(address) => {
                let options = address.options().map_err(connect_error)?.application_name("zopp-server import");
                let pool = PgPoolOptions::new().max_connections(1).connect_with(options).await;
                Pool::Postgres(pool.map_err(connect_error)?)
            }
        };
        match made_by(&pool).await.map_err(connect_error)? {
            MadeBy::Original => {}
            MadeBy::Us => return Err(ImportError::Ours(location.to_string())),
            MadeBy::Nobody => return Err(ImportError::NotOriginal(location.to_string())),
        }
        let columns = match &pool {
            Pool::Sqlite(_) => {
                "SELECT m.name, c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c \
                 WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
            }
            Pool::Postgres(_) => {
                "SELECT table_name::text, column_name::text FROM information_schema.columns \
                 WHERE table_schema = current_schema()"
            }
        };
        let columns: Vec<(String, String)> = sql::query_as(columns).fetch_all(&pool).await?;
        let mut tables: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (table, column) in columns {
            tables.entry(table).or_default().insert(column);
        }
        Ok(Self { pool, tables })
    }

    /// Begins to read all of one moment.
    pub(super) async fn read(&self) -> Result<Transaction, sqlx::Error> {
        self.pool.begin("BEGIN", READ).await
    }

    /// The statement that reads a table; `None` if there is no such table.
    pub(super) fn select(&self, table: &OriginalTable) -> Option<String> {
        let there = self.tables.get(table.name)?;
        let columns: Vec<String> = table.columns.iter().map(|column| self.expression(column, there)).collect();
        let order: Vec<&str> = table.order.iter().copied().filter(|&name| there.contains(name)).collect();
        Some(format!("SELECT {} FROM \"{}\" ORDER BY {}", columns.join(", "), table.name, order.join(", ")))
    }

    /// A column as text, bytes or a number, whatever its type is there.
    fn expression(&self, column: &Column, there: &BTreeSet<String>) -> String {
        let name = column.source;
        let is_there = there.contains(name);
        match (&self.pool, column.kind) {
            (_, OriginalType::Integer | OriginalType::Flag) if !is_there => "0".to_owned(),
            (_, OriginalType::Seconds | OriginalType::Milliseconds) if !is_there && name != CREATED_AT => {
                self.expression(&Column { source: CREATED_AT, target: column.target, kind: column.kind }, there)
            }
            (_, OriginalType::Seconds | OriginalType::Milliseconds) if !is_there => "'1970-01-01 00:00:00'".to_owned(),
            (Pool::Sqlite(_), _) if !is_there => "NULL".to_owned(),
            (Pool::Postgres(_), OriginalType::Bytes) if !is_there => "NULL::bytea".to_owned(),
            (Pool::Postgres(_), _) if !is_there => "NULL::text".to_owned(),
            (_, OriginalType::Bytes) => format!("\"{name}\""),
            (Pool::Sqlite(_), OriginalType::Integer | OriginalType::Flag) => format!("CAST(\"{name}\" AS INTEGER)"),
            (Pool::Sqlite(_), OriginalType::Role) => format!("lower(\"{name}\")"),
            (Pool::Postgres(_), OriginalType::Role) => format!("lower(\"{name}\"::text)"),
            (Pool::Sqlite(_), _) => format!("CAST(\"{name}\" AS TEXT)"),
            (Pool::Postgres(_), OriginalType::Integer) => format!("\"{name}\"::bigint"),
            (Pool::Postgres(_), OriginalType::Flag) => format!("\"{name}\"::int::bigint"),
            (Pool::Postgres(_), OriginalType::Seconds | OriginalType::Milliseconds) => {
                format!("to_char(\"{name}\" AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.MS')")
            }
            (Pool::Postgres(_), _) => format!("\"{name}\"::text"),
        }
    }

    /// Tables with rows that are none of those which this server knows.
    pub(super) async fn unknown_tables(&self) -> Result<Vec<String>, sqlx::Error> {
        let mut unknown = Vec::new();
        for name in self.tables.keys() {
            if name == MIGRATIONS || TABLES.iter().any(|table| table.name == name) {
                continue;
            }
            let has_rows = format!("SELECT 1 FROM \"{name}\" LIMIT 1");
            if sql::query_made(has_rows).fetch_optional(&self.pool).await?.is_some() {
                unknown.push(name.clone());
            }
        }
        Ok(unknown)
    }
}
