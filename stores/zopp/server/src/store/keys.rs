//! Changes of the keys of an environment: by statements on SQLite, by one call of a procedure on PostgreSQL.
//!
//! The two are written separately. The procedure knows what a key had before, and so needs half as many statements, each of which costs PostgreSQL more to
//! begin than to do; SQLite has no variables to keep that in. The tests of the store run on both.

use std::{borrow::Cow, sync::Arc};

use sqlx::Row as _;

use super::{
    Action, AuditRow, Authority, BESIDE, SQLITE_BEGIN, SecretRow, Store, StoreError,
    audit::{insertion, insertion_of_set},
    history::{ROW_BYTES, growth, keeping, trimming},
    new_id,
    signatures::using_up,
    sql::{self, Argument, Call, Connection, Pool, Procedure, Query, Refusal, Step, Template, Value},
};
use crate::{
    clock,
    events::notice,
    limits::{Limits, Reached},
};

const PROCEDURE: Template = Template(include_str!("sql/change_keys.sql"));
/// The types of its answer: the version, the bytes of the history, and which keys are new.
const ANSWERS: [&str; 3] = ["BIGINT", "BIGINT", "BIGINT[]"];

/// Counts keys (`?1`) and bytes (`?2`) in the place of those that an environment (`?3`) has of a key (`?4`).
macro_rules! count {
    () => {
        "key_count = key_count + ?1 - (SELECT count(*) FROM secrets WHERE env_id = ?3 AND key_name = ?4), \
         byte_count = byte_count + ?2 - (SELECT CAST(coalesce(sum(length(ciphertext)), 0) AS BIGINT) FROM secrets \
            WHERE env_id = ?3 AND key_name = ?4)"
    };
}

/// Changes of keys of one environment, of which all happen or nothing, in their order.
pub(super) struct KeysChange<'a> {
    pub(super) environment_id: &'a str,
    /// The workspace that it is in, if a key is set.
    pub(super) workspace_id: Option<&'a str>,
    /// Whether values that end are kept as earlier ones.
    pub(super) keeps_former: bool,
    /// At least one. All of them are by one principal.
    pub(super) keys: Vec<KeyChange<'a>>,
}

/// The change of one key.
pub(super) struct KeyChange<'a> {
    pub(super) key: &'a str,
    /// The new value. `None` deletes the key, and is refused if the key is not there.
    pub(super) value: Option<&'a SecretRow>,
    /// The record of it. Setting is recorded as a creation or an update, whichever it is.
    pub(super) audit: &'a AuditRow,
}

/// An environment after a change of its keys.
pub(super) struct Outcome {
    pub(super) version: i64,
    /// Bytes of its earlier values.
    pub(super) history: i64,
    /// For each of the keys: was it new?
    pub(super) created: Vec<bool>,
}

/// The procedure that changes keys inside of a transaction, on PostgreSQL.
pub(super) struct Prepared(Option<Arc<Procedure>>);

impl Store {
    /// Changes keys in a transaction of its own. Each change counts the version up by one, uses up a signature, and is told to all replicas. Refused if
    /// the rights of the caller are not those of `authority`, and if the environment would grow beyond its limits.
    pub(super) async fn change_keys(
        &self,
        change: &KeysChange<'_>,
        authority: &Authority,
    ) -> Result<Outcome, StoreError> {
        let change_id = new_id();
        if let Pool::Postgres(pool) = &self.writer {
            let call = change.call(&self.limits, Some((authority, &change_id, self.announces())));
            let answer = self.procedures.call(pool, &PROCEDURE, &call).await;
            return outcome(change, &answer.map_err(|refusal| refused(refusal, &self.limits))?);
        }
        let mut transaction = self.writer.begin(SQLITE_BEGIN, BESIDE).await?;
        let outcome = change.on_sqlite(&mut transaction, &self.limits, |key| {
            let question = authority.question().map(|question| Step::must_find(question, StoreError::RightsChanged));
            let signature = using_up(key.audit).map(|using_up| Step::must_write(using_up, StoreError::Replayed));
            let count_up =
                Step::must_write(counting_up(change.environment_id, &change_id, 1), StoreError::EnvironmentGone);
            question.into_iter().chain(signature).chain([count_up]).collect()
        });
        let outcome = outcome.await?;
        transaction.commit().await?;
        Ok(outcome)
    }

