//! The children that an owner should have: apply all of them, prune what is not among them.

mod budget;
mod observed;
mod options;
mod order;
mod prune;
mod recognition;

use std::collections::{BTreeMap, BTreeSet};

use konverge_core::{
    error::{Classify, ErrorClass, in_one_line},
    reasons,
};
use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    applier::{Applier, ApplyOutcome, AsSeen, Seen, as_seen, wanted},
    delete::Deletion,
    difference::Difference,
    error::ApplyError,
    object::{Target, Writable, json as to_json, metadata_string},
    object_name::ObjectName,
    owners::{MANAGED_BY, OWNER_PROOF, Owner, OwnerKey, is_retained, managed_by},
    readiness::{Readiness, readiness},
};

pub use self::budget::{ALLOW_DELETES, DeleteBudget};
use self::{
    observed::Observed,
    options::{Edge, Judge},
    order::{PruneOrder, level_of, levels},
    prune::{TooMany, children_to_prune},
    recognition::Recognizer,
};
pub use self::{options::ChildOptions, order::APPLY_ORDER, recognition::Recognition};

/// The desired children of one owner, and the observed ones.
///
/// Every child gets the label [`OWNER_UID`](crate::owners::OWNER_UID) and, where Kubernetes allows it, a controller reference to
/// the owner; elsewhere labels that lead back to it. Guarantees of [`apply`](Self::apply):
///
/// - A child that is in sync costs no request.
///
/// - Nothing is deleted but what was [observed](Self::observe), has this owner's uid in its label and is not wanted; with its
///   uid and resource version as preconditions, in its own namespace.
///
/// - With an [`OwnerKey`], anyone may write the label, and only a child with the [proof](crate::owners::OWNER_PROOF) is deleted or
///   counts for the [`DeleteBudget`]. The others are left alone and [reported](SetReport::unproven).
///
/// - Nothing is deleted before all that is wanted has been written, also what [waits](Self::when_ready), and not more than the [`DeleteBudget`] allows.
///
/// - An object that was not seen as a child of this owner is taken over only if nobody disagrees about any of its fields.
///
/// Does not find objects of kinds that were not observed, and does not wait for what is being deleted.
#[must_use = "nothing is written before `apply`"]
pub struct DesiredSet {
    owner: Owner,
    key: Option<OwnerKey>,
    budget: DeleteBudget,
    children: Vec<Child>,
    observed: BTreeMap<String, Observed>,
    faults: Vec<ApplyError>,
    stage: usize,
}

/// The order in which children are written.
struct Order {
    /// For each child, the positions of those that its edges lead to.
    after: Vec<Vec<usize>>,
    /// For each child, its level.
    levels: Vec<usize>,
}

/// The result of the writes of one run.
struct WriteResult {
    report: SetReport,
    failed: Vec<ApplyError>,
    /// Children that exist and that the API server stored otherwise than they were written.
    altered: Vec<ApplyError>,
}

struct Child {
    stage: usize,
    /// The caller looked, and there was no object of this name.
    is_new: bool,
    target: Target,
    wanted: Value,
    as_seen: AsSeen,
    after: Vec<Edge>,
    judge: Option<Judge>,
    tolerates_unready: bool,
}

impl Child {
    fn readiness(&self, state: &Value) -> Readiness {
        match &self.judge {
            Some(_) if metadata_string(state, "deletionTimestamp").is_some() => Readiness::Terminating,
            Some(judge) => judge(state),
            None => readiness(Some(state)),
        }
    }
}

/// A child after an apply.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ChildReport {
    /// The child.
    pub object: ObjectName,
    /// Its API version, such as `apps/v1`.
    pub api_version: String,
    /// The effect of the apply.
    pub outcome: ApplyOutcome,
    /// The child as it is now, as JSON; in a dry run as it would be.
    pub state: Value,
    /// In a dry run, what would change; else empty.
    pub differences: Vec<Difference>,
    /// How far the child is, by its own rule if it has one.
    pub readiness: Readiness,
    /// Whether the owner is ready also [without it](ChildOptions::tolerate_unready).
    pub tolerates_unready: bool,
    /// Whether other children wait until this one is ready.
    pub is_awaited: bool,
}

