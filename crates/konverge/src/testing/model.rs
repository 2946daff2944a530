//! The objects and answers of an API server, as a state machine without IO.

use std::collections::{BTreeMap, BTreeSet};

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{
    fields::{self, TIME, Writer},
    selector,
    write::{Verb, Write},
};

/// A kind as the addresses of requests name it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Resource {
    pub(super) group: String,
    pub(super) plural: String,
}

/// One object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id {
    pub(super) resource: Resource,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
}

/// The target of a request, read from its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) resource: Resource,
    version: String,
    pub(super) namespace: Option<String>,
    name: Option<String>,
    subresource: Option<String>,
}

/// A request.
#[derive(Debug, Clone)]
pub(super) struct ModelRequest {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) query: BTreeMap<String, String>,
    pub(super) content_type: String,
    pub(super) is_metadata_only: bool,
    pub(super) body: Vec<u8>,
}

/// A response: its status code and its body.
pub(super) type Answer = (StatusCode, Value);

/// A change, for watches.
#[derive(Debug, Clone)]
struct Change {
    version: u64,
    id: Id,
    before: Option<Value>,
    after: Option<Value>,
}

/// Decides whether a write is refused, and with which status code.
pub(super) type Refuse = Box<dyn Fn(&Write) -> Option<u16> + Send>;

/// The state.
pub(super) struct Model {
    objects: BTreeMap<Id, Value>,
    missing: BTreeSet<Resource>,
    version: u64,
    uids: u64,
    changes: Vec<Change>,
    pub(super) writes: Vec<Write>,
    pub(super) refuse: Vec<Refuse>,
}

impl Place {
    /// Reads a path; none if it names no kind.
    pub(super) fn parse(path: &str) -> Option<Self> {
        let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
        let (group, version, rest) = match segments.as_slice() {
            ["api", version, rest @ ..] => ("", version, rest),
            ["apis", group, version, rest @ ..] => (*group, version, rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            // These two belong to the Namespace itself; any other name here is a kind within it.
            ["namespaces", _name, "status" | "finalize"] => (None, rest),
            ["namespaces", namespace, inside @ ..] if !inside.is_empty() => (Some((*namespace).to_owned()), inside),
            _ => (None, rest),
        };
        let at = |index: usize| rest.get(index).map(|segment| (*segment).to_owned());
        let resource = Resource { group: group.to_owned(), plural: at(0)? };
        Some(Self { resource, version: (*version).to_owned(), namespace, name: at(1), subresource: at(2) })
    }

    fn api_version(&self) -> String {
        match self.resource.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }

    fn id(&self, name: &str) -> Id {
        Id { resource: self.resource.clone(), namespace: self.namespace.clone(), name: name.to_owned() }
    }

    fn covers(&self, id: &Id) -> bool {
        id.resource == self.resource && (self.namespace.is_none() || id.namespace == self.namespace)
    }
}

impl Default for Model {
    /// As in etcd, the first change makes version 2. So no object ever has version 1, with which an apply makes an object and changes none.
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            missing: BTreeSet::new(),
            version: 1,
            uids: 0,
            changes: Vec::new(),
            writes: Vec::new(),
            refuse: Vec::new(),
        }
    }
}

impl Model {
    /// Answers everything but a watch.
    pub(super) fn answer(&mut self, request: &ModelRequest) -> Answer {
        let Some(place) = Place::parse(&request.path) else {
            return refused(404, &format!("the model has nothing at {}", request.path));
        };
        if self.missing.contains(&place.resource) {
            return refused(404, "the server could not find the requested resource");
        }
        let answer = match (&request.method, &place.name) {
            (&Method::GET, Some(name)) => self.get(&place, name),
            (&Method::GET, None) => return self.list(&place, request),
            _ => self.write(&place, request),
        };
        match answer {
            Ok((code, object)) => (code, if request.is_metadata_only { metadata_of(&object) } else { object }),
            Err(refusal) => refusal,
        }
    }

