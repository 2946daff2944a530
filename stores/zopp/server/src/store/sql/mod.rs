//! One set of statements for both databases: a thin layer over sqlx, with sqlx's own names.
//!
//! Statements are written once, in the SQL that SQLite and PostgreSQL share, with `?` or `?1` as placeholders. SQLite gets the text as it
//! stands; PostgreSQL gets `$1` in place of `?1` (module `dialect`). Each value carries its type, so PostgreSQL never has to guess
//! the type of a `NULL`. This is not sqlx's `Any` driver, which refuses `NULL` without a type and copies every row.
//!
//! A statement has to keep to these rules, which the conformance tests check on both databases:
//!
//! - `ON CONFLICT … DO UPDATE` names its columns, and `NULLS FIRST` stands wherever a sorted column can be `NULL`.
//! - `IS DISTINCT FROM` compares values that can be `NULL`; PostgreSQL's `IS NOT` takes constants only.
//! - No functions of time or JSON: both are done in Rust.

mod batch;
mod change;
mod connection;
mod dialect;
mod procedure;
mod query;
mod row;
mod step;

pub(super) use change::take;
pub(super) use connection::{Connection, Pool, Source, Transaction};
pub(super) use dialect::postgres_schema;
pub(super) use procedure::{Argument, Call, Procedure, Procedures, Refusal, Template};
pub(super) use query::{Query, QueryAs, Value, query, query_as, query_made};
pub(super) use row::{FromRow, Row, from_row};
pub(super) use step::Step;
