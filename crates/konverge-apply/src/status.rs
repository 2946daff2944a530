//! Writing `status`: once, and only when it says something new.

mod own;

use std::borrow::Cow;

use kube::{Resource, api::Patch};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    altered::altered_status,
    applier::{Applier, altered_error, as_seen, without_nulls},
    call::Answer,
    error::ApplyError,
    in_sync::is_status_in_sync,
    object::{Target, Writable, json as to_json, metadata_string},
};

use self::own::{Own, applied_fields, is_list_atomic, is_own_part_same, own, with_whole_list};

/// Writes the status of objects under the field manager of its [`Applier`].
///
/// Guarantees: after a successful [`write`](Self::write) the manager owns exactly the given members of `status`; those of others stay,
/// those it had before go. The method [`update`](Self::update) is for a copy of the whole status with changes in it. After it, the manager
/// owns what it changed and what it had before, and never what it only read. A status that says the same as the observed one is not
/// written; the times of conditions that did not change are kept. A field that the definition in the cluster does not declare, as during
/// an upgrade, is left out, logged once and tried again after ten minutes; the rest is written.
///
/// A write names the resource version of the object that was seen. If the object has changed since, it is read once. If the manager's own
/// part of the status is as it was seen, the write is sent again. Else it fails with [`ApplyError::OutOfDate`], so a late write does not
/// bring an older status back. An object that was made anew is left alone, and the error is [`ApplyError::Gone`].
///
/// A status that the API server stored with other values than were sent is [`ApplyError::Altered`].
///
/// Assumes that the kind has the status subresource, and that its objects may be listed.
#[derive(Clone)]
pub struct StatusWriter {
    applier: Applier,
}

impl StatusWriter {
    /// Writes through `applier`.
    pub fn new(applier: Applier) -> Self {
        Self { applier }
    }

    /// Makes `status` the status of `object`, which is what the caller saw last. Returns the object as it is now, or `None` if nothing had to be
    /// written.
    ///
    /// The whole status belongs into one call: what is left out of it is removed.
    ///
    /// # Errors
    ///
    /// Returns [`ApplyError::OutOfDate`] if another process wrote the status since the object was seen, and [`ApplyError::Gone`] if the
    /// object is gone. Returns [`ApplyError::Altered`] if admission changed the status, and else the refusal or the failure of the request.
    pub async fn write<K>(&self, object: &K, status: &impl Serialize) -> Result<Option<K>, ApplyError>
    where
        K: Writable + Resource<DynamicType: Default>,
    {
        self.write_with(object, status, &K::DynamicType::default()).await
    }