/// The effects of applying a set.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct SetReport {
    /// The children, in the order in which they were written.
    pub children: Vec<ChildReport>,
    /// The children that are no longer desired, and are deleted or being deleted.
    pub pruned: Vec<ObjectName>,
    /// Children that are not wanted any more either, and stay until the children that come [after](ChildOptions::after) them are gone.
    pub prune_later: Vec<ObjectName>,
    /// Objects with the owner's uid in their label that lack the [proof](crate::owners::OWNER_PROOF) of an [`OwnerKey`] and are not
    /// wanted. They were made by another client, or by a release that wrote no proof, and are left alone.
    pub unproven: Vec<ObjectName>,
    /// Children that were not looked at, because others have to be [ready](DesiredSet::when_ready) before.
    pub waiting: Vec<ObjectName>,
}

impl SetReport {
    /// The children that are not ready, and why.
    pub fn not_ready(&self) -> impl Iterator<Item = (&ObjectName, Readiness)> {
        let all = self.children.iter().map(|child| (&child.object, child.readiness.clone()));
        all.filter(|(_, readiness)| !readiness.is_current())
    }

    /// Whether something is different now.
    pub fn is_change(&self) -> bool {
        !self.pruned.is_empty() || self.children.iter().any(|child| child.outcome.is_change())
    }
}

/// Why a set is not as it should be. All children that could be applied were applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetError {
    /// Some children could not be written or pruned. All others were tried; nothing was pruned if one was not written.
    #[error("{}", all(failed))]
    Children {
        /// The errors, in the order of the children. Never empty.
        failed: Vec<ApplyError>,
        /// The effects that took place.
        done: Box<SetReport>,
    },
    /// More should be deleted than may be at once. Nothing was deleted; all that is wanted is applied.
    #[error(
        "{count} of the {existing} children of {owner} are not wanted any more, and only {allowed} may be deleted at once; nothing \
         was deleted. If this is meant, annotate it: {ALLOW_DELETES}={count}"
    )]
    TooManyDeletions {
        /// The owner.
        owner: Box<ObjectName>,
        /// How many should go.
        count: usize,
        /// How many there are.
        existing: usize,
        /// How many may go.
        allowed: usize,
        /// The effects that took place.
        done: Box<SetReport>,
    },
}

impl SetError {
    /// The effects that took place.
    pub fn done(&self) -> &SetReport {
        match self {
            Self::Children { done, .. } | Self::TooManyDeletions { done, .. } => done,
        }
    }
}

/// The first failure with its causes, and how many there are besides.
fn all(failed: &[ApplyError]) -> String {
    let Some(first) = failed.first() else { return String::new() };
    let text = in_one_line(first);
    match failed.len() - 1 {
        0 => text,
        more => format!("{text} (and {more} more failed)"),
    }
}

impl Classify for SetError {
    /// As soon as one failure may go away by itself, it is worth another attempt.
    fn class(&self) -> ErrorClass {
        match self {
            Self::TooManyDeletions { .. } => ErrorClass::Permanent,
            Self::Children { failed, .. } => {
                ErrorClass::of_all(failed.iter().map(Classify::class)).unwrap_or(ErrorClass::Permanent)
            }
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::TooManyDeletions { .. } => reasons::TOO_MANY_DELETIONS,
            Self::Children { failed, .. } => failed.first().map_or(reasons::FAILED, Classify::reason),
        }
    }
}

