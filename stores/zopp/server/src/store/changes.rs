//! Environments as a whole: read with their manifest, changed at once.

use futures::TryStreamExt;

use super::{
    Action, AuditRow, SecretRow, Store, StoreError,
    audit::insert,
    history::{erase, erase_beyond},
    keys::{KeyChange, KeysChange, Prepared, counting_up},
    new_id,
    secrets::{changed, tag},
    sql::{self, Connection},
};
use crate::events::Event;

/// A manifest, sealed under the environment's key. Opaque to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedManifest {
    /// 24 bytes.
    pub nonce: Vec<u8>,
    /// The ciphertext and its tag.
    pub ciphertext: Vec<u8>,
}

/// A change of an environment, of which all happens or nothing. No key is in it twice.
pub struct SecretsChange {
    /// The tag that the environment must have before.
    pub expected_tag: Option<String>,
    /// The version that the environment must have before.
    pub expected_version: Option<i64>,
    /// The keys to set.
    pub set: Vec<SecretRow>,
    /// The keys to delete.
    pub delete: Vec<String>,
    /// The manifest of the state after the change; `None` leaves the existing one, which is outdated from then on.
    pub manifest: Option<SealedManifest>,
    /// The environment's new key, wrapped (48 bytes), with its nonce (24 bytes). All keys must be set anew with it, and no earlier value
    /// is kept.
    pub new_dek: Option<(Vec<u8>, Vec<u8>)>,
    /// By the word of the client: the only key to set gets back the value that it had at this version.
    pub rollback_to: Option<i64>,
}

/// The result of an attempt to change an environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attempt {
    /// It was changed.
    Done {
        /// Its version now.
        version: i64,
        /// Its tag now.
        tag: String,
    },
    /// It gets a new key, and not exactly its keys are set anew.
    NotAll,
    /// Its tag or its version is not the expected one.
    Outdated {
        /// Its version.
        version: i64,
    },
}

/// The content that a reader wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted<'a> {
    /// All secrets.
    All,
    /// The keys and nonces of all secrets.
    WithoutCiphertexts,
    /// One secret.
    Key(&'a str),
}

/// An environment at one moment.
#[derive(Clone, PartialEq, Eq)]
pub struct EnvironmentState {
    /// Its version.
    pub version: i64,
    /// Stands for its content and its manifest.
    pub tag: String,
    /// `None` if the reader knows the tag.
    pub content: Option<EnvironmentContent>,
}

/// The content of an environment.
#[derive(Clone, PartialEq, Eq)]
pub struct EnvironmentContent {
    /// Its key, wrapped with the workspace's.
    pub dek_wrapped: Vec<u8>,
    /// 24 bytes.
    pub dek_nonce: Vec<u8>,
    /// Its manifest, if a client made one.
    pub manifest: Option<SealedManifest>,
    /// The secrets that are wanted, by key.
    pub secrets: Vec<SecretRow>,
}

impl SecretsChange {
    /// Returns whether any secret changes. A change of the manifest alone leaves the version.
    fn counts(&self) -> bool {
        !(self.set.is_empty() && self.delete.is_empty())
    }

    /// The one event of the whole change; `None` if no secret changes.
    pub(crate) fn event(&self, version: i64) -> Option<Event> {
        match (self.set.as_slice(), self.delete.as_slice()) {
            ([], []) => None,
            // All of them were encrypted anew.
            _ if self.new_dek.is_some() => Some(Event::SeveralChanged { version }),
            ([secret], []) => Some(changed(&secret.key, version, false)),
            ([], [key]) => Some(changed(key, version, true)),
            _ => Some(Event::SeveralChanged { version }),
        }
    }
}

impl Store {
    /// Changes an environment. Each changed key has an audit row of its own.
    pub async fn change_secrets(
        &self,
        workspace_id: &str,
        environment_id: &str,
        change: &SecretsChange,
        audit: &AuditRow,
    ) -> Result<Attempt, StoreError> {
        let prepared = self.prepare_to_change_keys().await?;
        let mut transaction = self.write_secret(audit).await?;
        // On PostgreSQL, the row may change until it is locked, which the first change of it does.
        let locked = "UPDATE environments SET updated_at = updated_at WHERE id = ? RETURNING version, change_id";
        let before: Option<(i64, String)> =
            sql::query_as(locked).bind(environment_id).fetch_optional(&mut *transaction).await?;
        let (before, change_id) = before.ok_or(StoreError::Missing)?;
        let is_other_tag = |expected: &String| *expected != tag(environment_id, before, &change_id);
        if change.expected_tag.as_ref().is_some_and(is_other_tag)
            || change.expected_version.is_some_and(|expected| expected != before)
        {
            return Ok(Attempt::Outdated { version: before });
        }
        let (steps, change_id) = (i64::from(change.counts()), new_id());
        counting_up(environment_id, &change_id, steps).execute(&mut *transaction).await?;
        let version = before + steps;
        let tag = tag(environment_id, version, &change_id);
        let all_existed =
            self.change_all_keys((&mut transaction, &prepared), (workspace_id, environment_id), change, audit).await?;
        if let Some(dek) = &change.new_dek {
            let keys = replace_dek(&mut transaction, environment_id, dek).await?;
            if !(all_existed && change.delete.is_empty() && usize::try_from(keys) == Ok(change.set.len())) {
                return Ok(Attempt::NotAll);
            }
            erase(&mut transaction, environment_id).await?;
            insert(&mut transaction, &AuditRow { action: Action::EnvironmentRotateKey, ..audit.clone() }).await?;
        }
        if let Some(manifest) = &change.manifest {
            sql::query("UPDATE environments SET manifest_nonce = ?, manifest_ciphertext = ? WHERE id = ?")
                .bind(&manifest.nonce)
                .bind(&manifest.ciphertext)
                .bind(environment_id)
                .execute(&mut *transaction)
                .await?;
        }
        match change.event(version) {
            Some(event) => self.announce(&mut transaction, environment_id, &event).await?,
            None if change.new_dek.is_some() => {}
            None => {
                insert(&mut transaction, &AuditRow { action: Action::EnvironmentManifest, ..audit.clone() }).await?;
            }
        }
        transaction.commit().await?;
        Ok(Attempt::Done { version, tag })
    }

