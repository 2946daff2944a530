//! Server-side apply of any object, sent only when there is something to do.

mod memory;

use std::{borrow::Cow, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::StatusCode;
use kube::{
    Client, Resource,
    api::{ListParams, Patch, PatchParams},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    altered::{AlteredField, altered},
    annotation_sizes,
    body::escaped,
    call::{Answer, send, send_with_body, still_there},
    difference::{Difference, differences},
    error::ApplyError,
    in_sync::{applied_entries, is_in_sync},
    object::{Target, Writable, json as to_json, metadata_string},
    own_part::is_own_part_same,
    undeclared::Undeclared,
    write_observer::{WriteObserver, Writing},
};

use self::memory::Memory;

/// The outcome of an apply. No variant will be added, so that a match on it can be exhaustive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ApplyOutcome {
    /// The object was made.
    Created,
    /// The object is not as the caller saw it: this write changed it, or somebody else did before.
    Changed,
    /// The object had it all already. Often no request was needed to know that.
    Unchanged,
}

impl ApplyOutcome {
    /// Whether something is different now.
    pub fn is_change(self) -> bool {
        self != Self::Unchanged
    }
}

/// An object after an apply, and what the apply did.
#[derive(Debug, Clone)]
#[must_use = "the outcome tells whether there is something to report"]
#[non_exhaustive]
pub struct Applied<K> {
    /// The object as it is now; in a dry run as it would be.
    pub object: K,
    /// The effect of the apply.
    pub outcome: ApplyOutcome,
    /// In a dry run, what would change; else empty.
    pub differences: Vec<Difference>,
}

/// The caller's knowledge of an object that it wants to apply.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Seen<'a> {
    /// Nothing: it is made if it is not there, and else changed.
    Unknown,
    /// That there is none. An object that another client has made since is left alone.
    Absent,
    /// How it was.
    As(&'a Value),
}

/// An apply that the API server has done.
pub(crate) struct Written {
    pub(crate) applied: Applied<Value>,
    /// The fields that admission changed.
    pub(crate) altered: Vec<AlteredField>,
}

impl Written {
    /// Returns the changes of admission as an error, or `None` if the object is as it was sent.
    pub(crate) fn altered_error(&self, target: &Target) -> Option<ApplyError> {
        altered_error(target, &self.applied.object, self.altered.clone())
    }

    /// The object in its own type; an error if it is not as it was sent.
    fn typed<K: Writable>(self, target: &Target) -> Result<Applied<K>, ApplyError> {
        if let Some(altered) = self.altered_error(target) {
            return Err(altered);
        }
        let Applied { object, outcome, differences } = self.applied;
        let object = serde_json::from_value(object).map_err(|source| target.unreadable(source))?;
        Ok(Applied { object, outcome, differences })
    }
}

/// Returns the changes of admission as an error, or `None` if there are none. `stored` is the answer of the API server.
pub(crate) fn altered_error(target: &Target, stored: &Value, fields: Vec<AlteredField>) -> Option<ApplyError> {
    let resource_version = metadata_string(stored, "resourceVersion").unwrap_or_default().to_owned();
    let object = Box::new(target.object.clone());
    (!fields.is_empty()).then_some(ApplyError::Altered { object, fields, resource_version })
}

/// A version that no object ever has, as etcd counts from 2. An apply with it makes an object and changes none: the API server
/// compares versions only if there is something to compare with.
pub(crate) const NO_VERSION: &str = "1";

/// Writes objects under one field manager. Clones are cheap and share what they know.
///
/// Guarantees: after a successful [`apply`](Self::apply) the manager owns exactly the fields that the desired object has; fields that it
/// owned before and that nobody else owns are removed; fields of others stay. Repeating an apply changes nothing and is mostly decided
/// without a request, see [`is_in_sync`]. An object that the caller has seen and that was deleted meanwhile is not made again, and another
/// of its name is not touched. A write names the version that the caller has seen. If the object has changed since but the manager's part
/// of it has not, the write is sent again. Else it fails with [`ApplyError::OutOfDate`], so a late write does not bring back what a newer
/// one replaced. An object that the API server stored with other values than were sent does not count as in sync: it is
/// [`ApplyError::Altered`], and written again by each apply.
///
/// Does not: write `status` (that is the job of [`StatusWriter`](crate::StatusWriter)), wipe values of Secrets (that is the job of
/// [`SecretApplier`](crate::SecretApplier)), or see members that are `null`: they count as not written.
#[derive(Clone)]
pub struct Applier {
    client: Client,
    manager: Arc<str>,
    memory: Arc<Memory>,
    undeclared: Arc<Undeclared>,
    write_observer: Option<Arc<dyn WriteObserver>>,
    force: bool,
    exact: bool,
    dry_run: bool,
}

