//! Rows of either database, and what is made of them.

use sqlx::{ColumnIndex, Row as _, postgres::PgRow, sqlite::SqliteRow};

/// A row.
pub(in crate::store) enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

/// The value that is decoded from a row.
pub(in crate::store) trait FromRow: Sized {
    fn from_row(row: &Row) -> Result<Self, sqlx::Error>;
}

/// The value of a column.
pub(in crate::store) trait Column<'r>: Sized {
    fn read(row: &'r Row, index: impl Index) -> Result<Self, sqlx::Error>;
}

/// The number or the name of a column.
pub(in crate::store) trait Index: ColumnIndex<SqliteRow> + ColumnIndex<PgRow> {}

impl<I: ColumnIndex<SqliteRow> + ColumnIndex<PgRow>> Index for I {}

impl Row {
    pub(in crate::store) fn try_get<'r, T: Column<'r>>(&'r self, index: impl Index) -> Result<T, sqlx::Error> {
        T::read(self, index)
    }
}

macro_rules! columns {
    ($($type:ty),*) => {
        $(impl<'r> Column<'r> for $type {
            fn read(row: &'r Row, index: impl Index) -> Result<Self, sqlx::Error> {
                match row {
                    Row::Sqlite(row) => row.try_get(index),
                    Row::Postgres(row) => row.try_get(index),
                }
            }
        })*
    };
}

columns!(String, Option<String>, &'r str, Vec<u8>, Option<Vec<u8>>);

impl Column<'_> for Option<i64> {
    fn read(row: &Row, index: impl Index) -> Result<Self, sqlx::Error> {
        match row {
            Row::Sqlite(row) => row.try_get(index),
            // PostgreSQL has integers of several widths, such as that of `length()`; sqlx reads them all.
            Row::Postgres(row) => row.try_get_unchecked(index),
        }
    }
}

impl Column<'_> for i64 {
    fn read(row: &Row, index: impl Index) -> Result<Self, sqlx::Error> {
        match row {
            Row::Sqlite(row) => row.try_get(index),
            Row::Postgres(row) => row.try_get_unchecked(index),
        }
    }
}

impl Column<'_> for u32 {
    fn read(row: &Row, index: impl Index) -> Result<Self, sqlx::Error> {
        i64::read(row, index)?.try_into().map_err(|error| sqlx::Error::Decode(Box::new(error)))
    }
}

impl Column<'_> for Option<u32> {
    fn read(row: &Row, index: impl Index) -> Result<Self, sqlx::Error> {
        let number = Option::<i64>::read(row, index)?;
        number.map(u32::try_from).transpose().map_err(|error| sqlx::Error::Decode(Box::new(error)))
    }
}

macro_rules! tuples {
    ($(($($type:ident = $index:literal),*);)*) => {
        $(impl<$($type: for<'r> Column<'r>),*> FromRow for ($($type,)*) {
            fn from_row(row: &Row) -> Result<Self, sqlx::Error> {
                Ok(($(row.try_get::<$type>($index)?,)*))
            }
        })*
    };
}

tuples! {
    (A = 0);
    (A = 0, B = 1);
    (A = 0, B = 1, C = 2);
    (A = 0, B = 1, C = 2, D = 3);
    (A = 0, B = 1, C = 2, D = 3, E = 4, F = 5);
}

/// Implements [`FromRow`] for a struct whose fields are named like the columns; sqlx's own derive would bring its compile-time macros.
macro_rules! from_row {
    ($row:ident { $($field:ident),* $(,)? }) => {
        impl crate::store::sql::FromRow for $row {
            fn from_row(row: &crate::store::sql::Row) -> Result<Self, sqlx::Error> {
                Ok(Self { $($field: row.try_get(stringify!($field))?),* })
            }
        }
    };
}

pub(in crate::store) use from_row;
