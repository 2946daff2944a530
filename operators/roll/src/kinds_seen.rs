//! Whether all objects of a kind that need not be there have been seen.

use std::time::Duration;

use konverge_runtime::watch::WatchHealth;
use kube::{Api, api::ListParams, core::DynamicObject};

use crate::{trigger::TriggerKind, watch::Feed};

/// Between two looks whether there is such a kind, for as long as nothing has been seen of it.
const PAUSE: Duration = Duration::from_secs(5);

/// Ends when all objects of this kind have been seen, or when it is known that there can be none. A server that does not answer is asked again:
/// its silence tells nothing of the kind, and whatever waits for this would wait for ever.
pub(crate) async fn seen(feed: Feed, kind: TriggerKind, api: Api<DynamicObject>, health: WatchHealth) {
    loop {
        match api.list_metadata(&ListParams::default().limit(1)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => return feed.no_triggers(kind),
            // What they have asked for is kept.
            Err(kube::Error::Api(status)) if status.code == 403 => return,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(kind = kind.name(), error, "whether there is such a kind is not known; asking again");
            }
            Ok(_) => {}
        }
        if tokio::time::timeout(PAUSE, health.synced()).await.is_ok() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use jiff::SignedDuration;
    use konverge_apply::events::EventSink;
    use konverge_runtime::{
        Metrics, Queue,
        watch::{self, Guarded, WatchOptions},
    };
    use konverge_testkit::double::{Answer, ApiDouble, RequestMatcher};

    use super::*;
    use crate::{
        breaker,
        budget::{Budget, Limits},
        declarations::Others,
        index::Index,
        vault_rollout::VaultRollout,
    };

    fn feed(server: &ApiDouble) -> Feed {
        let metrics = Metrics::new("test", "0");
        let quiet = SignedDuration::from_mins(1);
        let limits = Limits { in_a_minute: None, at_once: None, longest: quiet };
        Feed {
            index: Arc::new(Index::new(Others::default(), breaker::Settings { changes: 0, within: quiet, quiet })),
            budget: Arc::new(Mutex::new(Budget::new(limits))),
            workloads: Queue::new("a", metrics.queues()),
            sources: Queue::new("b", metrics.queues()),
            triggers: Queue::new("c", metrics.queues()),
            events: EventSink::new(server.client(), "test", std::future::pending()).0,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_fails_is_asked_again_until_it_tells() {
        for (code, reason) in [(404, "NotFound"), (403, "Forbidden")] {
            let server = ApiDouble::default();
            let path = "/apis/konverge.dev/v1alpha1/vaultrollouts";
            for (code, reason) in [(500, "InternalError"), (401, "Unauthorized"), (code, reason)] {
                server.expect(RequestMatcher::list(path).answer(Answer::status(code, reason, "no")));
            }
            let kind = TriggerKind::VaultRollout;
            let (_events, health) =
                watch::events::<Guarded<VaultRollout>>(server.client(), &(), &WatchOptions::default());
            let api = Api::all_with(server.client(), &kind.resource());
            seen(feed(&server), kind, api, health).await;
            server.finish().unwrap();
        }
    }
}