impl Applier {
    /// Writes with `client` as field manager `manager`, taking over fields that others own.
    pub fn new(client: Client, manager: &str) -> Self {
        Self {
            client,
            manager: manager.into(),
            memory: Arc::default(),
            undeclared: Arc::default(),
            write_observer: None,
            force: true,
            exact: false,
            dry_run: false,
        }
    }

    /// Writes nothing when others own a field with another value, but fails with [`ApplyError::Conflict`].
    #[must_use]
    pub fn without_force(self) -> Self {
        Self { force: false, ..self }
    }

    /// Writes an object that the caller has seen only if nothing of it has changed since, not even its status, and fails with
    /// [`ApplyError::OutOfDate`] otherwise. For a decision that depends on the whole object, such as which of two definitions is newer.
    #[must_use]
    pub fn for_the_version_seen(self) -> Self {
        Self { exact: true, ..self }
    }

    /// Asks the API server what every write would do and writes nothing.
    #[must_use]
    pub fn with_dry_run(self, dry_run: bool) -> Self {
        Self { dry_run, ..self }
    }

    /// Writes as another field manager.
    #[must_use]
    pub fn with_manager(self, manager: &str) -> Self {
        // Applies of one manager say nothing about another.
        Self { manager: manager.into(), memory: Arc::default(), ..self }
    }

    /// Tells `write_observer` of every write.
    #[must_use]
    pub fn with_write_observer(self, write_observer: Arc<dyn WriteObserver>) -> Self {
        Self { write_observer: Some(write_observer), ..self }
    }

    /// The field manager.
    pub fn manager(&self) -> &str {
        &self.manager
    }

    /// The client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Whether nothing is written.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// Whether an object that the caller has seen is written only if it has not changed since.
    pub(crate) fn is_exact(&self) -> bool {
        self.exact
    }

    /// Makes the object have the fields of `desired`. `observed` is what the caller saw last, with the entries of this manager in
    /// its managed fields; without it a request is always sent and the object is made if it is not there.
    pub async fn apply<K>(&self, desired: &K, observed: Option<&K>) -> Result<Applied<K>, ApplyError>
    where
        K: Writable + Resource<DynamicType: Default>,
    {
        self.apply_with(desired, observed, &K::DynamicType::default()).await
    }

    /// [`apply`](Self::apply) for kinds that are known at run time only.
    pub async fn apply_with<K: Writable>(
        &self,
        desired: &K,
        observed: Option<&K>,
        kind: &K::DynamicType,
    ) -> Result<Applied<K>, ApplyError> {
        let target = Target::of(desired, kind)?;
        let wanted = wanted(to_json(desired, kind)?, &target);
        let seen = observed.map(|observed| to_json(observed, kind)).transpose()?;
        let seen = seen.as_ref().map_or(Seen::Unknown, Seen::As);
        let Some(written) = self.apply_json(&target, &wanted, seen, as_seen::<K>).await? else {
            // Only an object that was seen can be in sync.
            let object = observed.unwrap_or(desired).clone();
            return Ok(Applied { object, outcome: ApplyOutcome::Unchanged, differences: Vec::new() });
        };
        written.typed(&target)
    }

    /// Creates the object. If another client has made an object of this name, that object is left as it is, and the error is
    /// [`ApplyError::OutOfDate`].
    pub async fn create<K>(&self, desired: &K) -> Result<Applied<K>, ApplyError>
    where
        K: Writable + Resource<DynamicType: Default>,
    {
        self.create_with(desired, &K::DynamicType::default()).await
    }