    /// [`write`](Self::write) for kinds that are known at run time only. A caller that does not hold the object gives its name, uid, version and
    /// status. Without managed fields, any other version of the object that has a status of this manager is [`ApplyError::OutOfDate`].
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`write`](Self::write).
    pub async fn write_with<K: Writable>(
        &self,
        object: &K,
        status: &impl Serialize,
        kind: &K::DynamicType,
    ) -> Result<Option<K>, ApplyError> {
        let (target, observed, status) = self.prepared(object, status, kind)?;
        let Some(body) = to_write(&target, status, &observed, self.applier.manager()) else { return Ok(None) };
        self.send::<K>(&target, &body, &observed, Depends::OnOwnPart).await?.changed(&target)
    }

    /// Writes what `status` changes in the status of `object`. `status` is a copy of `object`'s status with the caller's changes, and
    /// `object` is what the caller saw last, with the entries of this manager in its managed fields. Returns the object as it is
    /// now, or `None` if nothing had to be written.
    ///
    /// The manager owns what differs from the status of `object`, and what it has written before. A condition that it leaves out of
    /// `status` it releases. Other conditions and members that equal those of `object` are not sent: they belong to others, and the
    /// copy may be stale.
    ///
    /// Where the schema of the kind does not merge conditions by type, each write replaces the whole list. There, the conditions of others
    /// are sent along, and any change of the status since it was seen is [`ApplyError::OutOfDate`].
    pub async fn update<K>(&self, object: &K, status: &impl Serialize) -> Result<Option<K>, ApplyError>
    where
        K: Writable + Resource<DynamicType: Default>,
    {
        self.update_with(object, status, &K::DynamicType::default()).await
    }

    /// [`update`](Self::update) for kinds that are known at run time only.
    pub async fn update_with<K: Writable>(
        &self,
        object: &K,
        status: &impl Serialize,
        kind: &K::DynamicType,
    ) -> Result<Option<K>, ApplyError> {
        let (target, observed, status) = self.prepared(object, status, kind)?;
        let manager = self.applier.manager();
        let Some((mut status, mut own)) = to_update(status, &observed, manager) else { return Ok(None) };
        if own.is_list_unknown {
            // Conditions of others are there, and only the API server can tell whether they would survive.
            let probe = Self { applier: self.applier.clone().with_dry_run(true) };
            let sent = probe.send::<K>(&target, &body(&target, &own), &observed, Depends::OnOwnPart).await?;
            if is_list_atomic(&applied_fields(&sent.after, manager)) {
                own = with_whole_list(own, &status);
            }
        }
        status = body(&target, &own);
        if is_status_in_sync(&status, &observed, manager) {
            return Ok(None);
        }
        let depends = if own.is_list_atomic { Depends::OnAll } else { Depends::OnOwnPart };
        self.send::<K>(&target, &status, &observed, depends).await?.changed(&target)
    }

    /// Applies a body to the object as it was seen. A field that the definition in the cluster does not declare is left out.
    async fn send<K: Writable>(
        &self,
        target: &Target,
        body: &Value,
        observed: &Value,
        depends: Depends,
    ) -> Result<Sent, ApplyError> {
        let uid = metadata_string(observed, "uid");
        let mut body = body.clone();
        let mut before = Cow::Borrowed(observed);
        loop {
            let version = metadata_string(&before, "resourceVersion");
            if let Some(version) = version {
                body["metadata"]["resourceVersion"] = json!(version);
            }
            let writing = self.applier.begin(target);
            let parameters = self.applier.parameters();
            let request =
                target.requests().patch_subresource("status", target.name(), &parameters, &Patch::Apply(json!({})));
            let answer = match self.applier.exchange(target, request, &body, uid).await {
                // Each time there is one field less, so this ends.
                Err(refusal) if self.applier.undeclared().learn(target, &refusal, &mut body) => {
                    if is_status_in_sync(&body, &before, self.applier.manager()) {
                        return Ok(Sent { after: before.into_owned(), is_change: false });
                    }
                    continue;
                }
                Err(ApplyError::Refused { code: 409, .. }) if version.is_some() => {
                    let current = self.applier.read(target, uid, as_seen::<K>).await?;
                    if is_status_in_sync(&body, &current, self.applier.manager()) {
                        // The answer to the first write may have been lost.
                        return Ok(Sent { after: current, is_change: true });
                    }
                    let is_read = matches!(before, Cow::Owned(_));
                    if is_read || !depends.is_same(observed, &current, self.applier.manager()) {
                        return Err(target.out_of_date());
                    }
                    before = Cow::Owned(current);
                    continue;
                }
                answer => answer?,
            };
            let after = as_seen::<K>(&answer.body).map_err(|source| target.unreadable(source))?;
            if let Some(writing) = writing {
                writing.wrote(&after);
            }
            if metadata_string(&after, "uid") != uid {
                return Err(target.gone());
            }
            self.check_unaltered(target, &body, &answer)?;
            let is_change = self.is_change(&after, &before);
            return Ok(Sent { after, is_change });
        }
    }

    /// Fails if the API server has stored another status than was sent.
    fn check_unaltered(&self, target: &Target, body: &Value, answer: &Answer) -> Result<(), ApplyError> {
        if self.applier.is_dry_run() {
            return Ok(());
        }
        // The type of the object may know less of the status than was sent.
        let stored: Value = answer.decode(&target.object)?;
        let fields = altered_status(body, &stored, self.applier.manager());
        altered_error(target, &stored, fields).map_or(Ok(()), Err)
    }

    /// The object as it was `seen`, at the version that the manager's own write of something else than the status returned as `later`, so that the
    /// next write of the status needs no second request. `seen` as it is if the manager's part of the status has changed in between.
    pub fn at_version_of<K: Writable>(&self, seen: &K, later: &K, kind: &K::DynamicType) -> Result<K, ApplyError> {
        let is_same = is_own_part_same(&to_json(seen, kind)?, &to_json(later, kind)?, self.applier.manager());
        let mut seen = seen.clone();
        if is_same && seen.meta().uid == later.meta().uid {
            *seen.meta_mut() = later.meta().clone();
        }
        Ok(seen)
    }

    /// The target, the object as it was seen, and what of the status the definition in the cluster is known to declare, in JSON.
    fn prepared<K: Writable>(
        &self,
        object: &K,
        status: &impl Serialize,
        kind: &K::DynamicType,
    ) -> Result<(Target, Value, Value), ApplyError> {
        let target = Target::of(object, kind)?;
        let observed = to_json(object, kind)?;
        let status = serde_json::to_value(status).map_err(|source| ApplyError::Encode {
            kind: target.object.kind.clone(),
            name: target.object.name.clone(),
            source,
        })?;
        let mut body = json!({ "status": status });
        self.applier.undeclared().strip(&target, &mut body);
        Ok((target, observed, body["status"].take()))
    }

    fn is_change(&self, after: &Value, observed: &Value) -> bool {
        // The answer to a dry run has the version of the object as it is.
        let part = if self.applier.is_dry_run() { "/status" } else { "/metadata/resourceVersion" };
        after.pointer(part) != observed.pointer(part)
    }
}

