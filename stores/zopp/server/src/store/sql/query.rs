//! A statement with its values, run on either database.

use std::{borrow::Cow, marker::PhantomData};

use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use sqlx::{AssertSqlSafe, Postgres, Sqlite, postgres::PgArguments, sqlite::SqliteArguments};

use super::{
    Source, dialect,
    procedure::bind,
    row::{FromRow, Row},
};

/// A statement with its values.
#[derive(Clone)]
pub(in crate::store) struct Query<'q> {
    sql: Cow<'static, str>,
    values: Vec<Value<'q>>,
}

/// A statement whose rows become `T`.
pub(in crate::store) struct QueryAs<'q, T> {
    query: Query<'q>,
    rows: PhantomData<fn() -> T>,
}

/// A value, or a `NULL` of its type.
#[derive(Clone)]
pub(in crate::store) enum Value<'q> {
    Text(Option<Cow<'q, str>>),
    Bytes(Option<&'q [u8]>),
    Integer(Option<i64>),
    Boolean(bool),
}

/// The effect of a statement.
pub(in crate::store) struct Done {
    rows: u64,
}

/// A statement in the shared SQL.
pub(in crate::store) const fn query<'q>(sql: &'static str) -> Query<'q> {
    Query { sql: Cow::Borrowed(sql), values: Vec::new() }
}

/// A statement that was made of constants and of the names of tables and columns. No value of a row or of a user may be in it.
pub(in crate::store) const fn query_made<'q>(sql: String) -> Query<'q> {
    Query { sql: Cow::Owned(sql), values: Vec::new() }
}

/// The same, with rows of a type.
pub(in crate::store) const fn query_as<'q, T>(sql: &'static str) -> QueryAs<'q, T> {
    QueryAs { query: query(sql), rows: PhantomData }
}

/// Runs `$method` of sqlx's query on whichever database the source is.
macro_rules! run {
    ($query:expr, $source:expr, $method:ident) => {
        match $source.into() {
            Source::SqlitePool(pool) => $query.sqlite().$method(pool).await.map(Either::Sqlite),
            Source::Sqlite(connection) => $query.sqlite().$method(connection).await.map(Either::Sqlite),
            Source::PostgresPool(pool) => $query.postgres().$method(pool).await.map(Either::Postgres),
            Source::Postgres(connection) => $query.postgres().$method(connection).await.map(Either::Postgres),
        }
    };
}

/// A result of either database.
enum Either<S, P> {
    Sqlite(S),
    Postgres(P),
}

impl<'q> Query<'q> {
    pub(in crate::store) fn bind(mut self, value: impl Into<Value<'q>>) -> Self {
        self.values.push(value.into());
        self
    }

