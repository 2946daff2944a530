//! The way to the API server: a person's own, with what their kubeconfig says.

use std::{fmt, time::Duration};

use futures::{StreamExt, future::ready, stream::BoxStream};
use k8s_openapi::api::core::v1::ConfigMap;
use konverge_core::error::in_one_line;
use konverge_runtime::{client::DeadlineLayer, object::Scope};
use kube::{
    Api, Client, Config,
    api::{ListParams, Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::{DynamicObject, DynamicResourceScope, PartialObjectMeta, TypeMeta},
    runtime::{
        utils::StreamBackoff,
        watcher::{self, DefaultBackoff},
    },
};
use serde_json::{Value, json};

use crate::{Detail, Failure, Kind, arguments::Connection, target::One};

/// Objects in one answer.
const PAGE: u32 = 500;

/// The connection timeout. It is short, so that an unreachable cluster is reported soon.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// The time limit for a response to begin.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// The field manager of the annotations.
const FIELD_MANAGER: &str = "kubectl-konverge";

/// A cluster, and the namespace that is meant where none is named.
#[derive(Clone)]
pub struct Cluster {
    /// The client. An answer that has not begun within half a minute is an error.
    pub client: Client,
    /// The namespace.
    pub namespace: String,
}

impl Cluster {
    /// Creates the client for the cluster of the command line. Sends no request.
    pub(crate) async fn of(connection: &Connection) -> Result<Self, Failure> {
        let failed = |error: &dyn std::error::Error| {
            Failure::Failed(format!(
                "found no cluster: {}; name a kubeconfig with --kubeconfig or KUBECONFIG, and a context of it with --context",
                in_one_line(error)
            ))
        };
        let options = KubeConfigOptions { context: connection.context.clone(), ..KubeConfigOptions::default() };
        let mut config = match &connection.kubeconfig {
            Some(path) => {
                let kubeconfig = Kubeconfig::read_from(path).map_err(|error| failed(&error))?;
                Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|error| failed(&error))?
            }
            // Within a pod there is no kubeconfig.
            None if connection.context.is_none() => Config::infer().await.map_err(|error| failed(&error))?,
            None => Config::from_kubeconfig(&options).await.map_err(|error| failed(&error))?,
        };
        if connection.user.is_some() {
            config.auth_info.impersonate.clone_from(&connection.user);
            config.auth_info.impersonate_groups = Some(connection.groups.clone()).filter(|groups| !groups.is_empty());
        }
        config.connect_timeout = Some(CONNECT_WITHIN);
        config.default_retry = false;
        let namespace = connection.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let builder = konverge_runtime::client::builder(config).map_err(|error| failed(&error))?;
        let client = builder.with_layer(&DeadlineLayer(ANSWER_WITHIN)).build();
        Ok(Self { client, namespace })
    }

    /// Objects of a kind, in one namespace or in all. A kind without namespaces has all of its objects in each of them.
    pub fn api(&self, kind: &Kind, namespace: Option<&str>) -> Api<DynamicObject> {
        let namespace = namespace.filter(|_| kind.is_namespaced);
        DynamicResourceScope::api(self.client.clone(), &kind.resource, namespace)
    }

    /// An object of the cluster's namespace, as much of it as its kind shows.
    pub(crate) async fn get(&self, one: &One) -> Result<DynamicObject, Failure> {
        let api = self.api(&one.kind, Some(&self.namespace));
        let found = async {
            match one.kind.detail {
                Detail::Metadata => api
                    .get_metadata_opt(&one.name)
                    .await
                    .map(|found| found.map(|object| with_metadata(&one.kind, object))),
                Detail::Whole => api.get_opt(&one.name).await,
            }
        };
        let place = one.kind.place(&self.namespace);
        let found = request(format!("get {one}{place}"), found).await?;
        let next = if one.kind.is_namespaced { "; name another one with -n" } else { "" };
        found.ok_or_else(|| Failure::Failed(format!("there is no {one}{place}{next}")))
    }

    /// All objects of a kind, page by page, each as much as the kind shows. A kind that the cluster does not know has none.
    pub async fn list(&self, kind: &Kind, namespace: Option<&str>) -> Result<Vec<DynamicObject>, Failure> {
        self.list_selected(kind, namespace, None).await
    }

    /// Lists the `ConfigMap`s with this name in one namespace or in all. Operators write there what the plugin shows.
    pub async fn config_maps(&self, name: &str, namespace: Option<&str>) -> Result<Vec<ConfigMap>, Failure> {
        let api: Api<ConfigMap> = match namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        let parameters = ListParams::default().fields(&format!("metadata.name={name}"));
        Ok(request("list config maps", async { api.list(&parameters).await }).await?.items)
    }

    /// Like [`list`](Self::list), but only objects whose labels match the selector.
    pub(crate) async fn list_selected(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        selector: Option<&str>,
    ) -> Result<Vec<DynamicObject>, Failure> {
        let api = self.api(kind, namespace);
        let mut found = Vec::new();
        let mut parameters =
            ListParams { label_selector: selector.map(str::to_owned), ..ListParams::default() }.limit(PAGE);
        loop {
            let page = async {
                match kind.detail {
                    Detail::Metadata => {
                        let page = api.list_metadata(&parameters).await?;
                        let objects = page.items.into_iter().map(|object| with_metadata(kind, object));
                        Ok((objects.collect::<Vec<_>>(), page.metadata.continue_))
                    }
                    Detail::Whole => api.list(&parameters).await.map(|page| (page.items, page.metadata.continue_)),
                }
            };
            match page.await {
                Err(kube::Error::Api(status)) if status.code == 404 && found.is_empty() => return Ok(found),
                Err(error) => {
                    return Err(Failure::of(
                        &format!("list {}{}", kind.resource.plural, of_namespace(namespace)),
                        &error,
                    ));
                }
                Ok((objects, next)) => {
                    found.extend(objects);
                    parameters.continue_token = next.filter(|token| !token.is_empty());
                }
            }
            if parameters.continue_token.is_none() {
                return Ok(found);
            }
        }
    }

    /// Sets annotations of just this object, or removes those that are `null`.
    pub(crate) async fn annotate(&self, one: &One, object: &DynamicObject, annotations: &Value) -> Result<(), Failure> {
        let patch = json!({ "metadata": { "uid": object.metadata.uid, "annotations": annotations } });
        let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let api = self.api(&one.kind, Some(&self.namespace));
        let patched = async { api.patch_metadata(&one.name, &parameters, &Patch::Merge(&patch)).await };
        request(format!("annotate {one}{}", one.kind.place(&self.namespace)), patched).await.map(drop)
    }

    /// The object as it is and as it becomes; nothing when it is gone. A watch that cannot continue ends with an error.
    pub(crate) fn follow(&self, one: &One) -> BoxStream<'static, Result<Option<DynamicObject>, watcher::Error>> {
        let config = watcher::Config::default().fields(&format!("metadata.name={}", one.name));
        self.watched(&one.kind, Some(&self.namespace), config)
    }

    /// The objects of a kind as they are and as they become, without those that are gone. A watch that fails reports that and begins again, with
    /// growing pauses.
    pub(crate) fn follow_all(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        name: Option<&str>,
        selector: Option<&str>,
    ) -> BoxStream<'static, Result<DynamicObject, watcher::Error>> {
        let config = watcher::Config {
            label_selector: selector.map(str::to_owned),
            field_selector: name.map(|name| format!("metadata.name={name}")),
            ..watcher::Config::default()
        };
        let events = self.watched(kind, namespace, config);
        let events = StreamBackoff::new(events, DefaultBackoff::default());
        events.filter_map(|object| ready(object.transpose())).boxed()
    }

    fn watched(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        config: watcher::Config,
    ) -> BoxStream<'static, Result<Option<DynamicObject>, watcher::Error>> {
        let kind = kind.clone();
        match kind.detail {
            Detail::Metadata => {
                let api: Api<PartialObjectMeta<DynamicObject>> =
                    DynamicResourceScope::api(self.client.clone(), &kind.resource, namespace);
                let observed =
                    move |event| observed(event).map(|object| object.map(|object| with_metadata(&kind, object)));
                watcher::watcher(api, config).filter_map(move |event| ready(event.map(&observed).transpose())).boxed()
            }
            Detail::Whole => {
                let api = self.api(&kind, namespace);
                watcher::watcher(api, config).filter_map(|event| ready(event.map(observed).transpose())).boxed()
            }
        }
    }
}

/// ` in namespace shop`, or nothing.
pub(crate) fn of_namespace(namespace: Option<&str>) -> String {
    namespace.map(|namespace| format!(" in namespace {namespace}")).unwrap_or_default()
}

#[allow(clippy::option_option, reason = "an event that tells nothing, an object that is gone, and an object")]
fn observed<K>(event: watcher::Event<K>) -> Option<Option<K>> {
    match event {
        watcher::Event::Apply(object) | watcher::Event::InitApply(object) => Some(Some(object)),
        watcher::Event::Delete(_) => Some(None),
        watcher::Event::Init | watcher::Event::InitDone => None,
    }
}

/// Returns `true` if a watch failed because the cluster does not serve the kind.
pub(crate) fn is_unknown(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404)
}

fn with_metadata(kind: &Kind, object: PartialObjectMeta<DynamicObject>) -> DynamicObject {
    let types = TypeMeta { api_version: kind.resource.api_version.clone(), kind: kind.resource.kind.clone() };
    DynamicObject { types: Some(types), metadata: object.metadata, data: Value::Null }
}

/// The response of the API server to a request.
pub(crate) async fn request<T>(
    act: impl fmt::Display,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Failure> {
    call.await.map_err(|error| Failure::of(&act.to_string(), &error))
}
