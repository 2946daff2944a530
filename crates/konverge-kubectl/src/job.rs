//! The interface between a job and the plugin.

use std::collections::BTreeMap;

use async_trait::async_trait;
use jiff::Timestamp;
use kube::core::DynamicObject;
use serde::Serialize;
use serde_json::Value;

use crate::{Cluster, Failure, Kind};

/// One thing that an operator does for objects that have opted in. Objects of a kind that is [`Metadata`](crate::Detail::Metadata) come
/// with their metadata alone.
#[async_trait]
pub trait Job: Send + Sync {
    /// Returns the name of the job in one word, such as `push`.
    fn name(&self) -> &'static str;

    /// The operator's name in events, and in the label `app.kubernetes.io/name` of its Deployment.
    fn operator(&self) -> &'static str;

    /// The kinds of objects that can opt in.
    fn kinds(&self) -> Vec<Kind>;

    /// Returns the health of an object; `None` if it has not opted in and nothing is left to be done for it. Pure.
    fn health(&self, kind: &Kind, object: &DynamicObject) -> Option<ObjectHealth>;

    /// Returns the command by which an object of this kind opts in, and what it means.
    fn how_to_opt_in(&self, kind: &Kind, name: &str) -> String;

    /// Returns an object's spec, and whether the operator allows it, as far as the plugin can tell.
    async fn explain(&self, cluster: &Cluster, kind: &Kind, object: &DynamicObject) -> Vec<Fact>;

    /// Returns the changes that a run would make now, by the names of keys.
    async fn difference(
        &self,
        cluster: &Cluster,
        kind: &Kind,
        object: &DynamicObject,
    ) -> Result<Vec<Difference>, Failure>;

    /// Returns the annotation that requests it and its value (`null` removes it), or an error with the alternative.
    fn annotation_for(
        &self,
        object: &DynamicObject,
        action: &RequestedAction,
    ) -> Result<(&'static str, Value), Failure>;

    /// Returns `true` if the operator answers [`RequestedAction::Sync`], so that a client can wait for it.
    fn acknowledges(&self) -> bool {
        true
    }

    /// Whether the operator has answered [`RequestedAction::Sync`]: a run that began after it had seen the request has ended.
    /// Never, for a job that gives no answers.
    fn is_acknowledged(&self, object: &DynamicObject, token: &str) -> bool {
        let _ = (object, token);
        false
    }

    /// Returns the object of another version of the API that takes the place of this one. An error if there is none, with the reason.
    fn convert(&self, kind: &Kind, object: &DynamicObject) -> Result<Conversion, Failure> {
        let _ = object;
        Err(Failure::Failed(format!("{} has no other version of a {}", self.name(), kind.singular())))
    }

    /// Returns the items outside of the cluster that bear this cluster's mark and whose objects do not exist; `None` if the job has no marks.
    /// With `delete`, deletes the items; each entry has the result. `only` selects items by id; if it is empty, all are selected.
    async fn leftovers(
        &self,
        cluster: &Cluster,
        only: &[String],
        delete: bool,
    ) -> Result<Option<Vec<Leftover>>, Failure> {
        let _ = (cluster, only, delete);
        Ok(None)
    }

    /// Returns a sentence about each item that deleted objects have left outside of the cluster, as recorded in the cluster. Empty for a job whose
    /// objects leave nothing.
    async fn left_behind(&self, cluster: &Cluster, namespace: Option<&str>) -> Result<Vec<String>, Failure> {
        let _ = (cluster, namespace);
        Ok(Vec::new())
    }

    /// Approves the deletions that the operator in a namespace has stopped because there are too many. Returns a sentence about each approval; empty
    /// if none was stopped. Fails if no namespace is named and operators in several have stopped.
    async fn approve(&self, cluster: &Cluster, namespace: Option<&str>) -> Result<Vec<String>, Failure> {
        let _ = (cluster, namespace);
        Ok(Vec::new())
    }
}

/// An object of another version, and what to do with it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Conversion {
    /// The object, to be applied.
    pub object: Value,
    /// The steps, in their order.
    pub steps: Vec<String>,
}

/// An item outside of the cluster whose object does not exist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Leftover {
    /// The item, such as `policy web TCP (cq3v2)`.
    pub item: String,
    /// The uid of the object that it was made for.
    pub uid: String,
    /// Whether it was deleted.
    pub is_deleted: bool,
    /// The cause, if the deletion failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The health of an object: its state, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectHealth {
    /// The state in one word: `Synced`, or a reason.
    pub state: String,
    /// The health level of the state.
    pub grade: Grade,
    /// The start of the state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The cause and the next step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The places of its content outside of the cluster.
    pub paths: Vec<Place>,
}

