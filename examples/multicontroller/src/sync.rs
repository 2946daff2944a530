//! The common part of both controllers: one child in a target namespace, a label on the object, an event, a status.

use konverge::{Child, Object, apply::Writable, prelude::*};

/// How the child stands.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub struct SyncStatus {
    /// Whether the child is as it should be.
    pub ready: bool,
    /// The same in words.
    pub message: String,
    /// Conditions and the generation they are about.
    #[serde(flatten)]
    pub standard: Status,
}

impl CustomStatus for SyncStatus {
    fn standard(&self) -> &Status {
        &self.standard
    }

    fn standard_mut(&mut self) -> &mut Status {
        &mut self.standard
    }

    fn summarize(&mut self, ready: bool, message: &str) {
        (self.ready, self.message) = (ready, message.to_owned());
    }
}

/// The words of a kind in events and status.
pub struct Words {
    /// The child was made.
    pub created: &'static str,
    /// The child was not as it should be.
    pub corrected: &'static str,
    /// The child is as it should be.
    pub synced: Reason,
}

/// Makes `child`, in `target`, be as it is here.
pub async fn sync<K: Object + Writable, C: Child>(
    context: &Context<K>,
    mut child: C,
    target: &str,
    words: Words,
) -> Result<Action, Error> {
    child.meta_mut().namespace = Some(target.to_owned());
    child.labels_mut().insert("multicontroller.example.io/owner".to_owned(), context.object().name_any());
    let report = context.children().with(child).apply().await?;
    context.label("multicontroller.example.io/synced-to", target).await?;
    for child in &report.children {
        let (reason, note) = match child.outcome {
            ApplyOutcome::Created => (words.created, format!("created {}", child.object)),
            ApplyOutcome::Changed => (words.corrected, format!("corrected {}", child.object)),
            ApplyOutcome::Unchanged => continue,
        };
        context.event(EventType::Normal, reason, "Sync", note);
    }
    context.ready(words.synced, format!("in sync with namespace {target}"));
    Ok(Action::After(Duration::from_mins(5)))
}
