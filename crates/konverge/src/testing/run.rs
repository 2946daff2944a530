//! One run of a reconciler against a model of an API server.

use std::{collections::BTreeSet, fmt};

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::events::v1::Event;
use konverge_apply::{Applier, ApplyError, Conditions, DesiredSet, Owner, SetError, Writable, events::EventSink};
use konverge_core::error::{Classify, ErrorClass, in_one_line};
use konverge_runtime::{
    Action, Manager, Metrics, Reconciler, Request,
    lease::{Elector, LeaseOptions},
    object::{Object, ObjectKey, Scope},
};
use kube::{Resource, ResourceExt, core::object::HasStatus};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    api::ApiModel,
    fields::TIME,
    model::{Id, Resource as Plural},
    write::Write,
};
use crate::{
    controller::Controller,
    flags::Flags,
    options::Options,
    owned::Child,
    reconcile::Reconcile,
    run,
    setup::{Settings, Setup},
    start_error::StartError,
};

/// The program, and with it the field manager, of every run.
const PROGRAM: &str = "konverge-test";

/// One run of a controller for one object, against an [`ApiModel`] that holds this object and what the test adds.
///
/// The run is the one of production: it lists and decodes into caches, sets the finalizer, calls the reconciler, applies and prunes children, and
/// writes the status and events. There is no queue, no time limit, no election, and no trigger. See [`ApiModel`] for what the model does
/// not do.
///
/// ```
/// use konverge::{prelude::*, testing::TestRun};
/// # #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
/// # #[kube(group = "example.io", version = "v1", kind = "Greeting", namespaced, status = "Status")]
/// # struct GreetingSpec { text: String }
/// # fn controller() -> Controller<Greeting, impl Reconcile<Greeting>> {
/// #     let reconcile = async |greeting: Arc<Greeting>, context: Context<Greeting>| {
/// #         let mut child = ConfigMap::default();
/// #         child.metadata.name = Some(greeting.name_any());
/// #         child.data = Some([("text".to_owned(), greeting.spec.text.clone())].into());
/// #         context.children().with(child).apply().await?;
/// #         Ok::<_, Error>(Action::Done)
/// #     };
/// #     Controller::new(reconcile_fn(reconcile)).owns::<ConfigMap>()
/// # }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), konverge::testing::TestError> {
/// let greeting = Greeting::new("first", GreetingSpec { text: "hello".to_owned() });
/// let run = TestRun::new(greeting).apply(controller()).await?;
/// assert_eq!(run.writes(), ["apply ConfigMap default/first", "apply Greeting default/first status"]);
/// assert_eq!(run.writes()[0].body["data"]["text"], "hello");
/// assert!(run.conditions().is_true("Ready"));
///
/// // A second run finds all as it should be, and sends nothing.
/// let run = run.then().apply(controller()).await?;
/// assert_eq!(run.writes(), [""; 0]);
///
/// // What others change is mended.
/// let run = run.then().change::<ConfigMap>("first", |child| child.data = None).apply(controller()).await?;
/// assert_eq!(run.writes(), ["apply ConfigMap default/first"]);
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing runs before `apply`"]
pub struct TestRun<K: Object> {
    api: ApiModel,
    kind: K::DynamicType,
    key: ObjectKey,
    attempt: u32,
    reasons: BTreeSet<&'static str>,
    options: Options,
    flags: Flags,
    has_lost_lease: bool,
    children: Vec<MakeChild>,
    /// The first mistake of the test, which `apply` returns.
    mistake: Option<TestError>,
}

/// Makes a child of the object, as an earlier run would have.
type MakeChild = Box<dyn FnOnce(Owner, Applier, ApiModel) -> BoxFuture<'static, Result<(), SetError>> + Send>;

