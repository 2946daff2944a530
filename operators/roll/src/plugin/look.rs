//! The state of a workload as the operator would see it, seen by a person.
//!
//! The objects around it are put into an index like the operator's. Values are read to be digested, and forgotten at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::api::core::v1::Secret;
use konverge_apply::stored_key;
use konverge_core::{digest::DIGEST_KEY_LENGTH, error::in_one_line, names::few};
use konverge_jobs::Settings;
use konverge_kubectl::{Cluster, Failure, Installed, operator_of};
use konverge_runtime::object::Scope;
use konverge_workload::{SecretProviderClass, Workload};
use kube::{Api, api::ListParams, core::NamespaceResourceScope};

use super::{Roll, SOURCES, What, trigger};
use crate::{
    annotations::Others,
    breaker,
    config::Config,
    digest::{Digester, KeyDigests},
    index::{Index, Shows},
    missing::{Missing, missing},
    object::{SourceName, SourceRef, WorkloadRef},
    plan::{Unsatisfied, View},
    reader::Reader,
    time::Time,
    trigger::{TriggerRef, WatchedTrigger},
};

/// The result of a look.
pub(super) struct Look {
    /// The settings of the operator, or those that it has by itself.
    pub(super) config: Config,
    /// The operator, if one is installed.
    pub(super) operator: Result<Option<Installed<Config>>, Failure>,
    /// The workload and the plan for it. `None` if it has not opted in.
    pub(super) view: Option<View>,
    /// The sources that its pods use.
    pub(super) referenced: Vec<SourceName>,
    /// The sources that it is rolled for and that do not exist.
    pub(super) gone: BTreeSet<SourceName>,
    /// The sources without which new pods could not start.
    pub(super) missing: Vec<Unsatisfied>,
    /// Why its content could not be compared with what is recorded.
    pub(super) incomparable: Option<Failure>,
    /// Why it is not known which sources or triggers request its rollouts.
    pub(super) unseen: Vec<String>,
    /// The triggers that request its rollouts, with their status.
    pub(super) triggers: Vec<(TriggerRef, Arc<WatchedTrigger>)>,
    /// When this was.
    pub(super) now: Time,
}

/// Looks at a workload and all that concerns it.
pub(super) async fn look(cluster: &Cluster, key: &WorkloadRef) -> Result<Look, Failure> {
    let operator = operator_of(&Roll, cluster, &key.namespace).await;
    let known = operator.as_ref().ok().and_then(Option::as_ref);
    let config = match known {
        Some(operator) => operator.config.clone(),
        None => Config::of_container(&[], &BTreeMap::new()).map_err(|error| Failure::Failed(error.to_string()))?,
    };
    let now = Time::now();
    let settings = breaker::Settings { changes: 0, ..config.pace.breaker() };
    // If the operator cannot be seen, the annotations of all tools count that its flags may let it follow.
    let others = known.map_or(Others::ALL, |operator| operator.config.others());
    let index = Index::new(others, settings);
    let mut unseen = Vec::new();
    for source in SOURCES {
        match cluster.list(&What::Source(source).kind(), Some(&key.namespace)).await {
            Ok(found) => found.into_iter().for_each(|object| drop(index.apply_source(source, object.metadata))),
            Err(failure) => unseen.push(format!("which sources request its restart: {failure}")),
        }
    }
    let (triggers, hidden) = trigger::all(cluster, &key.namespace, &config).await;
    unseen.extend(hidden.iter().map(|failure| format!("which objects request its restart: {failure}")));
    for (trigger, shown) in triggers {
        index.apply_trigger(Shows::Event, trigger, shown);
    }
    let workload = workload(cluster, key).await?;
    let classes = if workload.references.secret_provider_classes.is_empty() {
        Ok(Vec::new())
    } else {
        classes(cluster, &key.namespace).await
    };
    match classes {
        Ok(classes) => classes.into_iter().for_each(|class| drop(index.apply_class(class))),
        Err(failure) => unseen.push(format!("which Secrets the driver of its volumes makes: {failure}")),
    }
    let (_, work) = index.apply_workload(Shows::Event, key.kind, workload, now);
    let referenced = index.referenced(key);

    let (digester, (gone, incomparable)) = match digester(cluster, known, &config.digest_key).await {
        Ok(digester) => {
            let read = read_all(cluster, &index, &work.sources, &digester, now).await;
            (digester, read)
        }
        Err(failure) => (Digester::new([0; DIGEST_KEY_LENGTH]), (BTreeSet::new(), Some(failure))),
    };
    let view = index.view(key, &digester, now);
    let missing = match &view {
        Some(view) => missing_of(cluster, view, &digester, &mut unseen).await,
        None => Vec::new(),
    };
    let triggers = index.triggers_of(key).into_iter();
    let triggers = triggers.filter_map(|trigger| Some((trigger.clone(), index.trigger(&trigger)?))).collect();
    Ok(Look { config, operator, view, referenced, gone, missing, incomparable, unseen, triggers, now })
}