    fn get(&self, place: &Place, name: &str) -> Result<Answer, Answer> {
        let object = self.objects.get(&place.id(name)).ok_or_else(|| not_found(place, name))?;
        Ok((StatusCode::OK, object.clone()))
    }

    fn list(&self, place: &Place, request: &ModelRequest) -> Answer {
        let chosen = self.objects.iter().filter(|(id, object)| place.covers(id) && chosen(request, object));
        let items: Vec<Value> = chosen
            .map(|(_, object)| if request.is_metadata_only { metadata_of(object) } else { object.clone() })
            .collect();
        let kind = items.first().and_then(|item| item["kind"].as_str()).unwrap_or("Object").to_owned() + "List";
        let metadata = json!({"resourceVersion": self.version.to_string()});
        let api_version = if request.is_metadata_only { "meta.k8s.io/v1".to_owned() } else { place.api_version() };
        (StatusCode::OK, json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "items": items}))
    }

    /// Answers a request that changes something, and records it.
    fn write(&mut self, place: &Place, request: &ModelRequest) -> Result<Answer, Answer> {
        let is_dry_run = request.query.contains_key("dryRun");
        let body = match request.body.as_slice() {
            [] => Value::Null,
            body => {
                serde_json::from_slice(body).map_err(|error| refused(400, &format!("the body is no JSON: {error}")))?
            }
        };
        let verb = verb(request)?;
        let name = place.name.clone().or_else(|| text(&body, "/metadata/name")).unwrap_or_else(|| {
            self.uids += 1;
            format!("{}{}", text(&body, "/metadata/generateName").unwrap_or_default(), self.uids)
        });
        let known = self.objects.get(&place.id(&name)).cloned();
        let kind = known.as_ref().unwrap_or(&body)["kind"].as_str().unwrap_or(&place.resource.plural).to_owned();
        let mut write = Write {
            verb,
            kind,
            namespace: place.namespace.clone(),
            name: name.clone(),
            subresource: place.subresource.clone(),
            body: body.clone(),
            code: 0,
            group: place.resource.group.clone(),
        };
        let answer = match self.refuse.iter().find_map(|refuse| refuse(&write)) {
            Some(code) => Err(refused(code, "refused by the test")),
            None => self.carried_out(verb, place, &name, request, body, known),
        };
        let (Ok((code, _)) | Err((code, _))) = &answer;
        write.code = code.as_u16();
        if !is_dry_run {
            self.writes.push(write);
        }
        answer
    }

    fn carried_out(
        &mut self,
        verb: Verb,
        place: &Place,
        name: &str,
        request: &ModelRequest,
        body: Value,
        known: Option<Value>,
    ) -> Result<Answer, Answer> {
        if verb == Verb::Delete {
            return self.delete(place, name, &body, known, request.query.contains_key("dryRun"));
        }
        let api_version = place.api_version();
        let manager = request.query.get("fieldManager").map_or("unknown", String::as_str);
        let writer = Writer { manager, api_version: &api_version, subresource: place.subresource.as_deref() };
        let found = || known.clone().ok_or_else(|| not_found(place, name));
        let after = match verb {
            Verb::Create if known.is_some() => {
                return Err(refused(409, &format!("{} \"{name}\" already exists", place.resource.plural)));
            }
            Verb::Create => created(name, body, writer),
            Verb::Update => {
                let before = found()?;
                check(&before, &body)?;
                let mut after = part_of_place(place, &before, body);
                after["metadata"]["managedFields"] = before["metadata"]["managedFields"].clone();
                fields::update(&before, &mut after, writer);
                after
            }
            Verb::Patch => {
                let before = found()?;
                let mut after = before.clone();
                patched(&mut after, &body, &request.content_type)?;
                check(&before, &after)?;
                let mut after = part_of_place(place, &before, after);
                fields::update(&before, &mut after, writer);
                after
            }
            Verb::Apply => {
                if place.subresource.is_some() {
                    found()?;
                }
                let is_forced = request.query.get("force").is_some_and(|force| force == "true");
                applied(name, &body, known.as_ref(), writer, is_forced)?
            }
            Verb::Delete => return Err(refused(405, "a deletion is no change")),
        };
        let code = if known.is_some() { StatusCode::OK } else { StatusCode::CREATED };
        Ok((code, self.keep(place.id(name), known, after, request.query.contains_key("dryRun"))))
    }

    fn delete(
        &mut self,
        place: &Place,
        name: &str,
        options: &Value,
        known: Option<Value>,
        is_dry_run: bool,
    ) -> Result<Answer, Answer> {
        let mut object = known.ok_or_else(|| not_found(place, name))?;
        for field in ["uid", "resourceVersion"] {
            let wanted = &options["preconditions"][field];
            if !wanted.is_null() && *wanted != object["metadata"][field] {
                return Err(refused(409, &format!("Precondition failed: {field} is {}", object["metadata"][field])));
            }
        }
        let before = object.clone();
        if object["metadata"].get("deletionTimestamp").is_none() {
            object["metadata"]["deletionTimestamp"] = json!(TIME);
        }
        let after = self.keep(place.id(name), Some(before), object, is_dry_run);
        let is_kept = has_finalizers(&after);
        Ok((
            StatusCode::OK,
            if is_kept { after } else { json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}) },
        ))
    }

    /// Stores an object as a request has made it, unless nothing changed. Returns it as it is now.
    fn keep(&mut self, id: Id, before: Option<Value>, mut after: Value, is_dry_run: bool) -> Value {
        let (was, is) = (before.as_ref().map(comparable), comparable(&after));
        if was.as_ref() == Some(&is) {
            return before.unwrap_or(after);
        }
        let version = self.version + 1;
        if let Some(namespace) = &id.namespace {
            after["metadata"]["namespace"] = json!(namespace);
        }
        let metadata = &mut after["metadata"];
        match &before {
            None => {
                if metadata["uid"].as_str().is_none_or(str::is_empty) {
                    self.uids += 1;
                    metadata["uid"] = json!(format!("uid-{}", self.uids));
                }
                if metadata["creationTimestamp"].is_null() {
                    metadata["creationTimestamp"] = json!(TIME);
                }
            }
            Some(before) => {
                for member in ["name", "uid", "creationTimestamp"] {
                    metadata[member] = before["metadata"][member].clone();
                }
            }
        }
        metadata["resourceVersion"] = json!(version.to_string());
        if after.get("spec").is_some() {
            let counts = |object: &Value| {
                let parts = object.as_object().into_iter().flatten();
                let parts = parts.filter(|(name, _)| !["metadata", "status"].contains(&name.as_str()));
                let parts: Vec<_> = parts.map(|(name, part)| (name.clone(), part.clone())).collect();
                (parts, object["metadata"]["deletionTimestamp"].is_null())
            };
            let generation = before.as_ref().and_then(|before| before["metadata"]["generation"].as_i64());
            let is_same = before.as_ref().is_some_and(|before| counts(before) == counts(&after));
            let given = after["metadata"]["generation"].as_i64();
            let generation = match generation {
                None => given.unwrap_or(1),
                Some(generation) => generation + i64::from(!is_same),
            };
            after["metadata"]["generation"] = json!(generation);
        }
        if is_dry_run {
            return after;
        }
        let is_gone = after["metadata"].get("deletionTimestamp").is_some() && !has_finalizers(&after);
        let stored = (!is_gone).then(|| after.clone());
        match &stored {
            Some(stored) => drop(self.objects.insert(id.clone(), stored.clone())),
            None => drop(self.objects.remove(&id)),
        }
        self.version = version;
        self.changes.push(Change { version, id, before, after: stored });
        after
    }

    /// Puts an object there, whatever was there before, as if it had always been.
    pub(super) fn put(&mut self, id: Id, object: Value) -> Value {
        let before = self.objects.get(&id).cloned();
        self.keep(id, before, object, false)
    }

    /// Changes an object as another writer would, who then owns what changed.
    pub(super) fn edit(&mut self, id: Id, mut object: Value, api_version: &str) {
        let Some(before) = self.objects.get(&id).cloned() else { return };
        fields::update(&before, &mut object, Writer { manager: "someone-else", api_version, subresource: None });
        self.keep(id, Some(before), object, false);
    }

    /// The object of this name.
    pub(super) fn object(&self, id: &Id) -> Option<&Value> {
        self.objects.get(id)
    }

    /// Answers 404 to all about this kind, as an API server without its definition does.
    pub(super) fn forget_kind(&mut self, resource: Resource) {
        self.missing.insert(resource);
    }

    /// Whether requests about this kind are answered.
    pub(super) fn knows(&self, resource: &Resource) -> bool {
        !self.missing.contains(resource)
    }

    /// The events of a watch after this version, and the version that they lead to.
    pub(super) fn watched(&self, place: &Place, request: &ModelRequest, after: u64) -> (Vec<Value>, u64) {
        let news = self.changes.iter().filter(|change| change.version > after && place.covers(&change.id));
        let events = news.filter_map(|change| {
            let chosen = |object: &Option<Value>| object.clone().filter(|object| chosen(request, object));
            let (kind, object) = match (chosen(&change.before), chosen(&change.after)) {
                (None, Some(new)) => ("ADDED", new),
                (Some(_), Some(new)) => ("MODIFIED", new),
                (Some(old), None) => {
                    let mut last = change.after.clone().unwrap_or(old);
                    last["metadata"]["resourceVersion"] = json!(change.version.to_string());
                    ("DELETED", last)
                }
                (None, None) => return None,
            };
            let object = if request.is_metadata_only { metadata_of(&object) } else { object };
            Some(json!({"type": kind, "object": object}))
        });
        (events.collect(), self.version)
    }

    /// The version of all that it keeps.
    pub(super) fn version(&self) -> u64 {
        self.version
    }
}

