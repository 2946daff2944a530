//! A change in one round trip to PostgreSQL: a procedure of the database runs its statements, and can be a transaction of its own.
//!
//! Each of its statements sees what was committed before it began, as statements that are sent one after the other do. So the procedure takes
//! the same locks in the same order. The difference is that a row is locked for the time that PostgreSQL takes, not for that of ten round trips.
//!
//! A procedure is written from the statements, named after them, and made by the first change that needs it. So each version of this server
//! brings its own, and those of several versions do not get in each other's way.

use std::collections::HashSet;

use sha2::{Digest, Sha256};
use sqlx::{AssertSqlSafe, PgConnection, PgPool};

use super::{
    Query, Row, Source, Value, dialect, query, query_made,
    step::{Answer, Kind, Step},
};
use crate::store::StoreError;

/// The code by which a procedure tells that a statement has not the effect that it must have. None of PostgreSQL's own begins with these letters.
const REFUSED: &str = "ZP001";
/// The message of that, before the number of the statement.
const REFUSED_AT: &str = "the change is refused at statement ";
/// The form of all procedures: what stands in them around the statements of a change.
const FORM: u8 = 1;
/// Each statement sees what was committed before it began, such as a revocation that it waited for. A session that a pooler opened without our settings may
/// be another one.
const ISOLATED: &str = "IF current_setting('transaction_isolation') <> 'read committed' THEN RAISE EXCEPTION \
                        'a change needs the isolation level read committed: let the pooler pass the settings of a session on'; END IF;\n";
/// PostgreSQL's code for a procedure that does not exist.
const UNDEFINED: &str = "42883";
/// How a procedure is made: not by two at the same time.
const LOCK: &str = "SELECT pg_advisory_xact_lock(8821962840116625410)";

/// The procedures that a transaction knows to be there.
#[derive(Default)]
pub(in crate::store) struct Procedures(HashSet<String>);

/// Makes a change in a transaction of its own, and makes the procedure for it if there is none yet.
pub(super) async fn call(pool: &PgPool, steps: Vec<Step<'_>>, answer: &Answer<'_>) -> Result<Row, StoreError> {
    let name = name(&steps, answer);
    let mut rows = calling(&name, &steps, answer).fetch_all(Source::PostgresPool(pool)).await;
    if rows.as_ref().is_err_and(|error| code(error).as_deref() == Some(UNDEFINED)) {
        let mut transaction = pool.begin().await?;
        make(&mut transaction, definition(&name, &steps, answer)).await?;
        transaction.commit().await?;
        rows = calling(&name, &steps, answer).fetch_all(Source::PostgresPool(pool)).await;
    }
    outcome(rows, steps)
}

impl Procedures {
    /// Makes a change inside of a transaction. A failure would end it, so it is asked first whether the procedure is there.
    pub(super) async fn call(
        &mut self,
        connection: &mut PgConnection,
        steps: Vec<Step<'_>>,
        answer: &Answer<'_>,
    ) -> Result<Row, StoreError> {
        let name = name(&steps, answer);
        if !self.0.contains(&name) {
            let known = query("SELECT 1 WHERE to_regproc(?) IS NOT NULL").bind(&name);
            if known.fetch_optional(Source::Postgres(&mut *connection)).await?.is_none() {
                make(connection, definition(&name, &steps, answer)).await?;
            }
            self.0.insert(name.clone());
        }
        outcome(calling(&name, &steps, answer).fetch_all(Source::Postgres(connection)).await, steps)
    }
}

async fn make(connection: &mut PgConnection, definition: String) -> Result<(), sqlx::Error> {
    sqlx::query(LOCK).execute(&mut *connection).await?;
    // Safe: made of statements, which are constants, and of digits.
    sqlx::query(AssertSqlSafe(definition)).persistent(false).execute(connection).await.map(drop)
}

/// The row of the answer, or the reason why there is none.
fn outcome(rows: Result<Vec<Row>, sqlx::Error>, steps: Vec<Step<'_>>) -> Result<Row, StoreError> {
    match rows {
        Ok(rows) => Ok(rows.into_iter().next().ok_or(sqlx::Error::RowNotFound)?),
        Err(error) => Err(refusal(&error, steps).unwrap_or_else(|| error.into())),
    }
}

/// The call of a procedure, with the values of all its statements.
fn calling<'q>(name: &str, steps: &[Step<'q>], answer: &Answer<'q>) -> Query<'q> {
    let values: Vec<Value<'q>> = queries(steps, answer).flat_map(Query::values).cloned().collect();
    let mut arguments: Vec<String> = (1..=values.len()).map(|number| format!("?{number}")).collect();
    arguments.extend((0..answer.columns).map(|_| "NULL".to_owned()));
    let call = query_made(format!("CALL {name}({})", arguments.join(", ")));
    values.into_iter().fold(call, Query::bind)
}