impl ObjectHealth {
    /// Creates a health without a time and without places. Set these with `ObjectHealth { since, ..ObjectHealth::new(…) }`.
    pub fn new(state: impl Into<String>, grade: Grade, message: impl Into<Option<String>>) -> Self {
        Self { state: state.into(), grade, since: None, message: message.into(), paths: Vec::new() }
    }
}

/// The health level of an object, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Grade {
    /// The object is in sync.
    #[serde(rename = "inStep")]
    InSync,
    /// A user has paused the object.
    Paused,
    /// The operator has not finished, or has not answered yet.
    Waiting,
    /// A user must fix something.
    Wrong,
}

/// Something outside of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    /// Where.
    pub path: String,
    /// The version that holds the requested content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// A note in a word or two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A line of the page that explains an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// The subject, in a word or two.
    pub about: &'static str,
    /// The sentence.
    pub text: String,
}

impl Fact {
    /// The subject of the fact that names what holds an object back.
    pub const HELD_BACK: &'static str = "held back";

    /// Creates a fact.
    pub fn new(about: &'static str, text: impl Into<String>) -> Self {
        Self { about, text: text.into() }
    }
}

/// The action that a person requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestedAction {
    /// Reconcile the object now. The text is a new token.
    Sync(String),
    /// Pause the object.
    Pause,
    /// Resume the object.
    Resume,
    /// Adopt an item that another client made: the one with this id, or the one of the object's name.
    Adopt(Option<String>),
    /// Keep the item outside of the cluster when the object is deleted.
    Release,
}

impl RequestedAction {
    /// The verb of the plugin.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Sync(_) => "sync",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Adopt(_) => "adopt",
            Self::Release => "release",
        }
    }

    /// The failure of a job that has no such thing.
    pub fn unsupported(&self, job: &str) -> Failure {
        Failure::Failed(format!("{job} knows no {}: it neither adopts nor releases items of others", self.verb()))
    }
}

/// The planned change of one destination, or a problem with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// Where.
    pub path: String,
    /// The planned change.
    #[serde(rename = "fate")]
    pub planned: PlannedChange,
    /// The cause, if it needs an explanation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The changes by key. Values are never included.
    pub keys: BTreeMap<String, Change>,
}

/// The planned change of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum PlannedChange {
    /// The destination is in sync.
    Same,
    /// The operator would create the destination.
    Created,
    /// The operator would change the destination.
    Changed,
    /// No object requests the destination, so the operator would clear it.
    Cleared,
    /// The operator would leave the destination alone, although it differs from the request.
    Left,
    /// The source differs from what the destination was made of, so the operator would make the destination anew.
    Differs,
    /// The operator would only record the state.
    Noted,
}

/// The planned change of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Change {
    /// The operator would add the key.
    Added,
    /// The operator would remove the key.
    Removed,
    /// The operator would change the value.
    Changed,
    /// The value is in sync.
    Same,
}

/// The result of one check of `doctor`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The subject, in a word.
    pub about: &'static str,
    /// Whether all is well with it.
    pub verdict: Verdict,
    /// The finding.
    pub text: String,
    /// The next step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// The check passed.
    Fine,
    /// The check passed, and there is a note.
    Note,
    /// The check was not possible.
    Unknown,
    /// The check failed.
    Wrong,
}

impl Finding {
    /// Creates a finding of a check that passed.
    pub fn fine(about: &'static str, text: impl Into<String>) -> Self {
        Self { about, verdict: Verdict::Fine, text: text.into(), next: None }
    }

    /// Creates a note.
    pub fn note(about: &'static str, text: impl Into<String>, next: Option<&str>) -> Self {
        Self { about, verdict: Verdict::Note, text: text.into(), next: next.map(str::to_owned) }
    }

    /// Creates a finding of a check that was not possible.
    pub fn unknown(about: &'static str, failure: &Failure) -> Self {
        Self { about, verdict: Verdict::Unknown, text: failure.to_string(), next: None }
    }

    /// Creates a finding of a check that failed.
    pub fn wrong(about: &'static str, text: impl Into<String>, next: impl Into<String>) -> Self {
        Self { about, verdict: Verdict::Wrong, text: text.into(), next: Some(next.into()) }
    }
}