impl DesiredSet {
    /// An empty set of children of `owner`.
    pub fn new(owner: Owner) -> Self {
        Self {
            owner,
            key: None,
            budget: DeleteBudget::default(),
            children: Vec::new(),
            observed: BTreeMap::new(),
            faults: Vec::new(),
            stage: 0,
        }
    }

    /// Gives each child a proof of its owner made with `key`, and trusts no label without one.
    pub fn key(self, key: OwnerKey) -> Self {
        Self { key: Some(key), ..self }
    }

    /// How much one apply may delete.
    pub fn budget(self, budget: DeleteBudget) -> Self {
        Self { budget, ..self }
    }

    /// Adds a child. One of a namespaced kind that says no namespace goes into the owner's.
    #[expect(clippy::should_implement_trait, reason = "a set grows by `add` everywhere; nobody adds sets with `+`")]
    pub fn add<K: Writable + Resource<DynamicType: Default>>(self, child: K) -> Self {
        self.add_with(child, &K::DynamicType::default())
    }

    /// [`add`](Self::add) for kinds that are known at run time only; they have to say their namespace.
    pub fn add_with<K: Writable>(self, child: K, kind: &K::DynamicType) -> Self {
        self.insert(child, kind, false, &Treatment::default())
    }

    /// [`add_with`](Self::add_with) for a child that is not treated like all others.
    pub fn add_with_options<K>(self, child: K, kind: &K::DynamicType, options: ChildOptions<K>) -> Self
    where
        K: Writable + 'static,
    {
        self.insert(child, kind, false, &options.into())
    }

    /// Adds a child that does not exist, as the caller has just found. If another client makes an object of its name before
    /// [`apply`](Self::apply) does, that object is left alone and the error is [`ApplyError::OutOfDate`].
    pub fn add_new<K: Writable + Resource<DynamicType: Default>>(self, child: K) -> Self {
        self.insert(child, &K::DynamicType::default(), true, &Treatment::default())
    }

    /// [`add_new`](Self::add_new) with options, and for kinds that are known at run time only; those have to say their namespace.
    pub fn add_new_with_options<K>(self, child: K, kind: &K::DynamicType, options: ChildOptions<K>) -> Self
    where
        K: Writable + 'static,
    {
        self.insert(child, kind, true, &options.into())
    }

    fn insert<K: Writable>(mut self, mut child: K, kind: &K::DynamicType, is_new: bool, treatment: &Treatment) -> Self {
        if child.meta().namespace.is_none() && crate::object::is_namespaced::<K>() {
            child.meta_mut().namespace.clone_from(&self.owner.object.namespace);
        }
        if treatment.is_retained {
            self.owner.adopt_retained(child.meta_mut());
        } else {
            self.owner.adopt(child.meta_mut());
        }
        let target = Target::of(&child, kind);
        match target.and_then(|target| to_json(&child, kind).map(|object| (wanted(object, &target), target))) {
            Err(fault) => self.faults.push(fault),
            Ok((wanted, target)) => match self.children.iter().find(|known| known.target.key() == target.key()) {
                None => self.children.push(Child {
                    stage: self.stage,
                    is_new,
                    target,
                    wanted,
                    as_seen: as_seen::<K>,
                    after: treatment.after.clone(),
                    judge: treatment.judge.clone(),
                    tolerates_unready: treatment.tolerates_unready,
                }),
                Some(known) if known.wanted == wanted => {}
                Some(_) => self.faults.push(ApplyError::WantedTwice { object: Box::new(target.object) }),
            },
        }
        self
    }

    /// Children that are added from here on are written only when all that were added before are [ready](crate::readiness()). Until
    /// then they stay as they are, or absent, and nothing is pruned.
    pub fn when_ready(self) -> Self {
        Self { stage: self.stage + 1, ..self }
    }