/// The name of a procedure, which is another one if anything in it is. Change [`FORM`] together with the form of [`definition`].
fn name(steps: &[Step<'_>], answer: &Answer<'_>) -> String {
    let mut digest = Sha256::new();
    digest.update([FORM]);
    for step in steps {
        digest.update([match step.kind {
            Kind::Write => 0_u8,
            Kind::MustWrite(_) => 1,
            Kind::MustFind(_) => 2,
            Kind::OfPostgres => 3,
        }]);
    }
    for query in queries(steps, answer) {
        digest.update(query.sql());
        query.values().iter().for_each(|value| digest.update(value_type(value)));
        digest.update([0_u8]);
    }
    digest.update(answer.columns.to_le_bytes());
    format!("zopp_change_{}", hex::encode(&digest.finalize()[..10]))
}

fn definition(name: &str, steps: &[Step<'_>], answer: &Answer<'_>) -> String {
    let (mut parameters, mut body) = (Vec::new(), ISOLATED.to_owned());
    for (number, Step { query, kind }) in steps.iter().enumerate() {
        let statement = dialect::renumbered(query.sql(), '$', parameters.len());
        parameters.extend(query.values().iter().map(value_type));
        match kind {
            // A query whose result nobody wants.
            Kind::MustFind(_) | Kind::OfPostgres => body += &statement.replacen("SELECT", "PERFORM", 1),
            Kind::Write | Kind::MustWrite(_) => body += &statement,
        }
        body += ";\n";
        if matches!(kind, Kind::MustFind(_) | Kind::MustWrite(_)) {
            let refuse = format!(
                "IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = '{REFUSED}', MESSAGE = '{REFUSED_AT}{number}'; END IF;\n"
            );
            body += &refuse;
        }
    }
    let answered = dialect::renumbered(answer.query.sql(), '$', parameters.len());
    parameters.extend(answer.query.values().iter().map(value_type));
    let answers: Vec<String> = (1..=answer.columns).map(|number| format!("zopp_answer_{number}")).collect();
    let parameters: Vec<String> = parameters
        .into_iter()
        .map(str::to_owned)
        .chain(answers.iter().map(|answer| format!("INOUT {answer} BIGINT")))
        .collect();
    format!(
        "CREATE OR REPLACE PROCEDURE {name}({}) LANGUAGE plpgsql AS $zopp$\nBEGIN\n{body}SELECT * INTO {} FROM ({answered}) answered;\nEND\n$zopp$",
        parameters.join(", "),
        answers.join(", ")
    )
}

fn queries<'a, 'q>(steps: &'a [Step<'q>], answer: &'a Answer<'q>) -> impl Iterator<Item = &'a Query<'q>> {
    steps.iter().map(|step| &step.query).chain([&answer.query])
}

const fn value_type(value: &Value<'_>) -> &'static str {
    match value {
        Value::Text(_) => "TEXT",
        Value::Bytes(_) => "BYTEA",
        Value::Integer(_) => "BIGINT",
        Value::Boolean(_) => "BOOLEAN",
    }
}

fn code(error: &sqlx::Error) -> Option<String> {
    Some(error.as_database_error()?.code()?.into_owned())
}

/// The reason for which a procedure refused the change, if it did.
fn refusal(error: &sqlx::Error, steps: Vec<Step<'_>>) -> Option<StoreError> {
    let error = error.as_database_error().filter(|error| error.code().as_deref() == Some(REFUSED))?;
    let number: usize = error.message().strip_prefix(REFUSED_AT)?.parse().ok()?;
    match steps.into_iter().nth(number)?.kind {
        Kind::MustWrite(or_else) | Kind::MustFind(or_else) => Some(or_else),
        Kind::Write | Kind::OfPostgres => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps() -> Vec<Step<'static>> {
        vec![
            Step::of_postgres(query("SELECT f(?)").bind("a")),
            Step::must_find(
                query("SELECT 1 FROM t WHERE x = ?1 AND y = ?1 AND z = ?2").bind("b").bind(3_i64),
                StoreError::Missing,
            ),
            Step::write(query("INSERT INTO t VALUES (?, '?')").bind(true)),
            Step::must_write(query("UPDATE t SET x = ?").bind(Option::<&[u8]>::None), StoreError::Replayed),
        ]
    }

    fn answer() -> Answer<'static> {
        Answer { query: query("SELECT v, w FROM t WHERE x = ?").bind("c"), columns: 2 }
    }

    #[test]
    fn a_procedure_has_all_statements_and_their_values() {
        let made = definition("zopp_change_x", &steps(), &answer());
        let refused = |number| {
            format!(
                "IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = 'ZP001', MESSAGE = 'the change is refused at statement {number}'; END IF;\n"
            )
        };
        assert_eq!(
            made,
            format!(
                "CREATE OR REPLACE PROCEDURE zopp_change_x(TEXT, TEXT, BIGINT, BOOLEAN, BYTEA, TEXT, INOUT zopp_answer_1 BIGINT, \
                 INOUT zopp_answer_2 BIGINT) LANGUAGE plpgsql AS $zopp$\nBEGIN\n{ISOLATED}PERFORM f($1);\n\
                 PERFORM 1 FROM t WHERE x = $2 AND y = $2 AND z = $3;\n{}INSERT INTO t VALUES ($4, '?');\nUPDATE t SET x = $5;\n{}\
                 SELECT * INTO zopp_answer_1, zopp_answer_2 FROM (SELECT v, w FROM t WHERE x = $6) answered;\nEND\n$zopp$",
                refused(1),
                refused(3)
            )
        );
        let call = calling("zopp_change_x", &steps(), &answer());
        assert_eq!(call.sql(), "CALL zopp_change_x(?1, ?2, ?3, ?4, ?5, ?6, NULL, NULL)");
        assert_eq!(call.values().len(), 6);
    }

    #[test]
    fn another_procedure_has_another_name() {
        let first = name(&steps(), &answer());
        assert_eq!(name(&steps(), &answer()), first);
        assert_ne!(name(&steps()[1..], &answer()), first);
        let mut other = steps();
        other[2] = Step::write(query("INSERT INTO t VALUES (?, '?')").bind("another type"));
        assert_ne!(name(&other, &answer()), first);
        other[2] = Step::must_write(query("INSERT INTO t VALUES (?, '?')").bind(true), StoreError::Missing);
        assert_ne!(name(&other, &answer()), first);
        assert_ne!(name(&steps(), &Answer { columns: 1, ..answer() }), first);
    }
}
