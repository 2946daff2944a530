//! Whether Vault still holds what it did when all was in step: one read for each location, however many objects have keys there, and no value
//! of the cluster.

use std::collections::BTreeMap;

use konverge_core::digest::ContentDigest;
use konverge_vault::{Found, Location, Owner, Secret, Standing};
use tokio::time::Instant;

use super::{PushError, Pusher};
use crate::{
    asked::UpdatePolicy,
    bindings::{Binding, Push},
    digest::digest,
    merge::own,
    object::ObjectRef,
    record::Written,
};

impl Pusher {
    /// Looks at each location that nobody has looked at for as long as the object's interval. False is that something is not as it was.
    ///
    /// A location that another object looks at just now is left to that: what it sees is known when this one has its next turn.
    pub(super) async fn is_still_there(
        &self,
        key: &ObjectRef,
        binding: &Binding,
        push: &Push,
    ) -> Result<bool, PushError> {
        let owner = self.owner(key, &binding.uid).await?;
        let Some(record) = &binding.record else { return Ok(false) };
        let begun = Instant::now();
        let mut seen = BTreeMap::new();
        for (location, written) in record.locations() {
            let text = location.to_string();
            // Nothing could be made for it then, and nothing can now: what is there stays, whatever it is.
            let Some(&known) = binding.held.get(&text) else { continue };
            // In this order: who looks tells the others before he is done.
            let looking = self.bindings.look(&text);
            let before = self.bindings.seen(key, &text);
            let is_young = |before: Instant| push.asked.every.is_some_and(|every| before.elapsed() < every);
            if looking.is_none() || !push.asked.always && before.is_some_and(is_young) {
                seen.extend(before.map(|before| (text.clone(), before)));
                continue;
            }
            let Found::Live(secret) = self.store.look(&location).await? else { return Ok(false) };
            if written.keys.is_some() {
                self.tell_sharers(key, &location, &secret, begun).await?;
            }
            if push.asked.update != UpdatePolicy::IfNotExists && !self.is_same(&secret, &owner, written, known) {
                return Ok(false);
            }
            seen.insert(text.clone(), begun);
        }
        self.bindings.settle(key, binding, |now| {
            if let Some(verified) = &mut now.verified {
                verified.see(seen, begun);
            }
        });
        Ok(true)
    }

    /// The same answer is compared with what the others should have there. Who finds that it differs looks for himself when it is time to.
    async fn tell_sharers(
        &self,
        key: &ObjectRef,
        location: &Location,
        secret: &Secret,
        begun: Instant,
    ) -> Result<(), PushError> {
        let text = location.to_string();
        for sharer in self.bindings.sharers(key, &text) {
            let owner = self.owner(&sharer.key, &sharer.uid).await?;
            if self.is_same(secret, &owner, &sharer.written, sharer.held) {
                self.bindings.saw(&sharer, &text, begun);
            }
        }
        Ok(())
    }

    /// Whether it holds what it did, and is not another's by now.
    fn is_same(&self, secret: &Secret, owner: &Owner, written: &Written, known: ContentDigest) -> bool {
        let metadata = secret.version.as_ref().map(|version| &version.custom_metadata);
        let is_ours = metadata.is_none_or(|metadata| !matches!(owner.standing(metadata), Standing::Foreign(_)));
        is_ours && digest(&self.digest_key, own(&secret.content, written)) == Some(known)
    }
}
