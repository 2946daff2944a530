//! Deletions that the API server keeps in their middle.

use std::{
    collections::HashMap,
    convert::Infallible,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::{admissionregistration::v1::ValidatingWebhookConfiguration, core::v1::ConfigMap};
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, ObjectMeta, PostParams},
};
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    task::{JoinError, JoinHandle, JoinSet},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    tls::{self, HTTP_1_1, TlsError},
    wait::{NotInTime, eventually},
};

/// How long the API server may take to heed a new webhook, and to ask it.
const LIMIT: Duration = Duration::from_secs(60);

/// How long the API server waits for a webhook at most.
const LONGEST_HOLD: i32 = 30;

/// A webhook that keeps the API server waiting in the middle of deletions.
///
/// To delete an object, the API server reads it, asks the webhooks, and deletes it. The finalizers that count are those that it read. So a test
/// can add a finalizer that holds nothing (kubernetes/kubernetes issue 77988), at will:
///
/// ```no_run
/// # async fn example(client: kube::Client, kind: kube::api::ApiResource) -> Result<(), Box<dyn std::error::Error>> {
/// use konverge_testkit::HeldDeletions;
///
/// let deletions = HeldDeletions::begin(&client, "shop", &kind).await?;
/// let deletion = deletions.delete("db").await?;
/// // The API server has read the object, and does not look at it again. Let the operator add its finalizer now.
/// deletion.finish().await?;
/// // The object is gone.
/// # Ok(())
/// # }
/// ```
///
/// It needs an API server that reaches this machine, such as that of [`Options::ours`](crate::Options::ours), and a namespace of the test's own.
pub struct HeldDeletions {
    api: Api<DynamicObject>,
    gates: Gates,
    _serving: AbortOnDropHandle<()>,
}

/// A deletion whose object the API server has read and not deleted yet. It waits half a minute at most.
#[must_use = "the API server waits for `finish`"]
pub struct HeldDeletion {
    gate: Gate,
    deletion: JoinHandle<Result<(), kube::Error>>,
}