/// The answer to a write.
struct Sent {
    /// The object as it is now.
    after: Value,
    is_change: bool,
}

impl Sent {
    /// The object in its own type; `None` if nothing was changed.
    fn changed<K: Writable>(self, target: &Target) -> Result<Option<K>, ApplyError> {
        self.is_change
            .then(|| serde_json::from_value(self.after))
            .transpose()
            .map_err(|source| target.unreadable(source))
    }
}

/// The part of the seen status that must not have changed until the write.
#[derive(Clone, Copy)]
enum Depends {
    OnOwnPart,
    OnAll,
}

impl Depends {
    fn is_same(self, seen: &Value, current: &Value, manager: &str) -> bool {
        let is_all_same = || seen.get("status") == current.get("status");
        is_own_part_same(seen, current, manager) && (matches!(self, Self::OnOwnPart) || is_all_same())
    }
}

/// Returns the desired status as a whole, and the part of it to apply, or `None` if the observed status equals it.
fn to_update(mut status: Value, observed: &Value, manager: &str) -> Option<(Value, Own)> {
    without_nulls(&mut status);
    let mut seen = observed.get("status").cloned().unwrap_or_default();
    without_nulls(&mut seen);
    keep_transition_times(&mut status, &seen);
    if status == seen {
        return None;
    }
    let fields = applied_fields(observed, manager);
    let own = own(&status, &seen, &fields);
    let is_empty = own.status.as_object().is_none_or(serde_json::Map::is_empty);
    (!is_empty || !fields.is_null()).then_some((status, own))
}

/// The body that applies a part of the status.
fn body(target: &Target, own: &Own) -> Value {
    json!({
        "apiVersion": target.api_version,
        "kind": target.object.kind,
        "metadata": {"name": target.name()},
        "status": own.status,
    })
}

/// Returns the body of the write, or `None` if the observed status equals it.
fn to_write(target: &Target, mut status: Value, observed: &Value, manager: &str) -> Option<Value> {
    without_nulls(&mut status);
    let mut seen = observed.get("status").cloned().unwrap_or_default();
    without_nulls(&mut seen);
    keep_transition_times(&mut status, &seen);
    if status == seen || (seen.is_null() && status.as_object().is_some_and(serde_json::Map::is_empty)) {
        return None;
    }
    let body = json!({
        "apiVersion": target.api_version,
        "kind": target.object.kind,
        "metadata": {"name": target.name()},
        "status": status,
    });
    // Others may have more in it, which the comparison of the whole cannot allow for.
    (!is_status_in_sync(&body, observed, manager)).then_some(body)
}

