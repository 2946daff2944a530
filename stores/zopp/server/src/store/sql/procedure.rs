//! A change in one round trip to PostgreSQL: a procedure of the database, which is a transaction of its own when it is called outside of one.
//!
//! Each of its statements sees what was committed before it began, as statements that are sent one after the other do. So the procedure takes
//! the same locks in the same order. The difference is that a row is locked for the time that PostgreSQL takes, not for that of ten round trips.
//!
//! A procedure is named after its text, and made by the first change that needs it. So each version of this server brings its own, and those of several
//! versions do not get in each other's way.

use std::{
    borrow::Cow,
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sha2::{Digest, Sha256};
use sqlx::{
    AssertSqlSafe, Executor, PgConnection, PgPool, Postgres,
    postgres::{PgArguments, PgRow},
};

use super::{Query, Value, dialect};
use crate::store::StoreError;

/// The code by which a procedure refuses a change. None of PostgreSQL's own begins with these letters.
const REFUSED: &str = "ZP001";
/// The beginning of the message. The reason follows.
const REFUSED_FOR: &str = "the change is refused: ";
/// The reason of a change that is refused because a question found nothing.
const UNANSWERED: &str = "rights";
/// PostgreSQL's codes for a procedure that does not exist, and for what a role may not do.
const UNDEFINED: &str = "42883";
const NOT_ALLOWED: &str = "42501";
/// How a procedure is made: not by two at the same time.
const LOCK: &str = "SELECT pg_advisory_xact_lock(8821962840116625410)";
/// The procedures of a name, in the order in which they would be called: owner, and whether that can do nothing by them that it could not do anyway.
const OWNERS: &str = "SELECT pg_get_userbyid(p.proowner)::text, p.proowner = me.oid OR owner.rolsuper \
    OR p.proowner = (SELECT relowner FROM pg_class WHERE oid = 'environments'::regclass) \
    FROM pg_proc p JOIN pg_roles me ON me.rolname = current_user JOIN pg_roles owner ON owner.oid = p.proowner \
    WHERE p.proname::text = $1 AND pg_function_is_visible(p.oid) ORDER BY 2 LIMIT 1";

/// A procedure with places for its `{name}`, and for the `{types}` and the `{questions}` that come before all else in it. A change for which one of these
/// questions finds no row is refused.
pub(in crate::store) struct Template(pub(in crate::store) &'static str);

/// The arguments of a call, after the values of the questions.
pub(in crate::store) enum Argument<'q> {
    One(Value<'q>),
    Texts(Vec<Option<Cow<'q, str>>>),
    Bytes(Vec<Option<&'q [u8]>>),
}

/// A procedure, made for its questions.
#[derive(Debug)]
pub(in crate::store) struct Procedure {
    name: String,
    definition: String,
}

/// The procedures that a database is known to have, by what they ask. A text of such a length is neither written nor digested anew for each change.
#[derive(Debug, Clone, Default)]
pub(in crate::store) struct Procedures(Arc<Mutex<HashMap<String, Arc<Procedure>>>>);

/// Why a procedure did nothing.
pub(in crate::store) enum Refusal {
    /// A question found no row.
    Unanswered,
    /// The procedure says why.
    Of(String),
    /// The database failed.
    Failed(StoreError),
}

impl Template {
    /// The procedure that asks these questions first.
    pub(in crate::store) fn with(&self, questions: &[Query<'_>]) -> Procedure {
        let (mut types, mut asked, mut count) = (String::new(), String::new(), 0);
        for question in questions {
            let text = dialect::renumbered(question.sql(), '$', count);
            // A query whose result nobody wants.
            asked += &text.replacen("SELECT", "PERFORM", 1);
            let refuse = format!(
                ";\nIF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = '{REFUSED}', MESSAGE = '{REFUSED_FOR}{UNANSWERED}'; END IF;\n"
            );
            asked += &refuse;
            for value in question.values() {
                types += value_type(value);
                types += ", ";
                count += 1;
            }
        }
        let text = self.0.replacen("{types}", &types, 1).replacen("{questions}", &asked, 1);
        let name = format!("zopp_change_{}", hex::encode(&Sha256::digest(&text)[..10]));
        Procedure { definition: text.replacen("{name}", &name, 1), name }
    }
}

impl Procedures {
    /// Makes sure that the database has the procedure for some questions, and that nobody put another one in its place.
    pub(in crate::store) async fn ensure(
        &self,
        pool: &PgPool,
        template: &Template,
        questions: &[Query<'_>],
    ) -> Result<Arc<Procedure>, StoreError> {
        let asked = asked(questions);
        if let Some(procedure) = self.known().get(&asked) {
            return Ok(Arc::clone(procedure));
        }
        let procedure = Arc::new(template.with(questions));
        let mut transaction = pool.begin().await?;
        if !is_there(&mut transaction, &procedure).await? {
            sqlx::query(LOCK).execute(&mut *transaction).await?;
            // Another replica may have made it meanwhile.
            if !is_there(&mut transaction, &procedure).await? {
                // Safe: made of statements, which are constants, and of digits.
                let make = sqlx::query(AssertSqlSafe(procedure.definition.clone())).persistent(false);
                make.execute(&mut *transaction).await.map_err(|error| not_made(error, &procedure))?;
            }
        }
        transaction.commit().await?;
        self.known().insert(asked, Arc::clone(&procedure));
        Ok(procedure)
    }

    /// Calls a procedure in a transaction of its own.
    pub(in crate::store) async fn call(
        &self,
        pool: &PgPool,
        template: &Template,
        call: &Call<'_>,
    ) -> Result<PgRow, Refusal> {
        let procedure = self.ensure(pool, template, &call.questions).await.map_err(Refusal::Failed)?;
        let called = call.on(pool, &procedure).await;
        if !self.forgets(&called, call) {
            return called.map_err(Refusal::from);
        }
        let procedure = self.ensure(pool, template, &call.questions).await.map_err(Refusal::Failed)?;
        call.on(pool, &procedure).await.map_err(Refusal::from)
    }

    /// Calls a procedure inside of a transaction. [`Procedures::ensure`] comes before the transaction, which a failure would end.
    pub(in crate::store) async fn call_in(
        &self,
        connection: &mut PgConnection,
        procedure: &Procedure,
        call: &Call<'_>,
    ) -> Result<PgRow, Refusal> {
        let called = call.on(connection, procedure).await;
        self.forgets(&called, call);
        called.map_err(Refusal::from)
    }

    /// Forgets a procedure that somebody dropped.
    fn forgets(&self, called: &Result<PgRow, sqlx::Error>, call: &Call<'_>) -> bool {
        let is_gone = called.as_ref().is_err_and(|error| code(error).as_deref() == Some(UNDEFINED));
        is_gone && self.known().remove(&asked(&call.questions)).is_some()
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Arc<Procedure>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The part of a text that tells the procedures of a template apart.
fn asked(questions: &[Query<'_>]) -> String {
    let mut asked = String::new();
    for question in questions {
        asked += question.sql();
        question.values().iter().for_each(|value| asked += value_type(value));
    }
    asked
}

/// The values of a call.
pub(in crate::store) struct Call<'q> {
    pub(in crate::store) questions: Vec<Query<'q>>,
    pub(in crate::store) arguments: Vec<Argument<'q>>,
    /// The types of the columns of the answer.
    pub(in crate::store) answers: &'static [&'static str],
}

impl Call<'_> {
    async fn on<'c>(
        &self,
        executor: impl Executor<'c, Database = Postgres>,
        procedure: &Procedure,
    ) -> Result<PgRow, sqlx::Error> {
        let values = self.questions.iter().flat_map(Query::values);
        let count = self.questions.iter().map(|question| question.values().len()).sum::<usize>() + self.arguments.len();
        let mut places: Vec<String> = (1..=count).map(|number| format!("${number}")).collect();
        // With its type, so that no other procedure of the name fits better.
        places.extend(self.answers.iter().map(|kind| format!("NULL::{kind}")));
        // Safe: names of ours, and digits.
        let call = AssertSqlSafe(format!("CALL {}({})", procedure.name, places.join(", ")));
        let call = values.fold(sqlx::query(call), bind);
        let call = self.arguments.iter().fold(call, |call, argument| match argument {
            Argument::One(value) => bind(call, value),
            Argument::Texts(texts) => call.bind(texts.iter().map(Option::as_deref).collect::<Vec<_>>()),
            Argument::Bytes(bytes) => call.bind(bytes.as_slice()),
        });
        call.fetch_one(executor).await
    }
}

type PostgresQuery = sqlx::query::Query<'static, Postgres, PgArguments>;

/// Binds a value to a statement of PostgreSQL.
pub(super) fn bind(query: PostgresQuery, value: &Value<'_>) -> PostgresQuery {
    match value {
        Value::Text(text) => query.bind(text.as_deref()),
        Value::Bytes(bytes) => query.bind(*bytes),
        Value::Integer(number) => query.bind(*number),
        Value::Boolean(truth) => query.bind(*truth),
    }
}

impl From<sqlx::Error> for Refusal {
    fn from(error: sqlx::Error) -> Self {
        let refused = error.as_database_error().filter(|error| error.code().as_deref() == Some(REFUSED));
        match refused.and_then(|refused| refused.message().strip_prefix(REFUSED_FOR)) {
            Some(UNANSWERED) => Self::Unanswered,
            Some(reason) => Self::Of(reason.to_owned()),
            None => Self::Failed(error.into()),
        }
    }
}

/// Is the procedure there? A procedure of somebody else's would do with our rights what it likes.
async fn is_there(connection: &mut PgConnection, procedure: &Procedure) -> Result<bool, StoreError> {
    let owner: Option<(String, bool)> = sqlx::query_as(OWNERS).bind(&procedure.name).fetch_optional(connection).await?;
    match owner {
        None => Ok(false),
        Some((_, true)) => Ok(true),
        Some((owner, false)) => Err(StoreError::Procedure {
            name: procedure.name.clone(),
            cause: format!("the role {owner:?} made one of that name"),
        }),
    }
}

fn not_made(error: sqlx::Error, procedure: &Procedure) -> StoreError {
    match error.as_database_error() {
        Some(refused) if refused.code().as_deref() == Some(NOT_ALLOWED) => {
            StoreError::Procedure { name: procedure.name.clone(), cause: refused.message().to_owned() }
        }
        _ => error.into(),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sql::query;

    const TEMPLATE: Template = Template("CREATE PROCEDURE {name}({types}p TEXT) AS BEGIN\n{questions}END");

    #[test]
    fn a_procedure_asks_its_questions_first() {
        let questions = [
            query("SELECT 1 FROM t WHERE x = ?1 AND y = ?1 AND z = ?2").bind("b").bind(3_i64),
            query("SELECT 1 WHERE ?").bind(true),
        ];
        let Procedure { name, definition } = TEMPLATE.with(&questions);
        let refused = "IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = 'ZP001', MESSAGE = 'the change is refused: rights'; END IF;";
        assert_eq!(
            definition,
            format!(
                "CREATE PROCEDURE {name}(TEXT, BIGINT, BOOLEAN, p TEXT) AS BEGIN\n\
                 PERFORM 1 FROM t WHERE x = $1 AND y = $1 AND z = $2;\n{refused}\nPERFORM 1 WHERE $3;\n{refused}\nEND"
            )
        );
    }

    #[test]
    fn another_procedure_has_another_name() {
        let name = |questions: &[Query<'_>]| TEMPLATE.with(questions).name;
        let first = name(&[query("SELECT ?").bind("a")]);
        assert_eq!(name(&[query("SELECT ?").bind("b")]), first);
        assert_ne!(name(&[query("SELECT ?").bind(1_i64)]), first);
        assert_ne!(name(&[query("SELECT  ?").bind("a")]), first);
        assert_ne!(name(&[]), first);
    }
}