/// A run could not begin. A reconcile that fails is no such error; see [`Ran::error`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TestError {
    /// The controller cannot be put into a program.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The object is not one that can have children.
    #[error("the object of the test cannot own children")]
    Owner(#[source] ApplyError),
    /// The children of an earlier run could not be made.
    #[error("cannot make the children of an earlier run")]
    Children(#[from] SetError),
    /// An object of the test cannot be written or read as its kind.
    #[error("an object of the test is not what its kind says")]
    Object(#[from] serde_json::Error),
    /// The test changes or deletes an object that does not exist.
    #[error("the test changes {kind} {name}, which does not exist; check its name, or add it with `seeing`")]
    Missing {
        /// The kind of the object.
        kind: String,
        /// The name of the object, after its namespace if it has one.
        name: String,
    },
}

impl<K: Object + Writable + Resource<DynamicType = ()>> TestRun<K> {
    /// A run for this object. An object of a namespaced kind that has no namespace is in `default`.
    pub fn new(object: K) -> Self {
        Self::dynamic((), object)
    }
}

impl<K: Object + Writable> TestRun<K> {
    /// A run for an object of a kind that is known only at run time.
    pub fn dynamic(kind: K::DynamicType, mut object: K) -> Self {
        if object.meta().namespace.is_none() && K::Scope::IS_NAMESPACED {
            object.meta_mut().namespace = Some("default".to_owned());
        }
        let key = ObjectKey { namespace: object.meta().namespace.clone(), name: object.name_any() };
        let api = ApiModel::default();
        let mistake = put(&api, &kind, &key, &object).err();
        Self {
            api,
            kind,
            key,
            attempt: 1,
            reasons: ["created"].into(),
            options: Options::default(),
            flags: Flags::default(),
            has_lost_lease: false,
            children: Vec::new(),
            mistake,
        }
    }

    /// Another object that is in the cluster, such as one that the controller watches. Without a namespace it is in that of the object.
    pub fn seeing<O: Object + Writable + Resource<DynamicType = ()>>(self, object: O) -> Self {
        self.seeing_dynamic((), object)
    }

    /// [`seeing`](Self::seeing) for an object of a kind that is known only at run time.
    #[expect(clippy::needless_pass_by_value, reason = "a test makes both in place, as with the methods beside it")]
    pub fn seeing_dynamic<O: Object + Writable>(self, kind: O::DynamicType, object: O) -> Self {
        let key = self.key_of(&object);
        let result = put(&self.api, &kind, &key, &object);
        self.noting(result)
    }

    /// A child that an earlier run has made, with its status if it has one.
    pub fn with_child<C: Child>(mut self, child: C) -> Self {
        let key = self.key_of(&child);
        let status = match serde_json::to_value(&child) {
            Ok(mut child) => child["status"].take(),
            Err(error) => return self.noting(Err(error.into())),
        };
        self.children.push(Box::new(move |owner, applier, api| {
            async move {
                DesiredSet::new(owner).add(child).apply(&applier).await?;
                let id = id::<C>(&(), &key);
                api.change(|model| {
                    if let Some(mut object) = model.object(&id).cloned().filter(|_| !status.is_null()) {
                        object["status"] = status;
                        model.put(id, object);
                    }
                });
                Ok(())
            }
            .boxed()
        }));
        self
    }

    /// The cluster has no definition of this kind.
    pub fn without_kind<O: Resource<DynamicType = ()>>(self) -> Self {
        self.api.change(|model| model.forget_kind(plural::<O>(&())));
        self
    }

    /// Someone else changes an object of this name. A name without a namespace is one in the namespace of the object. If the object does not
    /// exist, [`apply`](Self::apply) returns [`TestError::Missing`].
    pub fn change<O>(self, name: &str, change: impl FnOnce(&mut O)) -> Self
    where
        O: Object + Writable + Resource<DynamicType = ()>,
    {
        let key = self.named::<O>(name);
        let id = id::<O>(&(), &key);
        let changed = find::<O>(&self.api, &(), &key).and_then(|found| {
            let mut object = O::deserialize(found)?;
            change(&mut object);
            Ok(json_of(&(), &key, &object)?)
        });
        let result =
            changed.map(|object| self.api.change(|model| model.edit(id, object, O::api_version(&()).as_ref())));
        self.noting(result)
    }

    /// Someone else deletes the object of this name, as [`change`](Self::change) finds it.
    pub fn remove<O: Object + Writable + Resource<DynamicType = ()>>(self, name: &str) -> Self {
        self.change::<O>(name, |object| {
            object.meta_mut().deletion_timestamp = deletion_time();
        })
    }

    /// A user deletes the object itself. It stays until its finalizers are gone.
    pub fn deleted(self) -> Self {
        let id = id::<K>(&self.kind, &self.key);
        let result = find::<K>(&self.api, &self.kind, &self.key).map(|mut object| {
            object["metadata"]["deletionTimestamp"] = json!(TIME);
            self.api.change(|model| model.put(id, object));
        });
        self.noting(result)
    }

    /// Answers each write for which `refuse` returns a status code with that code, such as 403 or 500, and does not carry it out.
    pub fn refusing(self, refuse: impl Fn(&Write) -> Option<u16> + Send + 'static) -> Self {
        self.api.model().refuse.push(Box::new(refuse));
        self
    }

    /// Sets the number of the attempt that the reconciler sees. The default is 1.
    pub fn attempt(self, attempt: u32) -> Self {
        Self { attempt, ..self }
    }

    /// Sets the reason of the run that the reconciler sees. The default is `created`.
    pub fn reasons(self, reasons: impl IntoIterator<Item = &'static str>) -> Self {
        Self { reasons: reasons.into_iter().collect(), ..self }
    }

    /// Sets the settings of the program. The default is those of a program without flags.
    pub fn options(self, options: Options) -> Self {
        Self { options, ..self }
    }

    /// Values of the flags that the program declares; see [`Operator::flags`](crate::Operator::flags).
    pub fn flags<F: Send + Sync + 'static>(mut self, values: F) -> Self {
        self.flags.set(values);
        self
    }

    /// A run whose process has lost its lease: [`Context::check_lease`](crate::Context::check_lease) fails, and so does each write.
    pub fn without_lease(self) -> Self {
        Self { has_lost_lease: true, ..self }
    }

    /// Runs the controller once for the object.
    pub fn apply<R: Reconcile<K>>(
        self,
        controller: Controller<K, R>,
    ) -> impl Future<Output = Result<Ran<K>, TestError>> {
        // Boxed, since it is as large as the author's future and would lie within those of the test.
        Box::pin(self.run(controller))
    }

    async fn run<R: Reconcile<K>>(self, controller: Controller<K, R>) -> Result<Ran<K>, TestError> {
        let Self { api, kind, key, attempt, reasons, options, flags, has_lost_lease, children, mistake } = self;
        if let Some(mistake) = mistake {
            return Err(mistake);
        }
        let mut client = api.client();
        if !children.is_empty() {
            let object = find::<K>(&api, &kind, &key)?;
            let owner = Owner::of_kind(&K::deserialize(object)?, &kind).map_err(TestError::Owner)?;
            for make in children {
                make(owner.clone(), Applier::new(client.clone(), PROGRAM), api.clone()).await?;
            }
        }
        api.model().writes.clear();
        let manager = Manager::new(Metrics::new(PROGRAM, "0"));
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (events, publish) = EventSink::new(client.clone(), PROGRAM, stopped.map(|_| ()));
        // An elector that never runs never leads.
        let lost =
            has_lost_lease.then(|| Elector::new(client.clone(), LeaseOptions::new("default", PROGRAM)).leadership());
        if let Some(leadership) = &lost {
            client = leadership.gate(client);
        }
        let mut setup = Setup::new(PROGRAM, manager, client, events, Settings { options, flags });
        if let Some(leadership) = lost {
            setup.set_leadership(leadership);
        }
        let prepared = run::prepare(controller, &mut setup)?;
        let watches = setup.caches.run();
        let request = Request::new(key.clone(), reasons, attempt);
        let (engine, synced) = (prepared.engine, prepared.synced);
        let reconcile = async {
            synced.await;
            let result = engine.reconcile(request).await;
            drop(stop);
            result.map_err(|error| Failed {
                reason: error.reason(),
                message: in_one_line(&error),
                class: error.class(),
            })
        };
        let working = async { tokio::join!(reconcile, publish).0 };
        // Watches never end by themselves.
        let result = tokio::select! {
            result = working => result,
            () = async { watches.await; std::future::pending().await } => unreachable!("watches never end"),
        };
        let writes = std::mem::take(&mut api.model().writes);
        let (events, writes): (Vec<_>, Vec<_>) = writes.into_iter().partition(Write::is_event);
        let events = events.into_iter().filter_map(|write| serde_json::from_value(write.body).ok()).collect();
        Ok(Ran { api, kind, key, result, writes, events })
    }

    /// The key of an object that is in the namespace of the test's object unless it says another.
    fn key_of<O: Object>(&self, object: &O) -> ObjectKey {
        let namespace = object.meta().namespace.clone().or_else(|| self.key.namespace.clone());
        ObjectKey { namespace: namespace.filter(|_| O::Scope::IS_NAMESPACED), name: object.name_any() }
    }

    fn named<O: Object>(&self, name: &str) -> ObjectKey {
        named::<O>(&self.key, name)
    }

    /// Keeps the first mistake for `apply`.
    fn noting(mut self, result: Result<(), TestError>) -> Self {
        self.mistake = self.mistake.or(result.err());
        self
    }
}

/// Why a reconcile failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failed {
    /// The reason, as conditions, events and metrics have it.
    pub reason: &'static str,
    /// The error and its causes, in one line.
    pub message: String,
    /// When another attempt makes sense.
    pub class: ErrorClass,
}

