//! `/healthz` and `/readyz` in plain HTTP, for probes.

use axum::{Router, extract::State, http::StatusCode, routing::get};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::RunError;
use crate::store::Store;

#[derive(Clone)]
struct Probed {
    store: Store,
    stop: CancellationToken,
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
        .with_state(Probed { store, stop });
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
    match probed.store.ping().await {
        Ok(()) => (StatusCode::OK, "ok"),
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "the database does not answer");
            (StatusCode::SERVICE_UNAVAILABLE, "the database does not answer")
        }
    }
}
