//! Rows from one database into another, of either kind.
//!
//! Tables and columns are read from the SQLite file that is one side of each transfer. So a table that a later migration adds is
//! transferred without a change here.

use std::collections::BTreeSet;

use futures::TryStreamExt;

use super::sql::{self, Connection, Row, Value};

/// The tables that describe the file, and not what is kept in it.
const OWN_TABLES: [&str; 2] = ["_sqlx_migrations", "readiness"];
/// Values in one statement at most; SQLite takes 32,766 and PostgreSQL 65,535.
const VALUES: usize = 8000;
/// Bytes in one statement before it is sent. A row of a large value can exceed it.
const BYTES: usize = 4 * 1024 * 1024;

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ColumnType {
    Text,
    Bytes,
    Integer,
}

/// The value of a column, or a `NULL` of its type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cell {
    Text(Option<String>),
    Bytes(Option<Vec<u8>>),
    Integer(Option<i64>),
}

/// A table, with its columns in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) name: String,
    pub(super) columns: Vec<(String, ColumnType)>,
    /// The tables that its rows refer to.
    references: BTreeSet<String>,
}

/// Rows that are inserted into one table, some hundred at a time.
pub(super) struct Inserter<'t> {
    table: &'t str,
    columns: Vec<&'t str>,
    rows: Vec<Vec<Cell>>,
    bytes: usize,
    inserted: u64,
}

impl Cell {
    /// Reads the column at `index`.
    pub(super) fn read(row: &Row, index: usize, kind: ColumnType) -> Result<Self, sqlx::Error> {
        Ok(match kind {
            ColumnType::Text => Self::Text(row.try_get(index)?),
            ColumnType::Bytes => Self::Bytes(row.try_get(index)?),
            ColumnType::Integer => Self::Integer(row.try_get(index)?),
        })
    }

    fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.as_ref().map_or(0, String::len),
            Self::Bytes(bytes) => bytes.as_ref().map_or(0, Vec::len),
            Self::Integer(_) => size_of::<i64>(),
        }
    }
}

impl<'q> From<&'q Cell> for Value<'q> {
    fn from(cell: &'q Cell) -> Self {
        match cell {
            Cell::Text(text) => Self::Text(text.as_deref().map(Into::into)),
            Cell::Bytes(bytes) => Self::Bytes(bytes.as_deref()),
            Cell::Integer(number) => Self::Integer(*number),
        }
    }
}

/// Returns the tables of a SQLite file, each after those that it refers to.
pub(super) async fn tables(file: &mut Connection) -> Result<Vec<Table>, sqlx::Error> {
    let names: Vec<(String,)> = sql::query_as(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name",
    )
    .fetch_all(&mut *file)
    .await?;
    let mut tables = Vec::new();
    for (name,) in names {
        if OWN_TABLES.contains(&name.as_str()) {
            continue;
        }
        let columns: Vec<(String, String)> = sql::query_as("SELECT name, type FROM pragma_table_info(?) ORDER BY cid")
            .bind(&name)
            .fetch_all(&mut *file)
            .await?;
        let columns = columns.into_iter().map(|(column, declared)| Ok((column, kind(&declared)?)));
        let columns = columns.collect::<Result<_, sqlx::Error>>()?;
        let references: Vec<(String,)> =
            sql::query_as("SELECT \"table\" FROM pragma_foreign_key_list(?)").bind(&name).fetch_all(&mut *file).await?;
        let references =
            references.into_iter().map(|(referred,)| referred).filter(|referred| *referred != name).collect();
        tables.push(Table { name, columns, references });
    }
    Ok(in_order(tables))
}

fn kind(declared: &str) -> Result<ColumnType, sqlx::Error> {
    match declared {
        "TEXT" => Ok(ColumnType::Text),
        "BLOB" => Ok(ColumnType::Bytes),
        "INTEGER" => Ok(ColumnType::Integer),
        other => Err(sqlx::Error::Decode(format!("unknown type of a column: {other}").into())),
    }
}

/// Orders tables so that each follows those that it refers to. Tables that refer to each other keep their order.
fn in_order(mut rest: Vec<Table>) -> Vec<Table> {
    let mut ordered: Vec<Table> = Vec::with_capacity(rest.len());
    while !rest.is_empty() {
        let is_ready =
            |table: &Table| !table.references.iter().any(|name| rest.iter().any(|other| other.name == *name));
        let next = rest.iter().position(is_ready).unwrap_or(0);
        ordered.push(rest.remove(next));
    }
    ordered
}

/// Copies all rows of the tables. Returns how many.
pub(super) async fn copy(tables: &[Table], from: &mut Connection, to: &mut Connection) -> Result<u64, sqlx::Error> {
    let mut copied = 0;
    for table in tables {
        let names: Vec<&str> = table.columns.iter().map(|(name, _)| name.as_str()).collect();
        let select = format!("SELECT {} FROM {}", quoted(&names), quoted(&[&table.name]));
        let mut inserter = Inserter::new(&table.name, names);
        let mut rows = sql::query_made(select).fetch(&mut *from);
        while let Some(row) = rows.try_next().await? {
            let cells = table.columns.iter().enumerate().map(|(index, (_, kind))| Cell::read(&row, index, *kind));
            inserter.push(cells.collect::<Result<_, _>>()?, to).await?;
        }
        drop(rows);
        copied += inserter.finish(to).await?;
    }
    Ok(copied)
}

impl<'t> Inserter<'t> {
    pub(super) fn new(table: &'t str, columns: Vec<&'t str>) -> Self {
        Self { table, columns, rows: Vec::new(), bytes: 0, inserted: 0 }
    }

    /// Adds a row, and sends what was added once that is worth a statement.
    pub(super) async fn push(&mut self, row: Vec<Cell>, to: &mut Connection) -> Result<(), sqlx::Error> {
        self.bytes += row.iter().map(Cell::len).sum::<usize>();
        self.rows.push(row);
        if (self.rows.len() + 1) * self.columns.len() > VALUES || self.bytes >= BYTES {
            self.send(to).await?;
        }
        Ok(())
    }

    /// Sends the rest. Returns how many rows were inserted in all.
    pub(super) async fn finish(mut self, to: &mut Connection) -> Result<u64, sqlx::Error> {
        self.send(to).await?;
        Ok(self.inserted)
    }

    async fn send(&mut self, to: &mut Connection) -> Result<(), sqlx::Error> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let row = format!("({})", vec!["?"; self.columns.len()].join(", "));
        let rows = vec![row; self.rows.len()].join(", ");
        let insert = format!("INSERT INTO {} ({}) VALUES {rows}", quoted(&[self.table]), quoted(&self.columns));
        let insert = self.rows.iter().flatten().fold(sql::query_made(insert), sql::Query::bind);
        self.inserted += insert.execute(to).await?.rows_affected();
        self.rows.clear();
        self.bytes = 0;
        Ok(())
    }
}

/// Names as both databases take them, separated by commas. None of ours has a quotation mark in it.
fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str, references: &[&str]) -> Table {
        let references = references.iter().map(|&name| name.to_owned()).collect();
        Table { name: name.into(), columns: Vec::new(), references }
    }

    #[test]
    fn each_table_follows_those_that_it_refers_to() {
        let tables = vec![table("a", &["c"]), table("b", &[]), table("c", &["d", "b"]), table("d", &[])];
        let names: Vec<String> = in_order(tables).into_iter().map(|table| table.name).collect();
        assert_eq!(names, ["b", "d", "c", "a"]);
        let circle = vec![table("a", &["b"]), table("b", &["a"])];
        assert_eq!(in_order(circle).len(), 2, "a circle ends");
    }
}