    pub(in crate::store) async fn execute<'c>(self, source: impl Into<Source<'c>>) -> Result<Done, sqlx::Error> {
        let rows = match run!(self, source, execute)? {
            Either::Sqlite(done) => done.rows_affected(),
            Either::Postgres(done) => done.rows_affected(),
        };
        Ok(Done { rows })
    }

    pub(in crate::store) async fn fetch_optional<'c>(
        self,
        source: impl Into<Source<'c>>,
    ) -> Result<Option<Row>, sqlx::Error> {
        Ok(match run!(self, source, fetch_optional)? {
            Either::Sqlite(row) => row.map(Row::Sqlite),
            Either::Postgres(row) => row.map(Row::Postgres),
        })
    }

    pub(in crate::store) async fn fetch_all<'c>(self, source: impl Into<Source<'c>>) -> Result<Vec<Row>, sqlx::Error> {
        Ok(match run!(self, source, fetch_all)? {
            Either::Sqlite(rows) => rows.into_iter().map(Row::Sqlite).collect(),
            Either::Postgres(rows) => rows.into_iter().map(Row::Postgres).collect(),
        })
    }

    /// Row by row, so that a long answer is in memory once.
    pub(in crate::store) fn fetch<'c>(self, source: impl Into<Source<'c>>) -> BoxStream<'c, Result<Row, sqlx::Error>> {
        match source.into() {
            Source::SqlitePool(pool) => self.sqlite().fetch(pool).map_ok(Row::Sqlite).boxed(),
            Source::Sqlite(connection) => self.sqlite().fetch(connection).map_ok(Row::Sqlite).boxed(),
            Source::PostgresPool(pool) => self.postgres().fetch(pool).map_ok(Row::Postgres).boxed(),
            Source::Postgres(connection) => self.postgres().fetch(connection).map_ok(Row::Postgres).boxed(),
        }
    }

    /// Several statements in one text. SQLite's driver counts the values of all of them, so each place at which a value stands gets a value of its own.
    pub(super) fn joined(statements: Vec<Self>) -> Self {
        let (mut sql, mut values) = (String::new(), Vec::new());
        for statement in statements {
            statement.append(&mut sql, &mut values);
            sql.push(';');
        }
        Self { sql: Cow::Owned(sql), values }
    }

    /// The rows of several queries in one. Each is given with what is selected from it, which may be made of names and constants only.
    pub(in crate::store) fn union_all(queries: Vec<(String, Self)>) -> Self {
        let (mut sql, mut values) = (String::new(), Vec::new());
        for (number, (columns, query)) in queries.into_iter().enumerate() {
            sql += if number == 0 { "SELECT " } else { " UNION ALL SELECT " };
            sql += &columns;
            sql += " FROM (";
            query.append(&mut sql, &mut values);
            sql += ") part_";
            sql += &number.to_string();
        }
        Self { sql: Cow::Owned(sql), values }
    }

    /// A query that finds a row if each of these does.
    pub(in crate::store) fn all_find(queries: Vec<Self>) -> Self {
        let (mut sql, mut values) = ("SELECT 1 WHERE ".to_owned(), Vec::new());
        for (number, query) in queries.into_iter().enumerate() {
            sql += if number == 0 { "EXISTS (" } else { " AND EXISTS (" };
            sql += &dialect::renumbered(&query.sql, '?', values.len());
            sql += ")";
            values.extend(query.values);
        }
        Self { sql: Cow::Owned(sql), values }
    }

    /// The query, which ends in a condition, on the further condition that another one finds a row.
    pub(in crate::store) fn and_finds(mut self, other: Self) -> Self {
        let asked = dialect::renumbered(&other.sql, '?', self.values.len());
        self.sql = Cow::Owned(format!("{} AND EXISTS ({asked})", self.sql));
        self.values.extend(other.values);
        self
    }

    /// Insertions of a row each, all by the same `INSERT … VALUES (…)`, as one.
    pub(in crate::store) fn inserted_together(insertions: Vec<Self>) -> Self {
        let (mut sql, mut values) = (String::new(), Vec::new());
        for insertion in insertions {
            if sql.is_empty() {
                sql += &insertion.sql;
            } else if let Some((_, row)) = insertion.sql.split_once(" VALUES ") {
                sql += ", ";
                sql += &dialect::renumbered(row, '?', values.len());
            }
            values.extend(insertion.values);
        }
        Self { sql: Cow::Owned(sql), values }
    }

    pub(super) fn sql(&self) -> &str {
        &self.sql
    }

    pub(super) fn values(&self) -> &[Value<'q>] {
        &self.values
    }

    /// Adds the statement to a text, and its values to those of the text: one for each place at which one stands.
    fn append(&self, sql: &mut String, values: &mut Vec<Value<'q>>) {
        *sql += &dialect::with_placeholders(&self.sql, |sql, number| {
            sql.push('?');
            values.extend(self.values.get(number - 1).cloned());
        });
    }

    pub(super) fn sqlite(self) -> sqlx::query::Query<'static, Sqlite, SqliteArguments> {
        let query = match self.sql {
            Cow::Borrowed(sql) => sqlx::query(sql),
            // Safe: made of names and constants, as `query_made` requires.
            Cow::Owned(sql) => sqlx::query(AssertSqlSafe(sql)),
        };
        self.values.into_iter().fold(query, |query, value| match value {
            Value::Text(text) => query.bind(text.map(Cow::into_owned)),
            Value::Bytes(bytes) => query.bind(bytes),
            Value::Integer(number) => query.bind(number),
            Value::Boolean(truth) => query.bind(truth),
        })
    }

    fn postgres(self) -> sqlx::query::Query<'static, Postgres, PgArguments> {
        // Safe: made of a constant, or of names and constants, by a function that adds nothing but digits.
        let query = sqlx::query(AssertSqlSafe(dialect::postgres(&self.sql)));
        self.values.iter().fold(query, bind)
    }
}

impl<'q, T: FromRow> QueryAs<'q, T> {
    pub(in crate::store) fn bind(mut self, value: impl Into<Value<'q>>) -> Self {
        self.query.values.push(value.into());
        self
    }

    pub(in crate::store) async fn fetch_one<'c>(self, source: impl Into<Source<'c>>) -> Result<T, sqlx::Error> {
        self.fetch_optional(source).await?.ok_or(sqlx::Error::RowNotFound)
    }

    pub(in crate::store) async fn fetch_optional<'c>(
        self,
        source: impl Into<Source<'c>>,
    ) -> Result<Option<T>, sqlx::Error> {
        self.query.fetch_optional(source).await?.as_ref().map(T::from_row).transpose()
    }

    pub(in crate::store) async fn fetch_all<'c>(self, source: impl Into<Source<'c>>) -> Result<Vec<T>, sqlx::Error> {
        self.query.fetch_all(source).await?.iter().map(T::from_row).collect()
    }
}