/// A deletion could not be held.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HoldError {
    /// The system did not let the webhook listen.
    #[error("cannot serve the webhook that holds deletions: {0}")]
    System(#[from] io::Error),
    /// The webhook has no usable certificate.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The API server did not take the webhook, or did not delete the object.
    #[error("cannot hold a deletion: {0}")]
    Client(#[from] kube::Error),
    /// The API server does not ask the webhook.
    #[error("the API server does not ask the webhook that holds deletions: {0}")]
    Unasked(#[from] NotInTime),
    /// The deletion was over before it could be held.
    #[error("{0} was deleted before the webhook was asked")]
    NotHeld(String),
    /// The task that deletes has panicked.
    #[error("cannot delete: {0}")]
    Task(#[from] JoinError),
}

/// One deletion, as the test and the API server see it.
#[derive(Clone, Default)]
struct Gate {
    /// The API server has asked.
    asked: CancellationToken,
    /// The deletion may go on.
    open: CancellationToken,
}

/// The state of the webhook: it lets everything pass but the deletions of these names, each until its gate is open.
#[derive(Clone, Default)]
struct Gates {
    by_name: Arc<Mutex<HashMap<String, Gate>>>,
    /// The API server knows the webhook.
    known: CancellationToken,
}

impl HeldDeletions {
    /// Serves the webhook for a kind in a namespace, and waits until the API server heeds it.
    ///
    /// # Errors
    ///
    /// Returns why the webhook cannot be served or registered, or that the API server does not ask it.
    pub async fn begin(client: &Client, namespace: &str, kind: &ApiResource) -> Result<Self, HoldError> {
        let (tls, authority) = tls::server("konverge-held-deletions", &[HTTP_1_1])?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("https://{}", listener.local_addr()?);
        let gates = Gates::default();
        let serving = AbortOnDropHandle::new(tokio::spawn(accept(listener, tls, gates.clone())));
        let webhook = webhook(namespace, kind, &url, &authority)?;
        Api::<ValidatingWebhookConfiguration>::all(client.clone()).create(&PostParams::default(), &webhook).await?;
        // The rules of a webhook are heeded together, so that a creation that is asked about shows that a deletion would be.
        let config_maps = Api::<ConfigMap>::namespaced(client.clone(), namespace);
        let metadata = ObjectMeta { generate_name: Some("asked-".to_owned()), ..ObjectMeta::default() };
        let probe = ConfigMap { metadata, ..ConfigMap::default() };
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let is_known = || async {
            // A refusal is as good as an answer: only the webhook's own knowledge counts.
            let _ = config_maps.create(&dry_run, &probe).await;
            gates.known.is_cancelled().then_some(())
        };
        eventually(LIMIT, is_known).await?;
        let api = Api::namespaced_with(client.clone(), namespace, kind);
        Ok(Self { api, gates, _serving: serving })
    }

    /// Begins to delete an object. Returns once the API server has read it and waits.
    ///
    /// # Errors
    ///
    /// Returns the error of the deletion, or that it was over before it could be held.
    pub async fn delete(&self, name: &str) -> Result<HeldDeletion, HoldError> {
        let gate = Gate::default();
        self.gates.lock().insert(name.to_owned(), gate.clone());
        let (api, object) = (self.api.clone(), name.to_owned());
        let delete = async move { api.delete(&object, &DeleteParams::default()).await.map(drop) };
        let mut deletion = tokio::spawn(delete);
        tokio::select! {
            () = gate.asked.cancelled() => Ok(HeldDeletion { gate, deletion }),
            ended = &mut deletion => {
                ended??;
                Err(HoldError::NotHeld(name.to_owned()))
            }
        }
    }
}

impl HeldDeletion {
    /// Lets the API server go on, and waits until it has answered.
    ///
    /// # Errors
    ///
    /// Returns the error of the deletion.
    pub async fn finish(self) -> Result<(), HoldError> {
        self.gate.open.cancel();
        Ok(self.deletion.await??)
    }
}

impl Gates {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Gate>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allows what is asked about, a held deletion once it may go on.
    async fn allow(&self, review: &Value) -> Value {
        let asked = &review["request"];
        if asked["operation"] == "DELETE" {
            let gate = asked["name"].as_str().and_then(|name| self.lock().get(name).cloned());
            if let Some(gate) = gate {
                gate.asked.cancel();
                gate.open.cancelled().await;
            }
        } else {
            self.known.cancel();
        }
        let response = json!({ "uid": asked["uid"], "allowed": true });
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response })
    }
}

/// The webhook, which has the name of the namespace and of the kind.
fn webhook(
    namespace: &str,
    kind: &ApiResource,
    url: &str,
    authority: &str,
) -> Result<ValidatingWebhookConfiguration, kube::Error> {
    let rule = |operation: &str, group: &str, version: &str, resource: &str| {
        let (operations, groups, versions, resources) = ([operation], [group], [version], [resource]);
        json!({ "operations": operations, "apiGroups": groups, "apiVersions": versions, "resources": resources })
    };
    let rules = [rule("DELETE", &kind.group, &kind.version, &kind.plural), rule("CREATE", "", "v1", "configmaps")];
    let configuration = json!({
        "metadata": { "name": format!("{}.{namespace}", kind.plural) },
        "webhooks": [{
            "name": "held-deletions.test.konverge.dev",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "timeoutSeconds": LONGEST_HOLD,
            "clientConfig": { "url": url, "caBundle": STANDARD.encode(authority) },
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": namespace } },
            "rules": rules,
        }],
    });
    serde_json::from_value(configuration).map_err(kube::Error::SerdeError)
}

async fn accept(listener: TcpListener, tls: TlsAcceptor, gates: Gates) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, gates) = (tls.clone(), gates.clone());
        connections.spawn(async move {
            let Ok(stream) = tls.accept(stream).await else { return };
            let service = service_fn(move |request| answer(gates.clone(), request));
            // The API server decides how a connection ends.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(gates: Gates, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let review = match request.into_body().collect().await {
        Ok(body) => serde_json::from_slice::<Value>(&body.to_bytes()).ok(),
        Err(_) => None,
    };
    let Some(review) = review else {
        let mut refusal = Response::new(Full::default());
        *refusal.status_mut() = StatusCode::BAD_REQUEST;
        return Ok(refusal);
    };
    let answer = gates.allow(&review).await.to_string();
    Ok(Response::new(Full::from(answer)))
}
