//! Changes that tell of themselves: PostgreSQL delivers a notice when, and only if, its transaction commits, in the order of commits.

use super::{
    Store, StoreError,
    sql::{self, Connection},
};
use crate::events::{Event, notice};

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
}
