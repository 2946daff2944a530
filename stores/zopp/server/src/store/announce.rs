//! Changes that tell of themselves: PostgreSQL delivers a notice when, and only if, its transaction commits, in the order of commits.

use super::{
    Store, StoreError,
    sql::{self, Connection, Step},
};
use crate::{
    clock,
    events::{Event, notice},
};

impl Store {
    /// The same store, whose changes tell all replicas of themselves. For PostgreSQL only.
    #[must_use]
    pub fn announcing(self) -> Self {
        Self { announces: true, ..self }
    }

    /// Do changes tell all replicas of themselves?
    pub(crate) fn announces(&self) -> bool {
        self.announces
    }

    /// Tells all replicas of an event, once the transaction is committed.
    pub(super) async fn announce(
        &self,
        connection: &mut Connection,
        environment_id: &str,
        event: &Event,
    ) -> Result<(), StoreError> {
        if !self.announces {
            return Ok(());
        }
        if let Some(notice) = notice::of_event(environment_id, event) {
            let told = sql::query("SELECT pg_notify(?, ?)").bind(notice.channel).bind(notice.payload);
            told.execute(connection).await?;
        }
        Ok(())
    }

    /// The same as a part of a change of one key, after the environment was counted up.
    pub(super) fn announcing_change<'q>(&self, environment_id: &'q str, key: &str, deleted: bool) -> Option<Step<'q>> {
        if !self.announces {
            return None;
        }
        let (channel, [before, after]) = notice::around_version(environment_id, key, deleted, clock::now());
        let tell = "SELECT pg_notify(?1, ?2 || (SELECT version FROM environments WHERE id = ?3) || ?4)";
        Some(Step::of_postgres(sql::query(tell).bind(channel).bind(before).bind(environment_id).bind(after)))
    }
}
