//! Telling the owner: an event when there is something new to say, a log line, the gauge of bindings.

use k8s_openapi::api::core::v1::{ObjectReference, Secret};
use konverge_apply::events::{self, Notice};
use kube::{Resource, core::GroupVersionKind, runtime::events::EventType};
use tracing::{debug, info, warn};

use super::Pull;
use crate::{
    bindings::{Binding, SecretRef, Source},
    messages::Message,
    plan::Problem,
};

/// The `action` of every event of this operator.
const ACTION: &str = "Pull";

impl Pull {
    /// Says what the plan found. `written` is the number of keys if the Secret was written.
    pub(super) fn report(
        &self,
        key: &SecretRef,
        binding: &Binding,
        problems: &[Problem],
        written: Option<usize>,
        version: i64,
    ) {
        let Source::Environment(name, _) = &binding.source else { return };
        if let Some(keys) = written {
            info!(secret = %key, environment = %name, version, keys, "written");
        }
        if !problems.is_empty() {
            return self.say(key, binding, problems.iter().map(Message::problem).collect());
        }
        // An event for every change would cost as much as the change; the log has them all.
        self.say(key, binding, vec![Message::synced(name)]);
    }

    /// Says these messages, each once until something else is said. The event of a refusal is renewed each time, so that it stays current for as
    /// long as the refusal lasts; the log has it once.
    pub(super) fn say(&self, key: &SecretRef, binding: &Binding, messages: Vec<Message>) {
        for message in &messages {
            let is_repeated = binding.said.iter().any(|said| message.repeats(said));
            if is_repeated && !message.is_refusal {
                continue;
            }
            match (is_repeated, message.is_good()) {
                (true, _) => debug!(secret = %key, reason = message.reason, "{}", message.text),
                (false, true) => info!(secret = %key, reason = message.reason, "{}", message.text),
                (false, false) => warn!(secret = %key, reason = message.reason, "{}", message.text),
            }
            self.events.send(Notice {
                regarding: reference(key, &binding.uid),
                kind: if message.is_good() { EventType::Normal } else { EventType::Warning },
                reason: message.reason,
                action: ACTION,
                note: message.text.clone(),
            });
        }
        self.bindings.settle(key, binding, |binding| binding.said = messages);
    }
}

fn reference(key: &SecretRef, uid: &str) -> ObjectReference {
    let kind = GroupVersionKind::gvk(&Secret::group(&()), &Secret::version(&()), &Secret::kind(&()));
    events::reference(&kind, &key.namespace, &key.name, uid)
}
