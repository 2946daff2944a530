//! Kinds that a program may or may not be allowed to watch, or that may not be there.

use std::time::Duration;

use konverge_core::error::in_one_line;
use kube::{
    Api, Client,
    api::ListParams,
    core::{ApiResource, DynamicObject, DynamicResourceScope},
};

use super::{WatchHealth, WatchOptions};
use crate::object::Scope;

/// Between two attempts; permissions are changed by hand.
const EVERY: Duration = Duration::from_secs(300);

/// The same where the kind is not known. A person who installs its definition waits for the effect.
pub(super) const EVERY_UNKNOWN: Duration = Duration::from_secs(30);

/// Runs `follow` once the API server serves the kind and allows to list it. Until then, `health` says why not, and the log says once that the
/// objects are not watched. Any other answer says nothing about the kind, so the API server is asked again.
pub(crate) async fn watch_when_available(
    client: Client,
    resource: ApiResource,
    options: WatchOptions,
    health: WatchHealth,
    follow: impl Future<Output = ()> + Send,
) {
    let api: Api<DynamicObject> = DynamicResourceScope::api(client, &resource, options.namespace.as_deref());
    let plural = &resource.plural;
    let (mut told, mut failures) = (false, 0);
    loop {
        let pause = match api.list_metadata(&ListParams::default().limit(1)).await {
            Ok(_) => return follow.await,
            Err(kube::Error::Api(status)) if status.code == 404 => {
                if !std::mem::replace(&mut told, true) {
                    tracing::info!("{plural} are not watched until their definition is installed");
                }
                health.set_missing();
                EVERY_UNKNOWN
            }
            Err(kube::Error::Api(status)) if status.code == 403 => {
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!(
                        "{plural} are not watched: {}. Allow get, list, watch and patch on them, or leave them out of --kinds",
                        status.message
                    );
                }
                health.set_forbidden();
                EVERY
            }
            Err(error) => {
                failures += 1;
                tracing::warn!(
                    kind = resource.kind,
                    error = %in_one_line(&error),
                    "cannot find out whether the cluster has this kind; asking again"
                );
                options.backoff.delay(failures, rand::random())
            }
        };
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use konverge_testkit::double::{Answer, ApiDouble, RequestMatcher};

    use super::*;
    use crate::watch::Presence;

    #[tokio::test(start_paused = true)]
    async fn a_server_that_fails_is_asked_again_until_it_tells() {
        for (code, reason, expected) in [(404, "NotFound", Presence::Missing), (403, "Forbidden", Presence::Forbidden)]
        {
            let server = ApiDouble::default();
            let path = "/api/v1/configmaps";
            for (code, reason) in [(500, "InternalError"), (401, "Unauthorized"), (code, reason)] {
                server.expect(RequestMatcher::list(path).answer(Answer::status(code, reason, "no")));
            }
            server.expect(RequestMatcher::list(path).answer(Answer::list(
                "v1",
                "PartialObjectMetadata",
                "7",
                &[(); 0],
            )));
            let (resource, health) = (ApiResource::erase::<ConfigMap>(&()), WatchHealth::default());
            let (known, follow) = (health.clone(), async {});
            let once = watch_when_available(server.client(), resource, WatchOptions::default(), health, follow);
            let (presence, ()) = tokio::join!(known.presence(), once);
            assert_eq!(presence, expected);
            server.finish().unwrap();
        }
    }
}
