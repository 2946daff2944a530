//! Kinds that the operator may or may not be allowed to watch, or that the cluster may not know.

use std::time::Duration;

use futures::future::BoxFuture;
use kube::{Api, Client, api::ListParams, core::DynamicObject};

use crate::object::Kind;

/// Between two attempts; permissions are changed by hand.
const EVERY: Duration = Duration::from_mins(5);

/// The same where the kind is not known: whoever installs its definition waits for what comes of it.
const EVERY_UNKNOWN: Duration = Duration::from_secs(5);

/// Follows the kind from when it may be listed.
pub(crate) async fn once_allowed(
    client: Client,
    kind: Kind,
    namespace: Option<String>,
    follow: BoxFuture<'static, ()>,
) {
    let resource = kind.resource();
    let api: Api<DynamicObject> = match &namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    };
    let mut told = false;
    loop {
        match api.list_metadata(&ListParams::default().limit(1)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {
                if !told {
                    tracing::info!(
                        "{} take no part: the cluster does not know them. They do as soon as it does",
                        kind.plural()
                    );
                    told = true;
                }
                tokio::time::sleep(EVERY_UNKNOWN).await;
            }
            Err(kube::Error::Api(status)) if status.code == 403 => {
                if !told {
                    tracing::warn!(
                        "{} take no part: {}. Allow get, list, watch and patch on them, or leave them out of --kinds",
                        kind.plural(),
                        status.message
                    );
                    told = true;
                }
                tokio::time::sleep(EVERY).await;
            }
            // Whatever else it is, the watch has its own ways with it.
            _ => return follow.await,
        }
    }
}