/// The verb of a request that changes something.
fn verb(request: &ModelRequest) -> Result<Verb, Answer> {
    match request.method {
        Method::POST => Ok(Verb::Create),
        Method::PUT => Ok(Verb::Update),
        Method::PATCH if request.content_type.contains("apply-patch") => Ok(Verb::Apply),
        Method::PATCH => Ok(Verb::Patch),
        Method::DELETE if Place::parse(&request.path).is_some_and(|place| place.name.is_some()) => Ok(Verb::Delete),
        _ => Err(refused(405, &format!("the model does not know {} {}", request.method, request.path))),
    }
}

/// A new object, as its creation makes it.
fn created(name: &str, body: Value, writer: Writer<'_>) -> Value {
    let mut after = body;
    if let Some(members) = after.as_object_mut() {
        members.remove("status");
    }
    after["metadata"]["name"] = json!(name);
    fields::update(&json!({}), &mut after, writer);
    after
}

/// An object after a server-side apply, which makes it if it is not there.
fn applied(
    name: &str,
    body: &Value,
    known: Option<&Value>,
    writer: Writer<'_>,
    is_forced: bool,
) -> Result<Value, Answer> {
    let mut after = match known {
        Some(known) => {
            check(known, body)?;
            known.clone()
        }
        None if body.pointer("/metadata/uid").is_some() => {
            return Err(refused(409, "Precondition failed: UID in precondition, but there is no object"));
        }
        None => json!({"apiVersion": body["apiVersion"], "kind": body["kind"], "metadata": {"name": name}}),
    };
    fields::apply(&mut after, body, writer, is_forced).map_err(|conflicts| field_conflict(name, &conflicts))?;
    Ok(after)
}

