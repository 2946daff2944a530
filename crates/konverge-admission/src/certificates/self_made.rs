//! Certificates of the program's own: made here, shared through a Secret, made known to the API server, followed by others in
//! time.

use std::{fmt, pin::pin, sync::Arc, time::Duration};

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::rbac::v1::PolicyRule;
use konverge_core::{backoff::Backoff, error::in_one_line};
use konverge_runtime::tls::{PairError, Slot};
use kube::Client;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{
    changes::changes,
    inject::{Injection, InjectionError, Target},
    material::{Material, MaterialError},
    plan::{self, Lifetimes, Step},
    store::{Store, StoreError, Stored},
};
use crate::metrics::AdmissionMetrics;

/// For all calls of one look. The client has no limit of its own.
const LOOK_WITHIN: Duration = Duration::from_secs(30);

/// Steps of one look, each a write that another replica may have been faster with.
const STEPS_AT_MOST: usize = 10;

/// A burst of changes is one reason to look.
const GATHER: Duration = Duration::from_millis(200);

/// After a failed look.
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(500), factor: 2.0, cap: Duration::from_secs(30) };

type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// How the program makes its certificates.
///
/// An authority and a certificate of it are kept in one Secret, so that all replicas serve the same. The authority's key is in it
/// too: who can read the Secret can pose as these webhooks, and as nothing else.
#[derive(Clone)]
#[must_use = "options are for Certificates::self_made"]
pub struct SelfMade {
    namespace: String,
    service: String,
    secret: String,
    names: Vec<String>,
    targets: Vec<Target>,
    lifetimes: Lifetimes,
    clock: Clock,
}

/// The permissions that the program needs, and no more.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Permissions {
    /// In the namespace of the Secret.
    pub role: Vec<PolicyRule>,
    /// In the cluster.
    pub cluster_role: Vec<PolicyRule>,
}

impl fmt::Debug for SelfMade {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SelfMade")
            .field("namespace", &self.namespace)
            .field("secret", &self.secret)
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

impl SelfMade {
    /// For webhooks behind this Service, named `<service>.<namespace>.svc`. The Secret is `<service>-webhook-certificates` in the
    /// same namespace.
    pub fn new(namespace: impl Into<String>, service: impl Into<String>) -> Self {
        let (namespace, service) = (namespace.into(), service.into());
        Self {
            secret: format!("{service}-webhook-certificates"),
            names: vec![format!("{service}.{namespace}.svc")],
            namespace,
            service,
            targets: Vec::new(),
            lifetimes: Lifetimes::default(),
            clock: Arc::new(Timestamp::now),
        }
    }

    /// Another name of the Secret.
    pub fn secret(self, name: impl Into<String>) -> Self {
        Self { secret: name.into(), ..self }
    }

    /// Also for this name or IP address, where callers do not come through the Service.
    pub fn also_for(mut self, name: impl Into<String>) -> Self {
        self.names.push(name.into());
        self
    }

    /// Keeps something in the cluster informed about the authority.
    pub fn inject(mut self, target: Target) -> Self {
        self.targets.push(target);
        self
    }

    /// Other times than the usual ones.
    pub fn lifetimes(self, lifetimes: Lifetimes) -> Self {
        Self { lifetimes, ..self }
    }

    /// Another clock than the system's, for tests.
    pub fn clock(self, clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self { clock: Arc::new(clock), ..self }
    }

    /// Returns the permissions that this needs.
    pub fn permissions(&self) -> Permissions {
        let rule = |group: &str, resource: &str, verbs: &[&str], name: Option<&str>| PolicyRule {
            api_groups: Some(vec![group.to_owned()]),
            resources: Some(vec![resource.to_owned()]),
            resource_names: name.map(|name| vec![name.to_owned()]),
            verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
            non_resource_urls: None,
        };
        let kept = ["get", "list", "patch", "watch"];
        let mut permissions = Permissions {
            // A name cannot restrict a create: the request has none when it is authorised.
            role: vec![rule("", "secrets", &["create"], None), rule("", "secrets", &kept, Some(&self.secret))],
            cluster_role: Vec::new(),
        };
        for target in &self.targets {
            let (group, plural, name, made_here) = target.access();
            permissions.cluster_role.push(rule(&group, &plural, &kept, Some(&name)));
            let create = rule(&group, &plural, &["create"], None);
            if made_here && !permissions.cluster_role.contains(&create) {
                permissions.cluster_role.push(create);
            }
        }
        permissions
    }

