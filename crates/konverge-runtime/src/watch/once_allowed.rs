//! Kinds that a program may or may not be allowed to watch, or that may not be there.

use std::{future::Future, time::Duration};

use kube::{
    Api, Client,
    api::ListParams,
    core::{ApiResource, DynamicObject},
};

/// Between two attempts; permissions are changed by hand.
const EVERY: Duration = Duration::from_secs(300);

/// The same where the kind is not known. A person who installs its definition waits for the effect.
pub(super) const EVERY_UNKNOWN: Duration = Duration::from_secs(30);

/// Does `follow` from when the kind is there and may be listed, in this namespace or in all. Until then the log tells once that its objects
/// are not watched.
pub async fn once_allowed(
    client: Client,
    resource: ApiResource,
    namespace: Option<String>,
    follow: impl Future<Output = ()> + Send,
) {
    let api: Api<DynamicObject> = match &namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    };
    let mut told = false;
    loop {
        match api.list_metadata(&ListParams::default().limit(1)).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {
                match (std::mem::replace(&mut told, true), status.code) {
                    (true, _) => {}
                    (false, 404) => {
                        tracing::info!("{} take no part until their definition is installed", resource.plural);
                    }
                    (false, _) => tracing::warn!(
                        "{} take no part: {}. Allow get, list, watch and patch on them, or leave them out of --kinds",
                        resource.plural,
                        status.message
                    ),
                }
                tokio::time::sleep(if status.code == 404 { EVERY_UNKNOWN } else { EVERY }).await;
            }
            // The watch handles all other errors.
            _ => return follow.await,
        }
    }
}
