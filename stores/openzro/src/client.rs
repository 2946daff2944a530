//! The calls.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant as Clock, SystemTime},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use konverge_core::SecretValue;
use konverge_endpoint::{ClientSettings, Clients, Credential, Gate, Limits, NotSent, Outcome, address, retry_after};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, value::RawValue};
use tokio::time::Instant;
use url::Url;

use crate::{
    answer::{Answer, RequestDescription},
    config::{CallObserver, CallRecord, OpenZroConfig},
    error::{Cause, Effect, OpenZroError},
    object::{Fields, Object, unreadable},
    place::{Collection, Place},
};

/// The token, as errors name it.
const TOKEN: &str = "openZro personal access token";

/// An openZro account, by one token. Clones share connections and limits.
///
/// Nothing is sent before the first call. Each call ends within [`Limits::deadline`].
#[derive(Clone)]
pub struct OpenZro(Arc<Shared>);

struct Shared {
    base: Url,
    address: Arc<str>,
    token: Credential,
    clients: Clients,
    gate: Gate,
    observer: Option<CallObserver>,
}

/// The object that a POST created. `Debug` does not show the secret.
pub struct Created {
    /// The object, without its secret.
    pub object: Object,
    /// The setup key or the personal access token. No later answer has it.
    pub secret: Option<SecretValue>,
}

impl fmt::Debug for Created {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Created").field("object", &self.object).finish_non_exhaustive()
    }
}

/// How a [`OpenZro::modify`] ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Modified {
    /// The object was as wanted, so nothing was written.
    Unchanged(Object),
    /// The object after the write.
    Written(Object),
}

/// How a deletion ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deletion {
    /// The object was deleted.
    Deleted,
    /// The API says that there was no such object.
    Absent,
}

/// Collections that only some versions of the server have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Feature {
    /// DNS zones and records.
    Zones,
    /// Reverse-proxy services.
    Services,
}

/// Why an exchange gave no answer.
enum Broken {
    /// It was never sent.
    Unusable(konverge_endpoint::Unusable),
    /// No connection was made.
    Connect(String),
    /// The connection broke, or the answer is too large.
    Midway(String),
}

struct Call {
    method: Method,
    url: Url,
    route: &'static str,
    body: Option<Bytes>,
    what: String,
}

impl OpenZro {
    /// A client.
    pub fn new(config: &OpenZroConfig) -> Self {
        let shown = address::shown(&config.address);
        Self(Arc::new(Shared {
            base: config.address.clone(),
            address: shown.trim_end_matches("/api/").into(),
            token: config.token.clone(),
            clients: Clients::new(
                ClientSettings::new("openZro", concat!("konverge-openzro/", env!("CARGO_PKG_VERSION"))).with(
                    |settings| {
                        settings.tls.clone_from(&config.tls);
                        settings.proxy.clone_from(&config.proxy);
                        settings.connect = config.limits.connect;
                    },
                ),
            ),
            gate: Gate::new(config.limits),
            observer: config.observer.clone(),
        }))
    }

    /// The server's address, without `/api`.
    pub fn address(&self) -> &str {
        &self.0.address
    }

    /// The limits that it keeps to.
    pub fn limits(&self) -> &Limits {
        self.0.gate.limits()
    }

    /// Returns the last failure while requests are kept back because the server is away, refuses the token or limits the rate. Now and then one request finds out
    /// whether that is over.
    pub fn outage(&self) -> Option<Arc<str>> {
        self.0.gate.outage()
    }

    /// Returns all objects of a collection. The order means nothing.
    pub async fn list(&self, collection: &Collection) -> Result<Vec<Object>, OpenZroError> {
        let objects = self.list_as::<Fields>(collection).await?;
        Ok(objects.into_iter().map(|raw| Object::new(collection.clone(), raw)).collect())
    }

