//! Whether all objects of a kind that need not be there have been seen.

use std::time::Duration;

use konverge_runtime::watch::WatchHealth;
use kube::{Api, api::ListParams, core::DynamicObject};

/// Between two looks whether there is such a kind, for as long as nothing has been seen of it.
const PAUSE: Duration = Duration::from_secs(5);

/// The result of waiting for the objects of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// All of them.
    Seen,
    /// There are none: the cluster does not know such.
    Unknown,
    /// Whether there are any may not be known.
    Hidden,
}

/// Ends when all objects of this kind have been seen, or when it is known that there can be none. A server that does not answer is asked again:
/// its silence tells nothing of the kind, and whatever waits for this would wait for ever.
pub(crate) async fn seen(kind: &str, api: Api<DynamicObject>, health: WatchHealth) -> Kind {
    loop {
        match api.list_metadata(&ListParams::default().limit(1)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => return Kind::Unknown,
            Err(kube::Error::Api(status)) if status.code == 403 => return Kind::Hidden,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(kind, error, "whether there is such a kind is not known; asking again");
            }
            Ok(_) => {}
        }
        if tokio::time::timeout(PAUSE, health.synced()).await.is_ok() {
            return Kind::Seen;
        }
    }
}

#[cfg(test)]
mod tests {
    use konverge_runtime::watch::{self, Guarded, WatchOptions};
    use konverge_testkit::double::{Answer, ApiDouble, RequestMatcher};

    use super::*;
    use crate::{trigger::TriggerKind, vault_rollout::VaultRollout};

    #[tokio::test(start_paused = true)]
    async fn a_server_that_fails_is_asked_again_until_it_tells() {
        for (code, reason, expected) in [(404, "NotFound", Kind::Unknown), (403, "Forbidden", Kind::Hidden)] {
            let server = ApiDouble::default();
            let path = "/apis/konverge.dev/v1alpha1/vaultrollouts";
            for (code, reason) in [(500, "InternalError"), (401, "Unauthorized"), (code, reason)] {
                server.expect(RequestMatcher::list(path).answer(Answer::status(code, reason, "no")));
            }
            let kind = TriggerKind::VaultRollout;
            let (_events, health) =
                watch::events::<Guarded<VaultRollout>>(server.client(), &(), &WatchOptions::default());
            let api = Api::all_with(server.client(), &kind.resource());
            assert_eq!(seen(kind.name(), api, health).await, expected);
            server.finish().unwrap();
        }
    }
}
