//! Rows into structs by column name; sqlx's own derive would bring its compile-time macros.

/// Implements `sqlx::FromRow` for a struct whose fields are named like the columns.
macro_rules! from_row {
    ($row:ident { $($field:ident),* $(,)? }) => {
        impl sqlx::FromRow<'_, sqlx::sqlite::SqliteRow> for $row {
            fn from_row(row: &sqlx::sqlite::SqliteRow) -> Result<Self, sqlx::Error> {
                use sqlx::Row as _;
                Ok(Self { $($field: row.try_get(stringify!($field))?),* })
            }
        }
    };
}

pub(super) use from_row;