    /// Returns the procedure that changes keys inside of a transaction. It has to be there before the transaction begins.
    pub(super) async fn prepare_to_change_keys(&self) -> Result<Prepared, StoreError> {
        Ok(Prepared(match &self.writer {
            Pool::Postgres(pool) => Some(self.procedures.ensure(pool, &PROCEDURE, &[]).await?),
            Pool::Sqlite(_) => None,
        }))
    }

    /// Changes keys inside of a transaction that has counted the environment up.
    pub(super) async fn change_keys_in(
        &self,
        transaction: &mut Connection,
        Prepared(procedure): &Prepared,
        change: &KeysChange<'_>,
    ) -> Result<Outcome, StoreError> {
        let (Connection::Postgres(link), Some(procedure)) = (&mut *transaction, procedure) else {
            return change.on_sqlite(transaction, &self.limits, |_| Vec::new()).await;
        };
        let call = change.call(&self.limits, None);
        let answer = self.procedures.call_in(link.get(), procedure, &call).await;
        outcome(change, &answer.map_err(|refusal| refused(refusal, &self.limits))?)
    }
}

impl<'a> KeysChange<'a> {
    /// The call of the procedure. Without a transaction of its `own`, all keys have the version that the environment has, and nothing is told.
    fn call<'c>(&'c self, limits: &Limits, own: Option<(&'c Authority, &'c str, bool)>) -> Call<'c> {
        let (authority, change_id, announces) = match own {
            Some((authority, change_id, announces)) => (Some(authority), Some(change_id), announces),
            None => (None, None, false),
        };
        let (now, by) = (clock::now(), self.keys[0].audit);
        let told = self.keys.iter().filter(|_| announces);
        let told = told.map(|key| notice::around_version(self.environment_id, key.key, key.value.is_none(), now));
        let (mut channel, mut before, mut after) = (None, Vec::new(), Vec::new());
        for (of_environment, [before_version, after_version]) in told {
            channel = Some(of_environment);
            before.push(Some(before_version.into()));
            after.push(Some(after_version.into()));
        }
        let digests = self.keys.iter().filter(|_| own.is_some()).filter_map(|key| key.audit.signature.as_ref());
        let values: [Value<'c>; 19] = [
            (&by.principal_id).into(),
            (&by.user_id).into(),
            self.workspace_id.into(),
            self.environment_id.into(),
            (&by.project_id).into(),
            (&by.workspace_id).into(),
            (&by.environment_id).into(),
            by.resource_type.into(),
            by.outcome.as_str().into(),
            now.into(),
            clock::now_milliseconds().into(),
            change_id.into(),
            i64::from(own.is_some()).into(),
            channel.into(),
            (self.keeps_former && limits.history_versions > 0).into(),
            limits.history_versions.into(),
            ROW_BYTES.into(),
            limits.environment_keys.into(),
            limits.environment_bytes.into(),
        ];
        let mut arguments: Vec<Argument<'c>> = values.into_iter().map(Argument::One).collect();
        arguments.extend([
            Argument::Bytes(digests.map(|digest| Some(digest.as_slice())).collect()),
            self.texts(|key| Some(key.key.into())),
            self.bytes(|value| &value.nonce),
            self.bytes(|value| &value.ciphertext),
            self.texts(|_| Some(new_id().into())),
            self.texts(|_| Some(new_id().into())),
            self.texts(|key| {
                let action = if key.value.is_some() { Action::SecretUpdate } else { key.audit.action };
                Some(action.as_str().into())
            }),
            // A caller can name what no name can be; PostgreSQL takes no text with this character.
            self.texts(|key| Some(key.audit.resource_id.replace('\0', "\u{fffd}").into())),
            self.texts(|key| key.audit.details.as_deref().map(Into::into)),
            self.texts(|key| key.audit.client_ip.as_deref().map(Into::into)),
            Argument::Texts(before),
            Argument::Texts(after),
        ]);
        Call { questions: authority.and_then(Authority::question).into_iter().collect(), arguments, answers: &ANSWERS }
    }

    fn texts<'c>(&'c self, text: impl Fn(&'c KeyChange<'a>) -> Option<Cow<'c, str>>) -> Argument<'c> {
        Argument::Texts(self.keys.iter().map(text).collect())
    }

    fn bytes<'c>(&'c self, bytes: impl Fn(&'c SecretRow) -> &'c Vec<u8>) -> Argument<'c> {
        Argument::Bytes(self.keys.iter().map(|key| key.value.map(|value| bytes(value).as_slice())).collect())
    }

    /// Makes the changes by statements. Those of `before` come before those of each key.
    async fn on_sqlite<'s>(
        &'s self,
        transaction: &mut Connection,
        limits: &Limits,
        before: impl Fn(&'s KeyChange<'a>) -> Vec<Step<'s>>,
    ) -> Result<Outcome, StoreError> {
        let Connection::Sqlite(link) = transaction else { return Err(StoreError::Corrupt("connection")) };
        let mut outcome = Outcome { version: 0, history: 0, created: Vec::with_capacity(self.keys.len()) };
        for key in &self.keys {
            let id = new_id();
            let mut steps = before(key);
            steps.extend(self.steps(key, &id, limits));
            let row = sql::take(link.get(), steps, question(self.environment_id, &id)).await?;
            (outcome.version, outcome.history) = (row.try_get(0)?, row.try_get(1)?);
            outcome.created.push(row.try_get::<i64>(2)? > 0);
        }
        Ok(outcome)
    }

    /// The statements for one key, after the environment is counted up. `id` is that of the key's row, if it is new.
    fn steps<'s>(&'s self, change: &'s KeyChange<'a>, id: &'s str, limits: &Limits) -> Vec<Step<'s>> {
        let (environment_id, key) = (self.environment_id, change.key);
        let Some(value) = change.value else {
            let delete = sql::query("DELETE FROM secrets WHERE env_id = ? AND key_name = ?");
            let delete = delete.bind(environment_id).bind(key);
            let mut steps = self.count(change, 0, 0, limits);
            steps.extend([Step::must_write(delete, StoreError::Missing), Step::write(insertion(change.audit))]);
            return steps;
        };
        let length = i64::try_from(value.ciphertext.len()).unwrap_or(i64::MAX);
        let mut steps = self.count(change, 1, length, limits);
        steps.extend([
            Step::must_find(has_room_for_key(environment_id, key, limits), too_many_keys(limits)),
            Step::must_find(has_room_for_bytes(environment_id, key, length, limits), too_many_bytes(limits)),
            Step::write(insertion_of_set(change.audit, environment_id, key)),
            Step::write(self.setting(change, value, id)),
        ]);
        steps
    }

    /// Keeps the value that ends, and counts by how much the environment grows with so many keys and bytes in its place.
    fn count<'s>(&'s self, change: &'s KeyChange<'a>, keys: i64, bytes: i64, limits: &Limits) -> Vec<Step<'s>> {
        let (environment_id, key) = (self.environment_id, change.key);
        if !self.keeps_former || limits.history_versions == 0 {
            let count = concat!("UPDATE environments SET ", count!(), " WHERE id = ?3");
            return vec![Step::write(sql::query(count).bind(keys).bind(bytes).bind(environment_id).bind(key))];
        }
        let count = concat!(
            "UPDATE environments SET ",
            count!(),
            ", history_bytes = history_bytes + ",
            growth!(),
            " WHERE id = ?3"
        );
        let count = sql::query(count).bind(keys).bind(bytes).bind(environment_id).bind(key).bind(ROW_BYTES);
        vec![
            Step::write(keeping(environment_id, key, &change.audit.principal_id, change.value.is_none())),
            Step::write(count.bind(limits.history_versions)),
            Step::write(trimming(environment_id, key, limits)),
        ]
    }

    fn setting<'s>(&'s self, change: &'s KeyChange<'a>, value: &'s SecretRow, id: &'s str) -> Query<'s> {
        let set = "INSERT INTO secrets (id, workspace_id, env_id, key_name, nonce, ciphertext, created_at, updated_at, version, set_by) \
                   SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, version, ?8 FROM environments WHERE id = ?3 \
                   ON CONFLICT (workspace_id, env_id, key_name) DO UPDATE SET nonce = excluded.nonce, ciphertext = excluded.ciphertext, \
                   updated_at = excluded.updated_at, version = excluded.version, set_by = excluded.set_by";
        sql::query(set)
            .bind(id)
            .bind(self.workspace_id)
            .bind(self.environment_id)
            .bind(change.key)
            .bind(&value.nonce)
            .bind(&value.ciphertext)
            .bind(clock::now())
            .bind(&change.audit.principal_id)
    }
}

