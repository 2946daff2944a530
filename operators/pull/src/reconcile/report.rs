//! Telling the owner: statements about the Secret, and a log line for each write.

use k8s_openapi::api::core::v1::{ObjectReference, Secret};
use konverge_apply::{Statement, events};
use kube::{Resource, core::GroupVersionKind};
use tracing::info;

use super::{Pull, Run};
use crate::{
    bindings::{Binding, SecretRef, Source},
    messages,
    plan::Problem,
};

impl Pull {
    /// Tells what the plan found. `written` is the number of keys if the Secret was written.
    pub(super) fn report(
        &self,
        run: Run<'_>,
        problems: &[Problem],
        proven: bool,
        written: Option<usize>,
        version: i64,
    ) {
        let Source::Environment(name, _) = &run.binding.source else { return };
        if let Some(keys) = written {
            info!(secret = %run.key, environment = %name, version, keys, "written");
        }
        // An event for every change would cost as much as the change; the log has them all.
        let mut statements: Vec<_> = match problems {
            [] => vec![messages::synced(name, proven)],
            problems => problems.iter().map(messages::problem).collect(),
        };
        if run.binding.requests_keys {
            statements.push(messages::keys_not_supported(name));
        }
        self.say(run.key, run.binding, statements);
    }

    /// Announces these statements, each once until another one takes its place, and remembers them.
    pub(super) fn say(&self, key: &SecretRef, binding: &Binding, statements: Vec<Statement>) {
        let is_said = |statement: &Statement| binding.said.iter().any(|said| statement.repeats(said));
        self.announcer.announce_new(key, &reference(key, &binding.uid), &statements, is_said);
        self.bindings.settle(key, binding, |binding| binding.said = statements);
    }
}

fn reference(key: &SecretRef, uid: &str) -> ObjectReference {
    let kind = GroupVersionKind::gvk(&Secret::group(&()), &Secret::version(&()), &Secret::kind(&()));
    events::reference(&kind, &key.namespace, &key.name, uid)
}