    /// Tells what exists of a kind: at least the children of this owner, as an index by [`OWNER_UID`](crate::owners::OWNER_UID)
    /// finds them. Others are recognised as such. Kinds that are never told are never pruned.
    pub fn observe<'a, K>(self, objects: impl IntoIterator<Item = &'a K>) -> Self
    where
        K: Writable + Resource<DynamicType: Default> + 'a,
    {
        self.observe_with(objects, &K::DynamicType::default())
    }

    /// [`observe`](Self::observe) for kinds that are known at run time only.
    pub fn observe_with<'a, K>(mut self, objects: impl IntoIterator<Item = &'a K>, kind: &K::DynamicType) -> Self
    where
        K: Writable + 'a,
    {
        for object in objects {
            let target = Target::of(object, kind);
            match target.and_then(|target| to_json(object, kind).map(|state| Observed { target, state })) {
                Err(fault) => self.faults.push(fault),
                Ok(observed) => drop(self.observed.insert(observed.target.key(), observed)),
            }
        }
        self
    }

    /// Creates and updates the wanted children, in the order in which they were added and in which they wait for each other. Deletes
    /// the unwanted ones in the reverse order.
    pub async fn apply(mut self, applier: &Applier) -> Result<SetReport, SetError> {
        let faults = std::mem::take(&mut self.faults);
        let order = match ordered(&self.children) {
            Ok(order) => order,
            Err(fault) => {
                let failed = faults.into_iter().chain([fault]).collect();
                return Err(SetError::Children { failed, done: Box::default() });
            }
        };
        let recognizer = Recognizer { owner: &self.owner, key: self.key.as_ref(), manager: applier.manager() };
        let WriteResult { report, mut failed, altered } = self.write(applier, &recognizer, order, faults).await;
        if !failed.is_empty() || (!report.waiting.is_empty() && !altered.is_empty()) {
            failed.extend(altered);
            return Err(SetError::Children { failed, done: Box::new(report) });
        }
        if !report.waiting.is_empty() {
            return Ok(report);
        }
        let (report, mut failed) = self.prune(applier, &recognizer, report).await?;
        // A child that admission changed exists, so it does not prevent pruning.
        failed.extend(altered);
        if failed.is_empty() { Ok(report) } else { Err(SetError::Children { failed, done: Box::new(report) }) }
    }

    /// Writes the children whose turn it is. `faults` are of children that could not be added.
    async fn write(
        &self,
        applier: &Applier,
        recognizer: &Recognizer<'_>,
        Order { after, levels }: Order,
        faults: Vec<ApplyError>,
    ) -> WriteResult {
        // A child that could not even be added may be one that others wait for.
        let mut lowest_unready_stage = (!faults.is_empty()).then_some(0);
        let has_faults = !faults.is_empty();
        let (mut report, mut failed, mut altered) = (SetReport::default(), faults, Vec::new());
        let mut order: Vec<usize> = (0..self.children.len()).collect();
        order.sort_by_key(|child| levels[*child]);
        let mut is_ready = vec![false; self.children.len()];
        // The position of each child of the report.
        let mut written: Vec<usize> = Vec::new();
        for position in order {
            let child = &self.children[position];
            let is_stage_gated = lowest_unready_stage.is_some_and(|stage| child.stage > stage);
            let is_edge_gated = after[position].iter().any(|other| has_faults || !is_ready[*other]);
            if is_stage_gated || is_edge_gated {
                report.waiting.push(child.target.object.clone());
                for (position_before, before) in written.iter().copied().zip(&mut report.children) {
                    let is_of_earlier_stage = self.children[position_before].stage < child.stage;
                    let comes_before = is_of_earlier_stage || after[position].contains(&position_before);
                    before.is_awaited |= comes_before && !is_ready[position_before];
                }
            } else {
                let wanted = self.completed(child, levels[position], applier);
                match apply_child(applier, recognizer, child, &wanted, self.observed.get(&child.target.key())).await {
                    Ok((child, changed)) => {
                        altered.extend(changed);
                        is_ready[position] = child.readiness.is_current();
                        report.children.push(child);
                        written.push(position);
                    }
                    Err(error) => failed.push(error),
                }
            }
            if !is_ready[position] {
                lowest_unready_stage = Some(lowest_unready_stage.map_or(child.stage, |stage| child.stage.min(stage)));
            }
        }
        WriteResult { report, failed, altered }
    }

    /// Deletes the children that are not in the report, from the last level to the first. Returns the deletions that failed beside the report.
    async fn prune(
        &self,
        applier: &Applier,
        recognizer: &Recognizer<'_>,
        mut report: SetReport,
    ) -> Result<(SetReport, Vec<ApplyError>), SetError> {
        // A kind can be served by two groups, so an object is known by its uid too.
        let key = |child: &ChildReport| crate::object::key(&child.api_version, &child.object);
        let uid = |child: &ChildReport| metadata_string(&child.state, "uid").map(ToOwned::to_owned);
        let wanted: BTreeSet<String> =
            report.children.iter().map(key).chain(report.children.iter().filter_map(uid)).collect();
        let observed = || self.observed.values().filter(|observed| !is_retained(&observed.state));
        let mut unwanted = match children_to_prune(recognizer, observed(), &wanted, self.budget) {
            Ok(pruning) => {
                report.unproven = pruning.unproven.iter().map(|observed| observed.target.object.clone()).collect();
                pruning.unwanted
            }
            Err(TooMany { count, existing, allowed }) => {
                let (owner, done) = (Box::new(self.owner.object.clone()), Box::new(report));
                return Err(SetError::TooManyDeletions { owner, count, existing, allowed, done });
            }
        };
        // Children that are going already hold up those below them, like those that go now.
        let going = observed().filter(|observed| {
            observed.metadata("deletionTimestamp").is_some()
                && recognizer.recognize(&observed.target, &observed.state) == Recognition::Proven
                && !wanted.contains(&observed.target.key())
        });
        let going = going.map(|observed| level_of(&observed.state));
        unwanted.sort_by_key(|observed| std::cmp::Reverse(level_of(&observed.state)));
        let mut prune_order = PruneOrder::new(unwanted.iter().map(|observed| level_of(&observed.state)), going);
        let mut failed = Vec::new();
        for unwanted in unwanted {
            let (target, level) = (&unwanted.target, level_of(&unwanted.state));
            let Some(policy) = prune_order.policy(level) else {
                report.prune_later.push(target.object.clone());
                continue;
            };
            let (uid, version) = (unwanted.metadata("uid"), unwanted.metadata("resourceVersion"));
            match applier.delete_target(target, uid, version, policy).await {
                Ok(deletion @ (Deletion::Deleted | Deletion::Terminating)) => {
                    report.pruned.push(target.object.clone());
                    if deletion == Deletion::Terminating {
                        prune_order.is_left(level);
                    }
                }
                Ok(Deletion::Absent) => {}
                Err(error) => {
                    prune_order.is_left(level);
                    failed.push(error);
                }
            }
        }
        Ok((report, failed))
    }

    /// The child as it is to be written.
    fn completed(&self, child: &Child, level: usize, applier: &Applier) -> Value {
        let mut wanted = child.wanted.clone();
        wanted["metadata"]["labels"][MANAGED_BY] = managed_by(applier.manager()).into();
        if level > 0 {
            wanted["metadata"]["annotations"][APPLY_ORDER] = level.to_string().into();
        }
        if let Some(key) = &self.key {
            wanted["metadata"]["annotations"][OWNER_PROOF] = key.proof(self.owner.uid(), &child.target).into();
        }
        wanted
    }
}