impl fmt::Display for Failed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.reason, self.message)
    }
}

/// A run that is over, and the cluster as it left it.
#[derive(Debug)]
pub struct Ran<K: Object> {
    api: ApiModel,
    kind: K::DynamicType,
    key: ObjectKey,
    result: Result<Action, Failed>,
    writes: Vec<Write>,
    events: Vec<Event>,
}

impl<K: Object + Writable> Ran<K> {
    /// When the object is looked at again, or why the run failed.
    pub fn action(&self) -> Result<Action, &Failed> {
        self.result.as_ref().copied()
    }

    /// Returns the error of the run, or `None` if it succeeded.
    pub fn error(&self) -> Option<&Failed> {
        self.result.as_ref().err()
    }

    /// The writes that the run sent, in order, without events. A write equals its text: `["apply ConfigMap shop/first"]`.
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// The events that the run sent.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Returns the object as it is now, or `None` if it is gone.
    pub fn object(&self) -> Option<K> {
        K::deserialize(self.json()).ok()
    }

    /// The status of the object as it is now.
    pub fn status(&self) -> Option<K::Status>
    where
        K: HasStatus,
        K::Status: Clone,
    {
        self.object().and_then(|object| object.status().cloned())
    }

    /// The conditions of the object as it is now; none if its status has none.
    pub fn conditions(&self) -> Conditions {
        let conditions = self.json().pointer("/status/conditions").cloned().unwrap_or_default();
        serde_json::from_value(conditions).unwrap_or_default()
    }

