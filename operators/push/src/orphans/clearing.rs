//! Clearing orphans.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use konverge_core::error::in_one_line;
use konverge_runtime::Queue;
use tokio::time::{sleep, timeout};

use super::{GonePath, Heirs, Orphan, Orphans, OrphansError};
use crate::{
    bindings::Bindings,
    messages,
    metrics::Metrics,
    object::{Kind, ObjectRef},
    store::{Cleared, Store, Unfinished},
};

/// The pause between two attempts to clear.
const EVERY: Duration = Duration::from_mins(1);

/// The pause between two looks whether the watches have listed all objects.
const LOOK: Duration = Duration::from_millis(100);

/// Clears orphans.
pub struct Clearing {
    orphans: Orphans,
    store: Store,
    bindings: Arc<Bindings>,
    heirs: Heirs,
    metrics: Metrics,
    /// Cleared paths that the list still has, by uid and path. They are not cleared again, because another object may have them by now.
    cleared: BTreeSet<(String, String)>,
}

impl Clearing {
    /// Nothing is cleared yet.
    pub fn new(
        orphans: Orphans,
        store: Store,
        bindings: Arc<Bindings>,
        queue: Queue<ObjectRef>,
        metrics: Metrics,
    ) -> Self {
        let heirs = Heirs::new(store.clone(), Arc::clone(&bindings), queue);
        Self { orphans, store, bindings, heirs, metrics, cleared: BTreeSet::new() }
    }

    /// Clears orphans for ever, once the claims of all objects are known.
    pub(crate) async fn run(mut self, kinds: Vec<Kind>) {
        // These the program cannot be ready without. Others the cluster may not know or not let it see, and has nothing of them then.
        let (sure, others): (Vec<Kind>, Vec<Kind>) = kinds.into_iter().partition(|kind| kind.is_original());
        self.are_listed(&sure).await;
        if timeout(EVERY, self.are_listed(&others)).await.is_err() {
            tracing::debug!("clearing what was left behind, though not every kind of object was seen");
        }
        loop {
            if let Err(error) = self.clear().await {
                tracing::warn!("{}", in_one_line(&error));
            }
            sleep(EVERY).await;
        }
    }

    async fn are_listed(&self, kinds: &[Kind]) {
        while !self.bindings.are_listed(kinds) {
            sleep(LOOK).await;
        }
    }

    /// Clears the orphans that can be cleared. Returns how many are left.
    pub async fn clear(&mut self) -> Result<usize, OrphansError> {
        let (known, mut version) = self.orphans.list().await?;
        let mut left = known.len();
        for (uid, text) in known {
            let cleared = match serde_json::from_str::<Orphan>(&text) {
                Ok(orphan) => self.clear_one(&uid, &orphan).await,
                // The program cannot read it, so it stays for people to see.
                Err(_) => false,
            };
            if cleared {
                version = match self.orphans.forget(&uid, version).await {
                    // It may say more by now; the next look shows it.
                    Err(error) if error.is_conflict() => break,
                    forgotten => forgotten?,
                };
                self.cleared.retain(|(known, _)| *known != uid);
                left -= 1;
            }
        }
        self.metrics.orphans(left);
        Ok(left)
    }

    async fn clear_one(&mut self, uid: &str, orphan: &Orphan) -> bool {
        let Some(key) = orphan.key() else { return false };
        let owner = match self.store.owner(&key, &orphan.record.uid).await {
            Ok(owner) => owner,
            Err(error) => {
                tracing::debug!(object = %key, "still left behind: {}", in_one_line(&error));
                return false;
            }
        };
        let deletion = orphan.record.deletion.in_vault();
        for (location, written) in orphan.record.locations() {
            let done = (uid.to_owned(), location.to_string());
            if self.cleared.contains(&done) {
                continue;
            }
            let path =
                GonePath { key: &key, owner: &owner, location: &location, written, unfinished: Unfinished::Unknown };
            match self.heirs.clear(&path, deletion).await {
                Ok(Cleared::Deleted) => tracing::info!(object = %key, path = %location, "cleared what was left behind"),
                Ok(Cleared::Unknown) => {
                    tracing::warn!(object = %key, "{}", messages::unknown(&[location.to_string()]).text);
                }
                Ok(Cleared::Nothing) => {}
                Err(error) => {
                    tracing::debug!(object = %key, path = %location, "still left behind: {}", in_one_line(&error));
                    return false;
                }
            }
            self.cleared.insert(done);
        }
        true
    }
}