/// Returns the sources that the pods of a workload need and do not have, whether it is rolled for them or not. Adds to `unseen` what could not be read.
async fn missing_of(cluster: &Cluster, view: &View, digester: &Digester, unseen: &mut Vec<String>) -> Vec<Unsatisfied> {
    let others = missing(&cluster.client, &view.snapshot, digester).await.unwrap_or_else(|error| {
        unseen.push(format!("whether new pods could start: {}", in_one_line(&error)));
        Missing::default()
    });
    if !others.unreadable.is_empty() {
        let names = few(others.unreadable.iter().map(ToString::to_string));
        unseen.push(format!("whether new pods could start: you may not get {names}"));
    }
    view.plan.comparison.unsatisfied.iter().cloned().chain(others.unsatisfied).collect()
}

/// The classes of the Secrets Store CSI driver in a namespace; none where the cluster does not know such.
pub(super) async fn classes(cluster: &Cluster, namespace: &str) -> Result<Vec<SecretProviderClass>, Failure> {
    let api: Api<SecretProviderClass> = Api::namespaced(cluster.client.clone(), namespace);
    match api.list(&ListParams::default()).await {
        Ok(found) => Ok(found.items),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(error) => Err(Failure::of(&format!("list secretproviderclasses in namespace {namespace}"), &error)),
    }
}

/// As much of a workload as the operator reads.
async fn workload(cluster: &Cluster, key: &WorkloadRef) -> Result<Workload, Failure> {
    let api: Api<Workload> = NamespaceResourceScope::api(cluster.client.clone(), &key.kind, Some(&key.namespace));
    api.get(&key.name).await.map_err(|error| Failure::of(&format!("get {key}"), &error))
}

/// With the key of this operator, or of the only one there is.
async fn digester(cluster: &Cluster, operator: Option<&Installed<Config>>, name: &str) -> Result<Digester, Failure> {
    let found = match operator.map(|operator| &operator.installation.namespace) {
        Some(home) => {
            let found = Api::<Secret>::namespaced(cluster.client.clone(), home).get_opt(name).await;
            found.map_err(|error| Failure::of(&format!("get secret {home}/{name}, the key of digests"), &error))?
        }
        None => only(cluster, name).await?,
    };
    let key = found.and_then(stored_key::of);
    let key = key.ok_or_else(|| Failure::Failed(format!("there is no key of digests in a secret {name}")))?;
    Ok(Digester::new(*key))
}

/// The Secret of this name, wherever it is.
async fn only(cluster: &Cluster, name: &str) -> Result<Option<Secret>, Failure> {
    let api = Api::<Secret>::all(cluster.client.clone());
    let found = api.list(&ListParams::default().fields(&format!("metadata.name={name}"))).await;
    let mut found = found.map_err(|error| Failure::of("list secrets for the key of digests", &error))?.items;
    let only = found.pop();
    if found.is_empty() {
        return Ok(only);
    }
    Err(Failure::Failed(format!("there are several secrets {name}, and no Deployment tells which of them counts")))
}

/// Reads all sources into the index, but for those in Vault, which only the operator reads. Returns those that do not exist, and why one cannot be read.
async fn read_all(
    cluster: &Cluster,
    index: &Index,
    sources: &BTreeSet<SourceRef>,
    digester: &Digester,
    now: Time,
) -> (BTreeSet<SourceName>, Option<Failure>) {
    let (mut gone, mut unread) = (BTreeSet::new(), None);
    for source in sources.iter().filter(|source| !source.name.kind.is_in_vault()) {
        index.reading(source);
        match read(cluster, source, digester).await {
            Ok((version, content)) => {
                if content.is_none() {
                    gone.insert(source.name.clone());
                }
                index.learn(source, version, content, now);
            }
            Err(failure) => unread = Some(failure),
        }
    }
    (gone, unread)
}

async fn read(
    cluster: &Cluster,
    source: &SourceRef,
    digester: &Digester,
) -> Result<(Option<String>, Option<KeyDigests>), Failure> {
    let found = Reader::read(&cluster.client, source, digester).await;
    let found = found.map_err(|error| Failure::of(&format!("get {source}"), &error))?;
    Ok(found.map_or((None, None), |(version, content)| (version, Some(content))))
}