    /// [`create`](Self::create) for kinds that are known at run time only.
    pub async fn create_with<K: Writable>(&self, desired: &K, kind: &K::DynamicType) -> Result<Applied<K>, ApplyError> {
        let target = Target::of(desired, kind)?;
        let wanted = wanted(to_json(desired, kind)?, &target);
        match self.apply_json(&target, &wanted, Seen::Absent, as_seen::<K>).await? {
            Some(written) => written.typed(&target),
            // An object that was absent is never in sync.
            None => Ok(Applied { object: desired.clone(), outcome: ApplyOutcome::Unchanged, differences: Vec::new() }),
        }
    }

    /// The same in JSON. Returns `None` if no request was needed.
    pub(crate) async fn apply_json(
        &self,
        target: &Target,
        wanted: &Value,
        seen: Seen<'_>,
        as_seen: AsSeen,
    ) -> Result<Option<Written>, ApplyError> {
        let is_absent = matches!(seen, Seen::Absent);
        let seen = match seen {
            Seen::As(seen) => Some(seen),
            Seen::Absent | Seen::Unknown => None,
        };
        let uid = seen.and_then(|seen| metadata_string(seen, "uid"));
        if let Some(seen) = seen
            && (is_in_sync(wanted, seen, &self.manager)
                || uid.is_some_and(|uid| self.memory.is_repeated(uid, wanted, seen)))
        {
            return Ok(None);
        }
        let Sent { object, code, writing } = self.send_as_seen(target, wanted, seen, is_absent, as_seen).await?;
        if self.dry_run {
            let differences = differences(seen, &object, target.is_secret());
            // The answer has the version of the object as it is, whatever would change.
            let outcome = outcome(code, differences.is_empty());
            return Ok(Some(Written { applied: Applied { object, outcome, differences }, altered: Vec::new() }));
        }
        if target.object.kind == "CustomResourceDefinition" {
            self.undeclared.forget();
        }
        let altered = altered(wanted, &object, &self.manager);
        // The version of another client's change is not an own write: the watch is to show it as that client's change.
        let is_of_another = seen.is_some_and(|seen| {
            altered.is_empty() && is_version_of_another_client(wanted, seen, &object, &self.manager)
        });
        if let Some(writing) = writing.filter(|_| !is_of_another) {
            writing.wrote(&object);
        }
        if let Some(uid) = metadata_string(&object, "uid").filter(|_| altered.is_empty()) {
            self.memory.remember(uid, wanted, &object);
        }
        let version = |object| metadata_string(object, "resourceVersion");
        let outcome = outcome(code, seen.is_some_and(|seen| version(seen) == version(&object)));
        Ok(Some(Written { applied: Applied { object, outcome, differences: Vec::new() }, altered }))
    }

    /// Sends an apply for the object as it was seen. If only parts of others have changed since, it is sent once more.
    async fn send_as_seen(
        &self,
        target: &Target,
        wanted: &Value,
        seen: Option<&Value>,
        is_absent: bool,
        as_seen: AsSeen,
    ) -> Result<Sent, ApplyError> {
        let uid = seen.and_then(|seen| metadata_string(seen, "uid"));
        let mut before = seen.map(Cow::Borrowed);
        loop {
            let writing = self.begin(target);
            let request = target.requests().patch(target.name(), &self.parameters(), &Patch::Apply(json!({})));
            let mut body = wanted.clone();
            if let Some(uid) = uid {
                // Nothing is made, and nothing else is touched, when the object is no longer the one that was seen.
                body["metadata"]["uid"] = json!(uid);
            }
            let required = match &before {
                _ if is_absent => Some(NO_VERSION),
                // A dry run changes nothing, so it need not be for the newest version.
                Some(before) if self.exact || !self.dry_run => metadata_string(before, "resourceVersion"),
                _ => None,
            };
            if let Some(version) = required {
                body["metadata"]["resourceVersion"] = json!(version);
            }
            let answer = match (self.exchange(target, request, &body, uid).await, seen) {
                (Err(ApplyError::Refused { code: 409, .. } | ApplyError::Conflict { .. }), _)
                    if is_absent || (self.exact && required.is_some()) =>
                {
                    return Err(target.out_of_date());
                }
                (Err(ApplyError::Refused { code: 409, .. }), Some(seen)) if required.is_some() => {
                    let current = self.read(target, uid, as_seen).await?;
                    if is_in_sync(wanted, &current, &self.manager) {
                        return Ok(Sent { object: current, code: StatusCode::OK, writing: None });
                    }
                    let is_read = matches!(before, Some(Cow::Owned(_)));
                    if is_read || !is_own_part_same(seen, &current, &self.manager) {
                        return Err(target.out_of_date());
                    }
                    before = Some(Cow::Owned(current));
                    continue;
                }
                (answer, _) => answer?,
            };
            let object = as_seen(&answer.body).map_err(|source| target.unreadable(source))?;
            return Ok(Sent { object, code: answer.code, writing });
        }
    }