    /// Returns all objects of a collection, each read as `T`, such as one of [`types`](crate::types). The order means nothing.
    ///
    /// Beside the answer itself, it needs memory only for what `T` keeps. [`OpenZro::list`] needs about ten times the answer, and the groups of a large
    /// account with all their peers are several megabytes.
    pub async fn list_as<T: DeserializeOwned>(&self, collection: &Collection) -> Result<Vec<T>, OpenZroError> {
        let what = format!("list {}", collection.route());
        let call = self.call(Method::GET, collection, None, None, what)?;
        let answer = self.send(&call).await?;
        let objects: Option<Vec<&RawValue>> = self.json(&call, &answer)?;
        let objects = objects.unwrap_or_default().into_iter().map(|object| {
            if !object.get().starts_with('{') {
                return Err(self.foreign(&call, "a list of something else than objects"));
            }
            serde_json::from_str(object.get()).map_err(|error| {
                let object = serde_json::from_str::<Value>(object.get()).unwrap_or_default();
                let id = object["id"].as_str().unwrap_or_default();
                unreadable(&collection.place(id), error)
            })
        });
        objects.collect()
    }

    /// Returns the object. That it is absent is an error; [`OpenZro::find`] returns `None` for it.
    pub async fn get(&self, place: &Place) -> Result<Object, OpenZroError> {
        let call = self.call(Method::GET, &place.collection, Some(&place.id), None, format!("get {place}"))?;
        let answer = self.ask(&call).await?;
        self.object(&call, &place.collection, answer)
    }