    /// Makes the changes of keys inside of a transaction that has counted the environment up. Returns whether all keys that are set were there.
    async fn change_all_keys(
        &self,
        (transaction, prepared): (&mut Connection, &Prepared),
        (workspace_id, environment_id): (&str, &str),
        change: &SecretsChange,
        audit: &AuditRow,
    ) -> Result<bool, StoreError> {
        // First: a change that replaces keys may need their room.
        let deleted = change.delete.iter().map(|key| AuditRow { action: Action::SecretDelete, ..of_key(audit, key) });
        let details = change.rollback_to.map(|version| serde_json::json!({ "rollback_to": version }).to_string());
        let set = change.set.iter().map(|secret| AuditRow { details: details.clone(), ..of_key(audit, &secret.key) });
        let rows: Vec<AuditRow> = deleted.chain(set).collect();
        let values = change.delete.iter().map(|key| (key, None));
        let values = values.chain(change.set.iter().map(|secret| (&secret.key, Some(secret))));
        let keys: Vec<_> = values.zip(&rows).map(|((key, value), audit)| KeyChange { key, value, audit }).collect();
        if keys.is_empty() {
            return Ok(true);
        }
        // Values that a former key encrypted are erased in the end, together with all that is kept.
        let keeps_former = change.new_dek.is_none();
        let keys = KeysChange { environment_id, workspace_id: Some(workspace_id), keeps_former, keys };
        let outcome = self.change_keys_in(transaction, prepared, &keys).await?;
        erase_beyond(transaction, environment_id, outcome.history, &self.limits).await?;
        Ok(outcome.created.iter().skip(change.delete.len()).all(|created| !created))
    }

    /// Reads an environment, all of one moment; `None` if it is gone. With the tag that the reader knows, the content is left out while
    /// the tag holds.
    pub async fn environment_state(
        &self,
        environment_id: &str,
        wanted: Wanted<'_>,
        known_tag: Option<&str>,
    ) -> Result<Option<EnvironmentState>, StoreError> {
        let mut transaction = self.read().await?;
        let row = sql::query(
            "SELECT version, change_id, dek_wrapped, dek_nonce, manifest_nonce, manifest_ciphertext FROM environments WHERE id = ?",
        );
        let Some(row) = row.bind(environment_id).fetch_optional(&mut *transaction).await? else { return Ok(None) };
        let version = row.try_get(0)?;
        let tag = tag(environment_id, version, row.try_get(1)?);
        if known_tag == Some(tag.as_str()) {
            return Ok(Some(EnvironmentState { version, tag, content: None }));
        }
        let manifest: (Option<Vec<u8>>, Option<Vec<u8>>) = (row.try_get(4)?, row.try_get(5)?);
        let manifest = match manifest {
            (Some(nonce), Some(ciphertext)) => Some(SealedManifest { nonce, ciphertext }),
            _ => None,
        };
        let query = match wanted {
            Wanted::All => {
                sql::query("SELECT key_name, nonce, ciphertext FROM secrets WHERE env_id = ? ORDER BY key_name")
                    .bind(environment_id)
            }
            Wanted::WithoutCiphertexts => {
                sql::query("SELECT key_name, nonce FROM secrets WHERE env_id = ? ORDER BY key_name")
                    .bind(environment_id)
            }
            Wanted::Key(key) => {
                sql::query("SELECT key_name, nonce, ciphertext FROM secrets WHERE env_id = ? AND key_name = ?")
                    .bind(environment_id)
                    .bind(key)
            }
        };
        // Row by row: the list is in memory once.
        let mut secrets = Vec::new();
        let mut rows = query.fetch(&mut *transaction);
        while let Some(row) = rows.try_next().await? {
            let ciphertext = if wanted == Wanted::WithoutCiphertexts { Vec::new() } else { row.try_get::<Vec<u8>>(2)? };
            secrets.push(SecretRow { key: row.try_get(0)?, nonce: row.try_get(1)?, ciphertext });
        }
        let (dek_wrapped, dek_nonce) = (row.try_get(2)?, row.try_get(3)?);
        let content = Some(EnvironmentContent { dek_wrapped, dek_nonce, manifest, secrets });
        Ok(Some(EnvironmentState { version, tag, content }))
    }
}

/// Gives an environment a new key, wrapped, with its nonce. Returns how many secrets there are.
async fn replace_dek(
    connection: &mut Connection,
    environment_id: &str,
    (dek_wrapped, dek_nonce): &(Vec<u8>, Vec<u8>),
) -> Result<i64, StoreError> {
    let replace = "UPDATE environments SET dek_wrapped = ?1, dek_nonce = ?2, \
                   made_under = (SELECT key_generation FROM workspaces WHERE id = environments.workspace_id) \
                   WHERE id = ?3 RETURNING key_count";
    let replace = sql::query_as(replace).bind(dek_wrapped).bind(dek_nonce).bind(environment_id);
    let (keys,): (i64,) = replace.fetch_one(connection).await?;
    Ok(keys)
}

fn of_key(audit: &AuditRow, key: &str) -> AuditRow {
    AuditRow { resource_type: "secret", resource_id: key.to_owned(), ..audit.clone() }
}