fn patched(object: &mut Value, body: &Value, content_type: &str) -> Result<(), Answer> {
    match content_type {
        kind if kind.contains("merge-patch") && !kind.contains("strategic") => json_patch::merge(object, body),
        kind if kind.contains("json-patch") => {
            let operations = body.as_array().into_iter().flatten();
            let is_absent = |operation: &&Value| {
                let path = operation["path"].as_str().unwrap_or_default();
                operation["op"] == "test" && operation["value"].is_null() && object.pointer(path).is_none()
            };
            // The API server finds that what is absent is null, whereas the crate finds no such path.
            let operations: Value = operations.filter(|operation| !is_absent(operation)).cloned().collect();
            let patch: json_patch::Patch =
                serde_json::from_value(operations).map_err(|error| refused(400, &error.to_string()))?;
            json_patch::patch(object, &patch).map_err(|error| refused(422, &error.to_string()))?;
        }
        other => return Err(refused(415, &format!("the model does not know patches of the type {other}"))),
    }
    Ok(())
}

/// Leaves of a write what its place may change: the status through the subresource, all else without it.
fn part_of_place(place: &Place, before: &Value, written: Value) -> Value {
    let (mut after, other) = match place.subresource.as_deref() {
        Some("status") => (before.clone(), written),
        _ => (written, before.clone()),
    };
    match other.get("status") {
        Some(status) => after["status"] = status.clone(),
        None => {
            if let Some(members) = after.as_object_mut() {
                members.remove("status");
            }
        }
    }
    after
}