    /// Returns the object, or `None` if the API itself says that there is none.
    pub async fn find(&self, place: &Place) -> Result<Option<Object>, OpenZroError> {
        match self.get(place).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_absent() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates an object. After an error with [`Effect::Unknown`] it may exist: look for it before the next attempt.
    pub async fn create(&self, collection: &Collection, fields: &Fields) -> Result<Created, OpenZroError> {
        let name = fields.get("name").and_then(Value::as_str).unwrap_or_default();
        let what = format!("create {} {name}", collection.noun());
        let call = self.call(Method::POST, collection, None, Some(fields), what)?;
        let mut answer = self.ask(&call).await?;
        let mut secret = None;
        match collection {
            Collection::SetupKeys => secret = take_setup_key(&mut answer),
            Collection::Tokens { .. } => {
                secret = answer.get_mut("plain_token").map(Value::take).and_then(into_secret);
                answer = answer.get_mut("personal_access_token").map(Value::take).unwrap_or_default();
            }
            _ => {}
        }
        Ok(Created { object: self.object(&call, collection, answer)?, secret })
    }

    /// Reads the object, lets `change` edit its [`Object::writable`] form, and writes it if that changed anything.
    ///
    /// If a policy has several rules, `change` must set the sources of each rule but the first, and not to the list that was read. The server
    /// shows a source group only in the first rule that names it. Otherwise this is an error and nothing is written ([`Cause::HiddenGroups`]).
    /// [`OpenZro::replace`] writes a policy whose content is known otherwise.
    pub async fn modify(&self, place: &Place, change: impl FnOnce(&mut Fields)) -> Result<Modified, OpenZroError> {
        // There is no route for one account.
        let before = if place.collection == Collection::Accounts {
            self.list(&Collection::Accounts).await?.into_iter().find(|account| account.id() == place.id).ok_or_else(
                || OpenZroError {
                    what: format!("get {place}"),
                    effect: Effect::None,
                    cause: Cause::Absent { message: "the token belongs to another account".to_owned() },
                },
            )?
        } else {
            self.get(place).await?
        };
        let mut body = before.writable();
        change(&mut body);
        let read = before.writable();
        if body == read {
            return Ok(Modified::Unchanged(before));
        }
        if place.collection == Collection::Policies && hides_groups(&read, &body) {
            let what = format!("update {place}");
            return Err(OpenZroError { what, effect: Effect::None, cause: Cause::HiddenGroups });
        }
        self.replace(place, &body).await.map(Modified::Written)
    }

    /// Writes the whole object. `body` is the [`Object::writable`] form of what was read a moment ago, with changes: what it lacks, the server
    /// deletes. The place of a router that does not exist is created.
    pub async fn replace(&self, place: &Place, body: &Fields) -> Result<Object, OpenZroError> {
        let call = self.call(Method::PUT, &place.collection, Some(&place.id), Some(body), format!("update {place}"))?;
        let answer = self.ask(&call).await?;
        self.object(&call, &place.collection, answer)
    }

    /// Deletes the object. That it is absent already counts as success.
    pub async fn delete(&self, place: &Place) -> Result<Deletion, OpenZroError> {
        let call = self.call(Method::DELETE, &place.collection, Some(&place.id), None, format!("delete {place}"))?;
        match self.ask(&call).await {
            Ok(_) => Ok(Deletion::Deleted),
            Err(error) if error.is_absent() => Ok(Deletion::Absent),
            Err(error) => Err(error),
        }
    }

    /// Whether the server has a feature.
    pub async fn has(&self, feature: Feature) -> Result<bool, OpenZroError> {
        let call = match feature {
            Feature::Zones => {
                self.call(Method::GET, &Collection::Zones, None, None, "look for DNS zones".to_owned())?
            }
            Feature::Services => {
                let mut url = self.0.base.clone();
                if let Ok(mut segments) = url.path_segments_mut() {
                    segments.pop_if_empty().push("services");
                }
                let what = "look for services".to_owned();
                Call { method: Method::GET, url, route: "/services", body: None, what }
            }
        };
        match self.ask(&call).await {
            Ok(_) => Ok(true),
            Err(OpenZroError { cause: Cause::Unsupported { .. }, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn call(
        &self,
        method: Method,
        collection: &Collection,
        id: Option<&str>,
        body: Option<&Fields>,
        what: String,
    ) -> Result<Call, OpenZroError> {
        let route = collection.route();
        match collection.url(&self.0.base, id) {
            // A map of texts to JSON always becomes JSON.
            Ok(url) => {
                let body = body.map(|body| Bytes::from(serde_json::to_vec(body).unwrap_or_default()));
                Ok(Call { method, url, route, body, what })
            }
            Err(invalid) => Err(OpenZroError { what, effect: Effect::None, cause: invalid.into() }),
        }
    }

    fn object(&self, call: &Call, collection: &Collection, answer: Value) -> Result<Object, OpenZroError> {
        match answer {
            Value::Object(raw) if raw.get("id").is_some_and(|id| id.as_str().is_some_and(|id| !id.is_empty())) => {
                Ok(Object::new(collection.clone(), raw))
            }
            _ => Err(self.foreign(call, "no object with an id")),
        }
    }

    /// A success without the expected content.
    fn foreign(&self, call: &Call, why: &str) -> OpenZroError {
        let effect = if call.method == Method::GET { Effect::None } else { Effect::Unknown };
        let address = Arc::clone(&self.0.address);
        let cause = Cause::Foreign { address, status: 200, why: why.to_owned(), retry_after: None };
        OpenZroError { what: call.what.clone(), effect, cause }
    }

    /// Sends it within the limits, and returns the JSON of a success.
    async fn ask(&self, call: &Call) -> Result<Value, OpenZroError> {
        self.json(call, &self.send(call).await?)
    }

    /// Reads the JSON of a success.
    fn json<'a, T: Deserialize<'a>>(&self, call: &Call, answer: &'a Answer) -> Result<T, OpenZroError> {
        let description = RequestDescription { method: &call.method, address: &self.0.address, route: call.route };
        answer.result(&description).map_err(|(effect, cause)| OpenZroError { what: call.what.clone(), effect, cause })
    }

    /// Sends it within the limits.
    async fn send(&self, call: &Call) -> Result<Answer, OpenZroError> {
        let shared = &self.0;
        let deadline = Instant::now() + self.limits().deadline;
        let unknown = if call.method == Method::GET { Effect::None } else { Effect::Unknown };
        let failed = |effect, cause| Err(OpenZroError { what: call.what.clone(), effect, cause });
        let address = || Arc::clone(&shared.address);
        let timeout = || Cause::Timeout { address: address(), limit: self.limits().deadline };
        match shared.gate.run(deadline, shared.exchange(call), |result| shared.judge(result)).await {
            Err(NotSent::Paused(refusal)) => {
                let (cause, after) = (refusal.cause, refusal.after);
                failed(Effect::None, Cause::Paused { address: address(), cause, after })
            }
            Err(NotSent::Late) => failed(Effect::None, timeout()),
            Ok(None) => {
                shared.observe(call, None, self.limits().deadline);
                failed(unknown, timeout())
            }
            Ok(Some(Err(Broken::Unusable(unusable)))) => failed(Effect::None, unusable.into()),
            Ok(Some(Err(Broken::Connect(cause)))) => {
                failed(Effect::None, Cause::Unreachable { address: address(), cause })
            }
            Ok(Some(Err(Broken::Midway(cause)))) => failed(unknown, Cause::Unreachable { address: address(), cause }),
            Ok(Some(Ok(answer))) => Ok(answer),
        }
    }
}

impl Shared {
    async fn exchange(&self, call: &Call) -> Result<Answer, Broken> {
        let token = self.token.authorization(TOKEN, "Token").await.map_err(Broken::Unusable)?;
        let client = self.clients.get().await.map_err(Broken::Unusable)?;
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, token);
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        let mut request = client.request(call.method.clone(), call.url.clone());
        if let Some(body) = &call.body {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            request = request.body(body.clone());
        }
        let began = Clock::now();
        let answer = async { self.read(request.headers(headers).send().await.map_err(broken)?).await }.await;
        self.observe(call, answer.as_ref().ok().map(|answer| answer.status.as_u16()), began.elapsed());
        answer
    }

    fn observe(&self, call: &Call, status: Option<u16>, took: Duration) {
        if let Some(observer) = &self.observer {
            observer(&CallRecord { method: call.method.clone(), route: call.route, status, took });
        }
    }

    async fn read(&self, mut answer: reqwest::Response) -> Result<Answer, Broken> {
        let limit = self.gate.limits().answer;
        let retry_after = retry_after(answer.headers(), SystemTime::now());
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(|error| Broken::Midway(innermost(&error)))? {
            if body.len() + chunk.len() > limit {
                return Err(Broken::Midway(format!("its answer is larger than the {limit} bytes that are allowed")));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Answer { status: answer.status(), body, retry_after })
    }

    fn judge(&self, result: Option<&Result<Answer, Broken>>) -> Option<Outcome> {
        match result {
            None => Some(Outcome::Late("it does not answer in time".into())),
            Some(Ok(answer)) => Some(answer.outcome()),
            Some(Err(Broken::Unusable(_))) => None,
            Some(Err(Broken::Connect(cause) | Broken::Midway(cause))) => {
                self.clients.doubt();
                Some(Outcome::Failed(cause.as_str().into()))
            }
        }
    }
}

/// Whether a later rule of the new policy still has the sources that were read, which may not be all.
fn hides_groups(read: &Fields, new: &Fields) -> bool {
    let rules = |policy: &Fields| policy.get("rules").and_then(Value::as_array).cloned().unwrap_or_default();
    let new = rules(new);
    let kept = |rule: &Value| {
        let same = new.iter().find(|other| other["id"] == rule["id"] && other["name"] == rule["name"]);
        same.is_some_and(|other| other["sources"] == rule["sources"] && rule.get("sourceResource").is_none())
    };
    rules(read).iter().skip(1).any(kept)
}

fn broken(error: reqwest::Error) -> Broken {
    let error = error.without_url();
    if error.is_connect() { Broken::Connect(innermost(&error)) } else { Broken::Midway(innermost(&error)) }
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// Takes the key out of the answer and leaves the form in which the server shows it from then on.
fn take_setup_key(answer: &mut Value) -> Option<SecretValue> {
    let slot = answer.get_mut("key")?;
    let masked: String = slot.as_str()?.chars().take(5).chain("****".chars()).collect();
    into_secret(std::mem::replace(slot, Value::String(masked)))
}

fn into_secret(value: Value) -> Option<SecretValue> {
    match value {
        Value::String(text) => Some(SecretValue::from(text)),
        _ => None,
    }
}