    pub(super) fn keeper(self, client: Client) -> Keeper {
        let calm = self.lifetimes.look_every / 6;
        Keeper {
            store: Store::new(client.clone(), &self.namespace, &self.secret),
            injections: self.targets.iter().cloned().map(|target| Injection::new(target, calm)).collect(),
            client,
            options: self,
            served: None,
            known: None,
        }
    }
}

/// Why a look ended early.
#[derive(Debug, thiserror::Error)]
enum LookError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot make certificates for webhooks")]
    Material(#[from] MaterialError),
    #[error("cannot serve webhooks with the certificate of the Secret")]
    Pair(#[from] PairError),
    #[error("other replicas keep changing secret {namespace}/{name}; is a second program using it?")]
    Busy { namespace: String, name: String },
    #[error("the API server did not answer within {} s", LOOK_WITHIN.as_secs())]
    TooLong,
    #[error("the certificate authority of the webhooks is not known everywhere")]
    Injection(#[source] InjectionError),
}

pub(super) struct Keeper {
    client: Client,
    options: SelfMade,
    store: Store,
    injections: Vec<Injection>,
    /// The material in use. If the Secret is lost, it is recreated from this, so no client has to learn a new authority.
    served: Option<Material>,
    /// The bundle that all targets were seen to have.
    known: Option<String>,
}

impl fmt::Debug for Keeper {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Keeper").field(&self.options).finish()
    }
}

impl Keeper {
    /// Looks after everything until told to stop.
    pub(super) async fn keep(mut self, slot: Slot, metrics: AdmissionMetrics, stop: CancellationToken) {
        let SelfMade { namespace, secret, targets, .. } = &self.options;
        let mut news = pin!(changes(&self.client, namespace, secret, targets));
        let mut failures = 0;
        loop {
            let look = timeout(LOOK_WITHIN, self.look(&slot, &metrics));
            let Some(outcome) = stop.run_until_cancelled(look).await else { return };
            let pause = match outcome.unwrap_or(Err(LookError::TooLong)) {
                Ok(()) => {
                    failures = 0;
                    slot.trouble(None);
                    // Replicas that started together part.
                    self.options.lifetimes.look_every.mul_f64(0.9 + 0.2 * rand::random::<f64>())
                }
                Err(error) => {
                    failures += 1;
                    let why = in_one_line(&error);
                    tracing::warn!(why, failures, "the webhook certificates are not in order");
                    slot.trouble(Some(why));
                    BACKOFF.delay(failures, rand::random())
                }
            };
            let wait = async {
                tokio::select! {
                    () = sleep(pause) => {}
                    _ = news.next() => sleep(GATHER).await,
                }
            };
            if stop.run_until_cancelled(wait).await.is_none() {
                return;
            }
        }
    }

    /// Agrees with the other replicas on what is served, serves it, and makes it known.
    async fn look(&mut self, slot: &Slot, metrics: &AdmissionMetrics) -> Result<(), LookError> {
        let agreed = self.agree().await;
        if !matches!(&agreed, Ok(material) if self.served.as_ref() == Some(material)) {
            metrics.certificate_read(agreed.is_ok());
        }
        let material = agreed?;
        if self.served.as_ref() != Some(&material) {
            let pair = material.pair()?;
            tracing::info!(ends = %pair.validity.ends, "serving a new certificate of our own");
            metrics.certificate_ends(pair.validity.ends);
            slot.put(pair);
            self.served = Some(material.clone());
        }
        self.make_known(&material.bundle(), metrics).await
    }

    /// The content of the Secret once it needs no further step.
    async fn agree(&self) -> Result<Material, LookError> {
        let SelfMade { names, lifetimes, clock, .. } = &self.options;
        for _ in 0..STEPS_AT_MOST {
            let (material, version) = match self.store.read().await? {
                Stored::Material(material, version) => {
                    let known = self.known.as_ref() == Some(&material.bundle());
                    let step = plan::next(&material.facts(names, known)?, lifetimes, clock());
                    if step == Step::Nothing {
                        return Ok(material);
                    }
                    tracing::info!(?step, "renewing the webhook certificates");
                    (material.after(step, names, lifetimes, clock())?, Some(version))
                }
                Stored::Nothing => (self.again_or_new()?, None),
                Stored::Broken(error, version) => {
                    tracing::warn!(
                        why = %in_one_line(&error),
                        "the webhook certificates in the Secret cannot be used; writing others"
                    );
                    (self.again_or_new()?, Some(version))
                }
            };
            // The next round reads the write of the faster replica.
            self.store.write(&material, version.as_deref()).await?;
        }
        let (namespace, name) = (self.options.namespace.clone(), self.options.secret.clone());
        Err(LookError::Busy { namespace, name })
    }

    fn again_or_new(&self) -> Result<Material, MaterialError> {
        let SelfMade { names, lifetimes, clock, .. } = &self.options;
        self.served.clone().map_or_else(|| Material::make(names, lifetimes, clock()), Ok)
    }

    /// Writes the bundle to all targets, also after one that fails.
    async fn make_known(&mut self, bundle: &str, metrics: &AdmissionMetrics) -> Result<(), LookError> {
        let service = (self.options.namespace.as_str(), self.options.service.as_str());
        let mut failed = None;
        for injection in &mut self.injections {
            match injection.inject(&self.client, bundle, service).await {
                Ok(true) => tracing::info!(object = injection.described(), "told the API server the authority"),
                Ok(false) => {}
                Err(error) => {
                    metrics.injection_failed();
                    if let Some(earlier) = failed.replace(error) {
                        tracing::warn!(why = %in_one_line(&earlier), "a certificate authority is not known");
                    }
                }
            }
        }
        self.known = failed.is_none().then(|| bundle.to_owned());
        failed.map_or(Ok(()), |error| Err(LookError::Injection(error)))
    }
}
