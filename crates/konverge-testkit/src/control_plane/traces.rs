//! The objects that a run creates in a named cluster, and their removal.
//!
//! Everything is created, never applied over what is there, and carries the run's label. So what is taken away is what the run
//! made and nothing else, and it can be found after a run that was killed.

use std::{
    fmt::Debug,
    path::Path,
    sync::{
        LazyLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Namespace, Secret},
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
    core::NamespaceResourceScope,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;
use tokio::sync::RwLock;

use super::{StartError, client_for};
use crate::environment::{self, RUN_VARIABLE};

/// On everything that a run makes in a cluster outside its own namespaces, and on those. Its value is the run's name.
pub const RUN_LABEL: &str = "konverge.dev/test-run";

/// Creations under way. Taking away waits for them, so that none takes effect behind its back.
static UNDER_WAY: RwLock<()> = RwLock::const_new(());

/// Whether anything was made, so that a cluster that was never reached is not asked again.
static MADE: AtomicBool = AtomicBool::new(false);

/// The name of this run: what `KONVERGE_TEST_RUN` says, else one that no other process has.
pub fn run_name() -> &'static str {
    static NAME: LazyLock<String> = LazyLock::new(|| {
        let given = environment::variable(RUN_VARIABLE).map(|name| name.to_string_lossy().into_owned());
        given.unwrap_or_else(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            format!("{:x}-{}", since.as_micros(), std::process::id())
        })
    });
    &NAME
}

/// Creates an object with the run's label. It is an error if one of that name is there: it is not ours. Once begun it is brought
/// to its end even when the caller gives up waiting.
pub async fn create_for_run<K>(api: Api<K>, mut object: K) -> kube::Result<K>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    object.labels_mut().insert(RUN_LABEL.to_owned(), run_name().to_owned());
    let under_way = UNDER_WAY.read().await;
    MADE.store(true, Ordering::Relaxed);
    let created = tokio::spawn(async move {
        let created = api.create(&PostParams::default(), &object).await;
        drop(under_way);
        created
    });
    created.await.map_err(|error| kube::Error::Service(Box::new(error)))?
}

/// Takes away what this process made in the cluster; returns what that was. Call it when all that used it has ended.
pub async fn take_away(kubeconfig: &Path) -> Result<Vec<String>, StartError> {
    let _nothing_under_way = UNDER_WAY.write().await;
    if MADE.load(Ordering::Relaxed) { take_away_run(kubeconfig, run_name()).await } else { Ok(Vec::new()) }
}

/// Takes away what a run made in the cluster; returns what that was. The objects of a namespace are removed with it, also a Deployment or Secret with
/// a finalizer, because its operator has ended. When a kind is refused the others go all the same, and the refusal is the error.
pub async fn take_away_run(kubeconfig: &Path, run: &str) -> Result<Vec<String>, StartError> {
    let client = client_for(kubeconfig).await?;
    let outcomes = [
        delete_labelled::<Namespace>(&client, run).await,
        delete_labelled::<ClusterRoleBinding>(&client, run).await,
        delete_labelled::<ClusterRole>(&client, run).await,
        release_all(&client, run).await.map(|()| Vec::new()),
    ];
    let gone: Vec<Vec<String>> = outcomes.into_iter().collect::<Result<_, _>>()?;
    Ok(gone.concat())
}

/// Takes the finalizers off what the run's namespaces hold, which are being deleted by now.
async fn release_all(client: &Client, run: &str) -> Result<(), StartError> {
    let labelled = ListParams::default().labels(&format!("{RUN_LABEL}={run}"));
    for namespace in Api::<Namespace>::all(client.clone()).list_metadata(&labelled).await.map_err(failed)? {
        release::<Deployment>(client, &namespace.name_any()).await?;
        release::<Secret>(client, &namespace.name_any()).await?;
    }
    Ok(())
}

async fn release<K>(client: &Client, namespace: &str) -> Result<(), StartError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let api = Api::<K>::namespaced(client.clone(), namespace);
    let nothing = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    for object in api.list_metadata(&ListParams::default()).await.map_err(failed)? {
        if object.finalizers().is_empty() {
            continue;
        }
        match api.patch_metadata(&object.name_any(), &PatchParams::default(), &nothing).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            outcome => drop(outcome.map_err(failed)?),
        }
    }
    Ok(())
}

fn failed(source: kube::Error) -> StartError {
    StartError::Api { what: "take away what the run made", source: Box::new(source) }
}

async fn delete_labelled<K>(client: &Client, run: &str) -> Result<Vec<String>, StartError>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let api = Api::<K>::all(client.clone());
    let labelled = ListParams::default().labels(&format!("{RUN_LABEL}={run}"));
    let mut gone = Vec::new();
    for object in api.list(&labelled).await.map_err(failed)? {
        let only_this = Preconditions { uid: object.uid(), resource_version: None };
        let parameters = DeleteParams { preconditions: Some(only_this), ..DeleteParams::default() };
        match api.delete(&object.name_any(), &parameters).await {
            // Somebody was faster.
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {}
            outcome => {
                outcome.map_err(failed)?;
                gone.push(format!("{} {}", K::kind(&()), object.name_any()));
            }
        }
    }
    Ok(gone)
}