/// The question for the environment after the change of a key. `id` is that of the key's row, if it is new.
fn question<'q>(environment_id: &'q str, id: &'q str) -> Query<'q> {
    let query = "SELECT version, history_bytes, (SELECT count(*) FROM secrets WHERE id = ?2) AS created FROM environments WHERE id = ?1";
    sql::query(query).bind(environment_id).bind(id)
}

/// The answer of the procedure.
fn outcome(change: &KeysChange<'_>, answer: &sqlx::postgres::PgRow) -> Result<Outcome, StoreError> {
    // The numbers of new ones are counted from 1, and grow.
    let created: Vec<i64> = answer.try_get(2)?;
    let created = (1..).take(change.keys.len()).map(|number| created.binary_search(&number).is_ok()).collect();
    Ok(Outcome { version: answer.try_get(0)?, history: answer.try_get(1)?, created })
}

/// The error that a refusal of the procedure stands for.
fn refused(refusal: Refusal, limits: &Limits) -> StoreError {
    match refusal {
        Refusal::Failed(error) => error,
        Refusal::Unanswered => StoreError::RightsChanged,
        Refusal::Of(reason) => match reason.as_str() {
            "replayed" => StoreError::Replayed,
            "environment" => StoreError::EnvironmentGone,
            "missing" => StoreError::Missing,
            "keys" => too_many_keys(limits),
            "bytes" => too_many_bytes(limits),
            _ => StoreError::Corrupt("reason of a refusal"),
        },
    }
}