/// [`ChildOptions`] of a child of any kind.
#[derive(Default)]
struct Treatment {
    after: Vec<Edge>,
    judge: Option<Judge>,
    tolerates_unready: bool,
    is_retained: bool,
}

impl<C: DeserializeOwned + 'static> From<ChildOptions<C>> for Treatment {
    fn from(mut options: ChildOptions<C>) -> Self {
        let judge = options.judge();
        let ChildOptions { after, tolerates_unready, is_retained, .. } = options;
        Self { after, judge, tolerates_unready, is_retained }
    }
}

/// Returns the order of the children, or an error for a child whose edges lead nowhere or in a circle.
fn ordered(children: &[Child]) -> Result<Order, ApplyError> {
    let fault = |child: &Child, problem| {
        let object = Box::new(child.target.object.clone());
        Err(ApplyError::ChildOrder { object, problem })
    };
    let mut after = Vec::with_capacity(children.len());
    for child in children {
        let mut others = Vec::new();
        for edge in &child.after {
            let mut found: Vec<usize> = (0..children.len()).filter(|other| children[*other].is(edge)).collect();
            if found.len() > 1 {
                found.retain(|other| children[*other].target.object.namespace == child.target.object.namespace);
            }
            if let [other] = found[..] {
                others.push(other);
            } else {
                let Edge { kind, name, .. } = edge;
                return fault(
                    child,
                    format!("it is to be written after {kind} {name}, which is not in the set; add it"),
                );
            }
        }
        after.push(others);
    }
    let stages: Vec<usize> = children.iter().map(|child| child.stage).collect();
    match (levels(&stages, &after), children.iter().find(|child| !child.after.is_empty())) {
        (Some(levels), _) => Ok(Order { after, levels }),
        (None, Some(child)) => {
            fault(child, "children wait for each other in a circle; remove one of the edges".to_owned())
        }
        // Stages alone are never a circle.
        (None, None) => Ok(Order { after, levels: stages }),
    }
}