impl Done {
    pub(in crate::store) const fn rows_affected(&self) -> u64 {
        self.rows
    }
}

/// Values as the store has them.
macro_rules! values {
    ($($from:ty => |$value:ident| $to:expr;)*) => {
        $(impl<'q> From<$from> for Value<'q> {
            fn from($value: $from) -> Self {
                $to
            }
        })*
    };
}

values! {
    &'q str => |text| Self::Text(Some(text.into()));
    &'q String => |text| Self::Text(Some(text.as_str().into()));
    String => |text| Self::Text(Some(text.into()));
    Option<&'q str> => |text| Self::Text(text.map(Into::into));
    &'q Option<String> => |text| Self::Text(text.as_deref().map(Into::into));
    Option<String> => |text| Self::Text(text.map(Into::into));
    &'q [u8] => |bytes| Self::Bytes(Some(bytes));
    &'q Vec<u8> => |bytes| Self::Bytes(Some(bytes));
    Option<&'q [u8]> => |bytes| Self::Bytes(bytes);
    &'q Option<Vec<u8>> => |bytes| Self::Bytes(bytes.as_deref());
    i64 => |number| Self::Integer(Some(number));
    Option<i64> => |number| Self::Integer(number);
    u32 => |number| Self::Integer(Some(number.into()));
    Option<u32> => |number| Self::Integer(number.map(Into::into));
    bool => |truth| Self::Boolean(truth);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_statements_have_a_value_for_each_place() {
        let statements = vec![
            query("SELECT ?2, '?', ?1, ?2").bind("a").bind("b"),
            query("SELECT 1"),
            query("SELECT ?, ?").bind("c").bind("d"),
        ];
        let Query { sql, values } = Query::joined(statements);
        assert_eq!(sql, "SELECT ?, '?', ?, ?;SELECT 1;SELECT ?, ?;");
        assert_eq!(texts(&values), ["b", "a", "b", "c", "d"]);
    }

    #[test]
    fn queries_become_one_with_a_value_for_each_place() {
        let queries = vec![
            ("1, NULL".to_owned(), query("SELECT 1 WHERE ?1 = ?1").bind("a")),
            ("2, q".to_owned(), query("SELECT ? AS q").bind("b")),
        ];
        let Query { sql, values } = Query::union_all(queries);
        assert_eq!(
            sql,
            "SELECT 1, NULL FROM (SELECT 1 WHERE ? = ?) part_0 UNION ALL SELECT 2, q FROM (SELECT ? AS q) part_1"
        );
        assert_eq!(texts(&values), ["a", "a", "b"]);
    }

    #[test]
    fn queries_that_must_all_find_something_share_the_numbers_of_their_values() {
        let queries = vec![query("SELECT ?1, ?1").bind("a"), query("SELECT ? FROM t WHERE x = ?").bind("b").bind("c")];
        let Query { sql, values } = Query::all_find(queries);
        assert_eq!(sql, "SELECT 1 WHERE EXISTS (SELECT ?1, ?1) AND EXISTS (SELECT ?2 FROM t WHERE x = ?3)");
        assert_eq!(texts(&values), ["a", "b", "c"]);
    }

    #[test]
    fn a_query_on_the_condition_of_another_one_keeps_its_numbers() {
        let other = query("SELECT ? FROM t WHERE x = ?1").bind("c");
        let Query { sql, values } =
            query("SELECT y FROM u WHERE y = ?2 AND z = ?1").bind("a").bind("b").and_finds(other);
        assert_eq!(sql, "SELECT y FROM u WHERE y = ?2 AND z = ?1 AND EXISTS (SELECT ?3 FROM t WHERE x = ?3)");
        assert_eq!(texts(&values), ["a", "b", "c"]);
    }

    #[test]
    fn insertions_become_one_of_several_rows() {
        let insertion = |one, other| query("INSERT INTO t (a, b) VALUES (?1, ?2)").bind(one).bind(other);
        let Query { sql, values } =
            Query::inserted_together(vec![insertion("a", "b"), insertion("c", "d"), insertion("e", "f")]);
        assert_eq!(sql, "INSERT INTO t (a, b) VALUES (?1, ?2), (?3, ?4), (?5, ?6)");
        assert_eq!(texts(&values), ["a", "b", "c", "d", "e", "f"]);
    }

    fn texts<'a>(values: &'a [Value<'_>]) -> Vec<&'a str> {
        let text = |value: &'a Value<'_>| match value {
            Value::Text(Some(text)) => text.as_ref(),
            _ => panic!("a text"),
        };
        values.iter().map(text).collect()
    }
}
