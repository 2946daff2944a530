//! The options of one child in a set.

use std::sync::Arc;

use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::readiness::Readiness;

/// Which other child comes first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Edge {
    pub(super) group: String,
    pub(super) kind: String,
    pub(super) name: String,
}

/// A rule that tells how far a child is.
type Rule<C> = Arc<dyn Fn(&C) -> Readiness + Send + Sync>;

/// The same for a child in JSON.
pub(super) type Judge = Arc<dyn Fn(&Value) -> Readiness + Send + Sync>;

/// How a child is treated: after which others it is written, when it is ready, whether it outlives its owner.
#[must_use]
pub struct ChildOptions<C> {
    pub(super) after: Vec<Edge>,
    pub(super) tolerates_unready: bool,
    pub(super) is_retained: bool,
    rule: Option<Rule<C>>,
}

impl<C> Default for ChildOptions<C> {
    fn default() -> Self {
        Self { after: Vec::new(), tolerates_unready: false, is_retained: false, rule: None }
    }
}

impl<C> ChildOptions<C> {
    /// Writes the child only while the child of kind `D` and this name is [ready](crate::readiness()). Until then it stays as it is, or
    /// absent. It is deleted before that child.
    ///
    /// That child has to be in the same set, and may be added later. Children that wait for each other are an error.
    pub fn after<D: Resource<DynamicType = ()>>(mut self, name: impl Into<String>) -> Self {
        let (group, kind) = (D::group(&()).into_owned(), D::kind(&()).into_owned());
        self.after.push(Edge { group, kind, name: name.into() });
        self
    }

    /// Judges the child by this rule instead of the [common ones](crate::readiness()): a `bool`, or a [`Readiness`] that says why. A child
    /// that is being deleted is never ready.
    pub fn ready_when<R: Into<Readiness>>(mut self, rule: impl Fn(&C) -> R + Send + Sync + 'static) -> Self {
        self.rule = Some(Arc::new(move |child| rule(child).into()));
        self
    }

    /// Lets the owner be ready while this child is not.
    pub fn tolerate_unready(mut self) -> Self {
        self.tolerates_unready = true;
        self
    }

    /// Keeps the child when it is no longer wanted, and when its owner is deleted: a volume claim with data. A new owner of the same kind,
    /// namespace and name takes it over.
    pub fn retain(mut self) -> Self {
        self.is_retained = true;
        self
    }
}

impl<C: DeserializeOwned + 'static> ChildOptions<C> {
    /// The rule for the child in JSON, if it has one of its own.
    pub(super) fn judge(&mut self) -> Option<Judge> {
        let rule = self.rule.take()?;
        Some(Arc::new(move |state| match C::deserialize(state) {
            Ok(child) => rule(&child),
            Err(error) => Readiness::InProgress(format!("cannot be read: {error}")),
        }))
    }
}
