//! `/healthz` and `/readyz` in plain HTTP, for probes.

use std::sync::Arc;

use axum::{Router, extract::State, http::StatusCode, routing::get};
use tokio::{net::TcpListener, sync::Mutex, time::Instant};
use tokio_util::sync::CancellationToken;

use super::RunError;
use crate::store::Store;

#[derive(Clone)]
struct Probed {
    store: Store,
    stop: CancellationToken,
    /// One probe asks the database at a time, and its answer is that of all who waited for it: probes without end cost one query.
    asking: Arc<Mutex<Option<(Instant, bool)>>>,
}

/// Answers probes until the calls are `finished`; from `stop` on, that the server is not ready.
pub(super) async fn serve(
    listener: TcpListener,
    store: Store,
    stop: CancellationToken,
    finished: CancellationToken,
) -> Result<(), RunError> {
    let router = Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .with_state(Probed { store, stop, asking: Arc::default() });
    // Not gracefully: a probe's idle connection must not hold the server up.
    tokio::select! {
        result = async { axum::serve(listener, router).await } => result.map_err(RunError::Health),
        () = finished.cancelled() => Ok(()),
    }
}

async fn ready(State(probed): State<Probed>) -> (StatusCode, &'static str) {
    if probed.stop.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping");
    }
    if probed.answers().await {
        (StatusCode::OK, "ok")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the database does not answer")
    }
}

impl Probed {
    /// Does the database answer, by a question that was put after this was called?
    async fn answers(&self) -> bool {
        let came = Instant::now();
        let mut last = self.asking.lock().await;
        if let Some((asked, answered)) = *last
            && asked >= came
        {
            return answered;
        }
        let asked = Instant::now();
        let answer = self.store.ping().await;
        if let Err(error) = &answer {
            tracing::error!(error = error as &dyn std::error::Error, "the database does not answer");
        }
        *last = Some((asked, answer.is_ok()));
        answer.is_ok()
    }
}