/// Refuses a write that names another uid or version than the object has.
fn check(object: &Value, written: &Value) -> Result<(), Answer> {
    for field in ["uid", "resourceVersion"] {
        let wanted = &written["metadata"][field];
        if !wanted.is_null() && *wanted != object["metadata"][field] {
            return Err(refused(
                409,
                &format!("the object has been modified: {field} is {}", object["metadata"][field]),
            ));
        }
    }
    Ok(())
}

/// The part of an object that tells two states apart.
fn comparable(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for decided in ["resourceVersion", "generation", "namespace"] {
            metadata.remove(decided);
        }
    }
    object
}

fn has_finalizers(object: &Value) -> bool {
    object.pointer("/metadata/finalizers").and_then(Value::as_array).is_some_and(|finalizers| !finalizers.is_empty())
}

fn chosen(request: &ModelRequest, object: &Value) -> bool {
    let parameter = |name: &str| request.query.get(name).map_or("", String::as_str);
    selector::labels(parameter("labelSelector"), object) && selector::fields(parameter("fieldSelector"), object)
}

fn text(object: &Value, pointer: &str) -> Option<String> {
    object.pointer(pointer)?.as_str().map(ToOwned::to_owned)
}

fn metadata_of(object: &Value) -> Value {
    if object.get("metadata").is_none() || object["kind"] == "Status" {
        return object.clone();
    }
    json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": object["metadata"]})
}

fn not_found(place: &Place, name: &str) -> Answer {
    refused(404, &format!("{} \"{name}\" not found", place.resource.plural))
}

fn field_conflict(name: &str, conflicts: &[String]) -> Answer {
    let mut answer = refused(409, &format!("Apply failed for {name}: {}", conflicts.join("; ")));
    let causes = conflicts.iter().map(|conflict| {
        let field = conflict.split(' ').next().unwrap_or_default();
        json!({"reason": "FieldManagerConflict", "message": conflict, "field": field})
    });
    answer.1["details"] = json!({"name": name, "causes": causes.collect::<Vec<_>>()});
    answer
}

/// A refusal in the form of the API server.
pub(super) fn refused(code: u16, message: &str) -> Answer {
    let reason = match code {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        405 => "MethodNotAllowed",
        409 if message.ends_with("already exists") => "AlreadyExists",
        409 => "Conflict",
        410 => "Gone",
        415 => "UnsupportedMediaType",
        422 => "Invalid",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        _ => "InternalError",
    };
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "reason": reason, "message": message,
        "code": code,
    });
    (StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), status)
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
