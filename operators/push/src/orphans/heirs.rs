//! Clearing a path of an object that is gone, without harm to its heir: an object that has the path by now.

use std::{collections::BTreeSet, sync::Arc};

use konverge_runtime::{Priority, Queue};
use konverge_vault::{Deletion, Location, Owner};

use crate::{
    bindings::{Bindings, Share, key_of},
    messages,
    object::ObjectRef,
    plan::Claim,
    record::Written,
    store::{Cleanup, ClearError, Cleared, Store, Unfinished},
    watch::WAITED,
};

/// A path of an object that is gone.
pub(crate) struct GonePath<'a> {
    pub(crate) key: &'a ObjectRef,
    pub(crate) owner: &'a Owner,
    pub(crate) location: &'a Location,
    pub(crate) written: &'a Written,
    /// The content that an unfinished write would have made.
    pub(crate) unfinished: Unfinished<'a>,
    /// The content, for the log.
    pub(crate) what: &'static str,
}

/// Clears paths of objects that are gone.
///
/// Content with the mark of such an object is its own. Content without a mark is its own only as long as no object has the path. Where there
/// are no marks, the content of another program looks the same.
#[derive(Clone)]
pub(crate) struct Heirs {
    pub(super) store: Store,
    pub(super) bindings: Arc<Bindings>,
    queue: Queue<ObjectRef>,
}

impl Heirs {
    pub(crate) fn new(store: Store, bindings: Arc<Bindings>, queue: Queue<ObjectRef>) -> Self {
        Self { store, bindings, queue }
    }

    /// Clears the path. No object takes it over meanwhile, not even one with the same name. Then wakes the objects that waited for it.
    pub(crate) async fn clear(&self, gone: &GonePath<'_>, deletion: Option<Deletion>) -> Result<Cleared, ClearError> {
        let GonePath { key, owner, location, written, unfinished, what } = gone;
        let Some(location) = &self.store.recorded(location).await? else { return Ok(Cleared::Nothing) };
        // No object's name has a blank in it.
        let claimant = ObjectRef { name: format!("{} (gone)", key.name), ..(*key).clone() };
        let path = location.to_string();
        let heir = self.bindings.claim(&claimant, &path, Share::of(written)).err();
        let mut claimed = vec![path.clone()];
        let mut own = (*written).clone();
        for name in written.keys.iter().flatten().chain(&written.pending) {
            let share = key_of(&path, name);
            if self.bindings.claim(&claimant, &share, Share::Whole).is_err() {
                own.keys.as_mut().map(|keys| keys.remove(name));
                own.pending.remove(name);
            }
            claimed.push(share);
        }
        // If an heir has the path, only the mark tells which content is not the heir's.
        let (claim, unfinished) = match heir {
            Some(_) => (Claim::Intended, Unfinished::Unknown),
            None => (Claim::recorded(&own), *unfinished),
        };
        let cleanup = Cleanup { location, owner, written: &own, claim, unfinished, gone: true };
        let cleared = self.store.clear(&cleanup, deletion).await;
        match cleared {
            Ok(Cleared::Deleted) => tracing::info!(object = %key, path, "cleared {what}"),
            Ok(Cleared::Unknown) => {
                tracing::warn!(object = %key, path, "{}", messages::unknown(std::slice::from_ref(&path)).text);
            }
            Ok(Cleared::Nothing) | Err(_) => {}
        }
        if let Some(heir) = &heir {
            // It may have looked, or even written and marked, while this deletion was under way.
            self.bindings.doubt(heir);
        }
        let waiting = claimed.iter().flat_map(|claimed| self.bindings.release(&claimant, claimed));
        // Perhaps only the mark kept the heir from it.
        self.queue.add_all(waiting.chain(heir).collect::<BTreeSet<_>>(), Priority::Normal, WAITED);
        cleared
    }
}
