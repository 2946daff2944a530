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
    /// In one word: `push`.
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

    /// Whether the operator answers [`RequestedAction::Sync`], so that one can wait for it.
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
    /// With `delete`, deletes them: each entry says what became of it. `only` are the ids of some of them; empty for all.
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

    /// Approves the deletions that the operator has stopped because there are too many. Returns a sentence about each approval; empty if none was
    /// stopped.
    async fn approve(&self, cluster: &Cluster) -> Result<Vec<String>, Failure> {
        let _ = cluster;
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
    /// Why it was not, if it was to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The health of an object: its state, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectHealth {
    /// In one word: `Synced`, or the reason why not.
    pub state: String,
    /// How bad that is.
    pub grade: Grade,
    /// Since when it is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Why, and what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Where its content is outside of the cluster.
    pub paths: Vec<Place>,
}

impl ObjectHealth {
    /// Since when and with what outside of the cluster is said beside: `ObjectHealth { since, ..ObjectHealth::new(…) }`.
    pub fn new(state: impl Into<String>, grade: Grade, message: impl Into<Option<String>>) -> Self {
        Self { state: state.into(), grade, since: None, message: message.into(), paths: Vec::new() }
    }
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Grade {
    /// All is as the object asks.
    #[serde(rename = "inStep")]
    InSync,
    /// Nothing is done, because somebody wants it so.
    Paused,
    /// The operator has still to do or to say something.
    Waiting,
    /// Something has to be mended.
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
    /// Anything else that is worth knowing, in a word or two.
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
    /// A fact.
    pub fn new(about: &'static str, text: impl Into<String>) -> Self {
        Self { about, text: text.into() }
    }
}

/// The action that a person requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestedAction {
    /// To be worked on now. The text is one that was never there before.
    Sync(String),
    /// To be left alone.
    Pause,
    /// To be worked on again.
    Resume,
    /// To take over an item that somebody else made: the one with this id, or the one of its name.
    Adopt(Option<String>),
    /// To leave its item outside of the cluster when the object is deleted.
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
    /// Why, where that needs a word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Its keys. Never a value.
    pub keys: BTreeMap<String, Change>,
}

/// The planned change of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum PlannedChange {
    /// It holds what it should.
    Same,
    /// It would be created.
    Created,
    /// It would be changed.
    Changed,
    /// Nothing requests it any more. It would be cleared.
    Cleared,
    /// It would stay as it is, although it is not as requested.
    Left,
    /// It is other than what was made of it, which is to be made anew.
    Differs,
    /// It would be taken note of, and nothing else would be done.
    Noted,
}

/// The planned change of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Change {
    /// It would be added.
    Added,
    /// It would go.
    Removed,
    /// It would get another value.
    Changed,
    /// It has the value that it should have.
    Same,
}

/// One check of the doctor.
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

/// Whether all is well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// It is.
    Fine,
    /// It is, and something is worth knowing.
    Note,
    /// It cannot be told.
    Unknown,
    /// It is not.
    Wrong,
}

impl Finding {
    /// All is well.
    pub fn fine(about: &'static str, text: impl Into<String>) -> Self {
        Self { about, verdict: Verdict::Fine, text: text.into(), next: None }
    }

    /// Worth knowing.
    pub fn note(about: &'static str, text: impl Into<String>, next: Option<&str>) -> Self {
        Self { about, verdict: Verdict::Note, text: text.into(), next: next.map(str::to_owned) }
    }

    /// It could not be looked at.
    pub fn unknown(about: &'static str, failure: &Failure) -> Self {
        Self { about, verdict: Verdict::Unknown, text: failure.to_string(), next: None }
    }

    /// Something is wrong.
    pub fn wrong(about: &'static str, text: impl Into<String>, next: impl Into<String>) -> Self {
        Self { about, verdict: Verdict::Wrong, text: text.into(), next: Some(next.into()) }
    }
}