    /// Reads the object with this uid by a list: a controller may list its kind, and often may not get single objects.
    pub(crate) async fn read(&self, target: &Target, uid: Option<&str>, as_seen: AsSeen) -> Result<Value, ApplyError> {
        let only = ListParams::default().fields(&format!("metadata.name={}", target.name()));
        let answer = send(&self.client, &target.object, target.list(&only)).await?;
        let List { items } = answer.success(&target.object)?.decode(&target.object)?;
        let item = items.into_iter().next().ok_or_else(|| target.gone())?;
        let current = as_seen(item.to_string().as_bytes()).map_err(|source| target.unreadable(source))?;
        if metadata_string(&current, "uid") == uid { Ok(current) } else { Err(target.gone()) }
    }

    /// The fields that definitions in the cluster do not declare.
    pub(crate) fn undeclared(&self) -> &Undeclared {
        &self.undeclared
    }

    pub(crate) fn parameters(&self) -> PatchParams {
        PatchParams { dry_run: self.dry_run, force: self.force, ..PatchParams::apply(&self.manager) }
            .validation_strict()
    }

    /// Sends a body. A refusal that means that the object with the expected uid is no longer there becomes [`ApplyError::Gone`]. Not so a conflict
    /// of a body with a resource version, as the caller reads the object then.
    pub(crate) async fn exchange(
        &self,
        target: &Target,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
        body: &Value,
        uid: Option<&str>,
    ) -> Result<Answer, ApplyError> {
        let answer = send_with_body(&self.client, &target.object, target.asking(request), escaped(body).into()).await?;
        match (answer.code, uid) {
            (code, _) if code.is_success() => Ok(answer),
            (StatusCode::NOT_FOUND | StatusCode::CONFLICT | StatusCode::UNPROCESSABLE_ENTITY, Some(uid)) => {
                let refusal = answer.refusal(&target.object);
                let (requests, object) = (target.requests(), &target.object);
                let is_read_by_caller =
                    answer.code == StatusCode::CONFLICT && metadata_string(body, "resourceVersion").is_some();
                if is_read_by_caller || matches!(refusal, ApplyError::Conflict { .. }) {
                    return Err(refusal);
                }
                Err(match still_there(&self.client, object, &requests, uid).await {
                    Ok(Some(now)) => annotation_sizes::explained(refusal, &now, body),
                    Ok(None) => target.gone(),
                    // The refusal says more than the failure to find out its cause.
                    Err(_) => refusal,
                })
            }
            _ => Err(answer.refusal(&target.object)),
        }
    }

    /// Tells the write observer that a write begins.
    pub(crate) fn begin(&self, target: &Target) -> Option<Box<dyn Writing>> {
        let write_observer = self.write_observer.as_ref().filter(|_| !self.dry_run)?;
        Some(write_observer.begin(&target.object, &target.api_version))
    }
}

/// The object after an apply, with the answer's code and the notice for the write observer.
struct Sent {
    object: Value,
    code: StatusCode,
    writing: Option<Box<dyn Writing>>,
}

/// The answer to a list.
#[derive(Deserialize)]
struct List {
    items: Vec<Value>,
}