/// Finds a row if the environment has room for the key, which is counted already, or has the key.
fn has_room_for_key<'q>(environment_id: &'q str, key: &'q str, limits: &Limits) -> Query<'q> {
    let query = "SELECT 1 FROM environments WHERE id = ?1 AND (key_count <= ?2 \
                 OR EXISTS (SELECT 1 FROM secrets WHERE env_id = ?1 AND key_name = ?3))";
    sql::query(query).bind(environment_id).bind(limits.environment_keys).bind(key)
}

/// Finds a row if the environment has room for the bytes of the key, which are counted already. A write that makes an environment no larger is accepted even above
/// the limit.
fn has_room_for_bytes<'q>(environment_id: &'q str, key: &'q str, length: i64, limits: &Limits) -> Query<'q> {
    let query = "SELECT 1 FROM environments WHERE id = ?1 AND (byte_count <= ?2 \
                 OR EXISTS (SELECT 1 FROM secrets WHERE env_id = ?1 AND key_name = ?3 AND length(ciphertext) >= ?4))";
    sql::query(query).bind(environment_id).bind(limits.environment_bytes).bind(key).bind(length)
}

fn too_many_keys(limits: &Limits) -> StoreError {
    let limit = limits.environment_keys;
    Reached { what: "keys in an environment", limit, flag: "--max-environment-keys" }.into()
}

fn too_many_bytes(limits: &Limits) -> StoreError {
    let limit = limits.environment_bytes;
    Reached { what: "bytes of encrypted values in an environment", limit, flag: "--max-environment-bytes" }.into()
}

/// The statement that counts a change of an environment by `steps`, which may be none. The first statement of every change: it locks the row, and so
/// orders them.
pub(super) fn counting_up<'q>(environment_id: &'q str, change_id: &'q str, steps: i64) -> Query<'q> {
    let update = "UPDATE environments SET version = version + ?, change_id = ?, updated_at = ? WHERE id = ?";
    sql::query(update).bind(steps).bind(change_id).bind(clock::now()).bind(environment_id)
}