/// Gives each condition the time of the observed one of its type, unless its status changed: that is what the time means.
fn keep_transition_times(status: &mut Value, observed: &Value) {
    let seen = observed.get("conditions").and_then(Value::as_array);
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    let (Some(conditions), Some(seen)) = (conditions, seen) else { return };
    for condition in conditions {
        let same =
            |seen: &&Value| seen.get("type") == condition.get("type") && seen.get("status") == condition.get("status");
        if let Some(time) = seen.iter().find(same).and_then(|seen| seen.get("lastTransitionTime")) {
            condition["lastTransitionTime"] = time.clone();
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use proptest::prelude::*;

    use super::*;

    fn target() -> Target {
        Target::named::<ConfigMap>(&(), Some("shop"), "app".to_owned())
    }

    fn condition(status: &str, time: &str) -> Value {
        json!({"type": "Ready", "status": status, "reason": "R", "message": "", "lastTransitionTime": time})
    }

    #[test]
    fn a_status_that_says_the_same_is_not_written() {
        let same = [
            (json!({}), json!({})),
            (json!({}), json!({"status": {}})),
            (json!({"a": null}), json!({})),
            (json!({"a": 1, "b": null}), json!({"status": {"a": 1}})),
            (
                json!({"conditions": [condition("True", "t2")]}),
                json!({"status": {"conditions": [condition("True", "t1")]}}),
            ),
        ];
        for (status, observed) in same {
            assert_eq!(to_write(&target(), status.clone(), &observed, "ours"), None, "{status} {observed}");
        }
        let news = [
            (json!({"a": 1}), json!({})),
            (json!({}), json!({"status": {"a": 1}})),
            (json!({"a": 2}), json!({"status": {"a": 1}})),
            (
                json!({"conditions": [condition("False", "t2")]}),
                json!({"status": {"conditions": [condition("True", "t1")]}}),
            ),
        ];
        for (status, observed) in news {
            assert!(to_write(&target(), status.clone(), &observed, "ours").is_some(), "{status} {observed}");
        }
    }

    #[test]
    fn the_body_has_the_status_and_nothing_else() {
        let observed = json!({"metadata": {"name": "app", "labels": {"a": "b"}}, "spec": {"a": 1}});
        assert_eq!(
            to_write(&target(), json!({"ready": true}), &observed, "ours"),
            Some(json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "app"}, "status": {"ready": true}
            }))
        );
    }

    #[test]
    fn what_others_own_in_the_status_is_no_news() {
        let fields = json!({"f:status": {"f:ready": {}}});
        let entry = json!({
            "manager": "ours", "operation": "Apply", "apiVersion": "v1", "subresource": "status", "fieldsV1": fields
        });
        let observed = json!({"metadata": {"managedFields": [entry]}, "status": {"ready": true, "theirs": 1}});
        assert_eq!(to_write(&target(), json!({"ready": true}), &observed, "ours"), None);
        assert!(to_write(&target(), json!({"ready": false}), &observed, "ours").is_some());
        assert!(to_write(&target(), json!({"ready": true, "theirs": 1}), &observed, "ours").is_none());
        assert!(to_write(&target(), json!({}), &observed, "ours").is_some());
        assert!(to_write(&target(), json!({"ready": true}), &observed, "another").is_some());
    }

    #[test]
    fn times_change_with_the_status_and_by_type() {
        let observed = json!({"conditions": [condition("True", "t1")]});
        let mut status = json!({"conditions": [condition("True", "t2"), {"type": "Other", "status": "True", "lastTransitionTime": "t2"}]});
        keep_transition_times(&mut status, &observed);
        assert_eq!(status["conditions"][0]["lastTransitionTime"], "t1");
        assert_eq!(status["conditions"][1]["lastTransitionTime"], "t2");
    }

    proptest! {
        #[test]
        fn writing_what_is_there_is_never_needed(times in proptest::collection::vec("[a-z]", 0..4)) {
            let conditions = |times: &[String]| times.iter().enumerate()
                .map(|(number, time)| json!({"type": number.to_string(), "status": "True", "lastTransitionTime": time}))
                .collect::<Vec<_>>();
            let observed = json!({"status": {"conditions": conditions(&times)}});
            let later: Vec<String> = times.iter().map(|time| format!("{time}+")).collect();
            prop_assert_eq!(to_write(&target(), json!({"conditions": conditions(&later)}), &observed, "ours"), None);
        }
    }
}