/// Whether an apply of `wanted` by `manager` changed nothing, although `answer` is of another version than `seen`. `answer` has all fields
/// as wanted.
///
/// An update by another client takes a field from its manager. So if the record of our fields is the same, together with its time, and the
/// fields had their wanted values, our apply left them as they were. An apply that puts a field back within the second in which we applied
/// it before leaves the same record; the watch then shows it, as it shows the change that it undid.
fn is_version_of_another_client(wanted: &Value, seen: &Value, answer: &Value, manager: &str) -> bool {
    let is_same = |field: &str| metadata_string(seen, field) == metadata_string(answer, field);
    let record = |object| applied_entries(object, manager, None).next();
    is_same("uid")
        && !is_same("resourceVersion")
        && record(seen).is_some_and(|seen| Some(seen) == record(answer))
        && altered(wanted, seen, manager).is_empty()
}

/// How an answer is read: as the caller's cache will show it, so without what the type does not know.
pub(crate) type AsSeen = fn(&[u8]) -> Result<Value, serde_json::Error>;

pub(crate) fn as_seen<K: Writable>(answer: &[u8]) -> Result<Value, serde_json::Error> {
    serde_json::to_value(serde_json::from_slice::<K>(answer)?)
}

fn outcome(code: StatusCode, is_as_seen: bool) -> ApplyOutcome {
    match code {
        StatusCode::CREATED => ApplyOutcome::Created,
        _ if is_as_seen => ApplyOutcome::Unchanged,
        _ => ApplyOutcome::Changed,
    }
}

/// The apply configuration: what is wanted, without what the server decides, what belongs to the status, and what is null.
pub(crate) fn wanted(mut object: Value, target: &Target) -> Value {
    without_nulls(&mut object);
    if target.is_secret() && target.api_version == "v1" {
        string_data_as_data(&mut object);
    }
    object["apiVersion"] = json!(target.api_version);
    object["kind"] = json!(target.object.kind);
    if let Some(members) = object.as_object_mut() {
        members.remove("status");
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for decided in [
            "creationTimestamp",
            "deletionTimestamp",
            "generation",
            "managedFields",
            "resourceVersion",
            "selfLink",
            "uid",
        ] {
            metadata.remove(decided);
        }
    }
    object
}

/// Moves the `stringData` of a Secret to `data`, as the API server does. It overrides values in `data`. The stored object then has the
/// applied fields. Content other than a map of strings stays, and the API server refuses it.
fn string_data_as_data(secret: &mut Value) {
    let Some(members) = secret.as_object_mut() else { return };
    if !members.get("data").is_none_or(Value::is_object) {
        return;
    }
    let is_text = |texts: &Map<String, Value>| texts.values().all(Value::is_string);
    if !members.get("stringData").and_then(Value::as_object).is_some_and(is_text) {
        return;
    }
    let Some(Value::Object(texts)) = members.remove("stringData") else { return };
    let data = members.entry("data").or_insert_with(|| json!({}));
    for (key, text) in texts {
        data[key] = json!(STANDARD.encode(text.as_str().unwrap_or_default()));
    }
}