    /// The object of another kind that has this name now. A name without a namespace is one in the namespace of the object.
    pub fn get<O: Object + DeserializeOwned + Resource<DynamicType = ()>>(&self, name: &str) -> Option<O> {
        let id = id::<O>(&(), &named::<O>(&self.key, name));
        self.api.model().object(&id).and_then(|object| O::deserialize(object).ok())
    }

    /// Another run of the same cluster, with caches that are filled anew, as after a restart of the program.
    pub fn then(self) -> TestRun<K> {
        let Self { api, kind, key, .. } = self;
        api.model().refuse.clear();
        let (attempt, reasons) = (1, ["changed"].into());
        TestRun {
            api,
            kind,
            key,
            attempt,
            reasons,
            options: Options::default(),
            flags: Flags::default(),
            has_lost_lease: false,
            children: Vec::new(),
            mistake: None,
        }
    }

    fn json(&self) -> Value {
        self.api.model().object(&id::<K>(&self.kind, &self.key)).cloned().unwrap_or_default()
    }
}

fn plural<O: Resource>(kind: &O::DynamicType) -> Plural {
    Plural { group: O::group(kind).into_owned(), plural: O::plural(kind).into_owned() }
}

fn id<O: Resource>(kind: &O::DynamicType, key: &ObjectKey) -> Id {
    Id { resource: plural::<O>(kind), namespace: key.namespace.clone(), name: key.name.clone() }
}

/// Reads a name as `kubectl` shows it: `name` or `namespace/name`.
fn named<O: Object>(home: &ObjectKey, name: &str) -> ObjectKey {
    let (namespace, name) = match name.split_once('/') {
        Some((namespace, name)) => (Some(namespace.to_owned()), name),
        None => (home.namespace.clone(), name),
    };
    ObjectKey { namespace: namespace.filter(|_| O::Scope::IS_NAMESPACED), name: name.to_owned() }
}

/// Returns the object from the model.
fn find<O: Object>(api: &ApiModel, kind: &O::DynamicType, key: &ObjectKey) -> Result<Value, TestError> {
    let found = api.model().object(&id::<O>(kind, key)).cloned();
    found.ok_or_else(|| TestError::Missing { kind: O::kind(kind).into_owned(), name: key.to_string() })
}

/// Puts an object into the model.
fn put<O: Object + Serialize>(
    api: &ApiModel,
    kind: &O::DynamicType,
    key: &ObjectKey,
    object: &O,
) -> Result<(), TestError> {
    let object = json_of(kind, key, object)?;
    api.change(|model| model.put(id::<O>(kind, key), object));
    Ok(())
}

fn json_of<O: Object + Serialize>(
    kind: &O::DynamicType,
    key: &ObjectKey,
    object: &O,
) -> Result<Value, serde_json::Error> {
    let mut object = serde_json::to_value(object)?;
    object["apiVersion"] = json!(O::api_version(kind));
    object["kind"] = json!(O::kind(kind));
    object["metadata"]["name"] = json!(key.name);
    Ok(object)
}

fn deletion_time() -> Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time> {
    serde_json::from_value(json!(TIME)).ok()
}