impl Child {
    fn is(&self, edge: &Edge) -> bool {
        let group = self.target.api_version.split_once('/').map_or("", |(group, _)| group);
        self.target.object.kind == edge.kind && self.target.object.name == edge.name && group == edge.group
    }
}

/// Applies one child. The error tells what admission made of it.
async fn apply_child(
    applier: &Applier,
    recognizer: &Recognizer<'_>,
    child: &Child,
    wanted: &Value,
    observed: Option<&Observed>,
) -> Result<(ChildReport, Option<ApplyError>), ApplyError> {
    let object = || Box::new(child.target.object.clone());
    let is_ours = match observed.map(|observed| recognizer.recognize(&observed.target, &observed.state)) {
        Some(Recognition::OfAnother(uid)) if observed.is_some_and(|seen| recognizer.may_take_over(seen, &uid)) => true,
        Some(Recognition::OfAnother(owner)) => return Err(ApplyError::OwnedByAnother { object: object(), owner }),
        Some(Recognition::Proven | Recognition::Earlier) => true,
        Some(Recognition::Unproven | Recognition::Nobodys) | None => false,
    };
    let seen = observed.map(|observed| &observed.state);
    let careful = applier.clone().without_force();
    let applier = if is_ours { applier } else { &careful };
    let known = match seen {
        Some(seen) => Seen::As(seen),
        None if child.is_new => Seen::Absent,
        None => Seen::Unknown,
    };
    let result = applier.apply_json(&child.target, wanted, known, child.as_seen).await?;
    let mut altered = None;
    let (outcome, state, differences) = match result {
        Some(written) => {
            altered = written.altered_error(&child.target);
            (written.applied.outcome, written.applied.object, written.applied.differences)
        }
        None => (ApplyOutcome::Unchanged, seen.cloned().unwrap_or_default(), Vec::new()),
    };
    let (object, api_version) = (child.target.object.clone(), child.target.api_version.clone());
    let (readiness, tolerates_unready) = (child.readiness(&state), child.tolerates_unready);
    let is_awaited = false;
    let report =
        ChildReport { object, api_version, outcome, state, differences, readiness, tolerates_unready, is_awaited };
    Ok((report, altered))
}

#[cfg(test)]
mod tests;