pub(crate) fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{
        api::{DynamicObject, ObjectMeta},
        core::{ApiResource, GroupVersionKind, TypeMeta},
    };

    use super::*;

    /// The answer to an apply that changed nothing has the version of another client's change. Taken for an own write, it hid that change
    /// from the controller.
    #[test]
    fn the_version_of_another_client_is_told_from_that_of_an_own_write() {
        let object = |uid: &str, version: &str, time: &str, cpu: &str, note: &str| {
            json!({
                "metadata": {
                    "uid": uid, "resourceVersion": version, "annotations": {"note": note},
                    "managedFields": [
                        {"manager": "other", "operation": "Update", "apiVersion": "v1", "time": version},
                        {
                            "manager": "ours", "operation": "Apply", "apiVersion": "v1", "time": time, "fieldsType": "FieldsV1",
                            "fieldsV1": {"f:spec": {"f:hard": {"f:cpu": {}}}},
                        },
                    ],
                },
                "spec": {"hard": {"cpu": cpu}},
            })
        };
        // The API server spells the wanted quantity in another way, so whether it is in sync is not known without a request.
        let wanted = json!({"apiVersion": "v1", "spec": {"hard": {"cpu": "0.5"}}});
        let seen = object("u", "7", "noon", "500m", "");
        for (answer, expected) in [
            (object("u", "8", "noon", "500m", "by another client"), true),
            (object("u", "7", "noon", "500m", ""), false),
            (object("u", "8", "one", "500m", ""), false),
            (object("v", "8", "noon", "500m", ""), false),
        ] {
            assert_eq!(is_version_of_another_client(&wanted, &seen, &answer, "ours"), expected, "{answer}");
        }
        // Within one second, and with a value that was another one before.
        let (before, answer) = (object("u", "7", "noon", "1", ""), object("u", "8", "noon", "500m", ""));
        assert!(!is_version_of_another_client(&wanted, &before, &answer, "ours"));
        assert!(!is_version_of_another_client(&wanted, &seen, &answer, "a manager without a record"));
    }

    #[test]
    fn what_the_server_decides_and_what_is_null_is_not_wanted() {
        let metadata = ObjectMeta {
            name: Some("app".to_owned()),
            namespace: Some("shop".to_owned()),
            uid: Some("u".to_owned()),
            resource_version: Some("7".to_owned()),
            generation: Some(3),
            ..ObjectMeta::default()
        };
        let target = Target::of(&ConfigMap { metadata: metadata.clone(), ..ConfigMap::default() }, &()).expect("named");
        let object = json!({"metadata": metadata, "status": {"a": 1}, "spec": {"a": null, "b": [{"c": null, "d": 1}]}});
        assert_eq!(
            wanted(object, &target),
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "app", "namespace": "shop"},
                "spec": {"b": [{"d": 1}]},
            })
        );
    }

    #[test]
    fn string_data_of_a_secret_is_wanted_as_data() {
        let target = |api_version: &str, kind: &str| {
            let kind = ApiResource::from_gvk(
                &GroupVersionKind::try_from(TypeMeta { api_version: api_version.to_owned(), kind: kind.to_owned() })
                    .expect("a kind"),
            );
            Target::of(&DynamicObject::new("app", &kind).within("shop"), &kind).expect("named")
        };
        let content = |kind: &str, object: Value| wanted(object, &target("v1", kind));
        for (object, expected) in [
            (json!({"stringData": {"a": "x"}}), json!({"data": {"a": "eA=="}})),
            (
                json!({"data": {"a": "eQ==", "b": "eQ=="}, "stringData": {"a": "x"}}),
                json!({"data": {"a": "eA==", "b": "eQ=="}}),
            ),
            (json!({"stringData": {}}), json!({"data": {}})),
            // The API server refuses these, and says why.
            (json!({"stringData": {"a": 1}}), json!({"stringData": {"a": 1}})),
            (json!({"stringData": ["a"]}), json!({"stringData": ["a"]})),
            (json!({"data": "a", "stringData": {"a": "x"}}), json!({"data": "a", "stringData": {"a": "x"}})),
        ] {
            let mut wanted = content("Secret", object);
            wanted.as_object_mut().expect("an object").retain(|field, _| field == "data" || field == "stringData");
            assert_eq!(wanted, expected);
        }
        let object = json!({"stringData": {"a": "x"}});
        assert_eq!(content("Other", object.clone())["stringData"], object["stringData"]);
        assert_eq!(wanted(object.clone(), &target("example.com/v1", "Secret"))["stringData"], object["stringData"]);
    }

    /// Reconcilers run on any thread.
    #[test]
    fn writes_can_be_sent_between_threads() {
        fn is_send(_: impl Send) {}
        let _ = |applier: Applier, object: ConfigMap, set: crate::DesiredSet| {
            is_send(applier.apply(&object, None));
            is_send(applier.delete(&object));
            is_send(applier.add_finalizer(&object, "a/b"));
            is_send(set.apply(&applier));
            is_send(crate::StatusWriter::new(applier.clone()).write(&object, &()));
            let api = kube::Api::<ConfigMap>::all(applier.client().clone());
            is_send(crate::read::list_all(&api, &kube::api::ListParams::default()));
        };
    }
}
