//! The metrics of several jobs: `/metrics/job`.

use std::{collections::BTreeMap, fmt::Write, sync::Arc};

use axum::{
    Router,
    extract::{Path, State},
    http::{HeaderMap, StatusCode, Uri},
    response::{IntoResponse, Response},
    routing::get,
};

use super::metrics_server::MetricsPage;

type Pages = Arc<BTreeMap<String, MetricsPage>>;

/// Where there is no such page, which ones there are.
pub(super) fn router(pages: BTreeMap<String, MetricsPage>) -> Router {
    let none = async |State(pages): State<Pages>| lacking(&pages);
    Router::new()
        .route("/metrics", get(none))
        .route("/metrics/", get(none))
        .route("/metrics/{job}", get(read))
        .with_state(Arc::new(pages))
}

async fn read(State(pages): State<Pages>, Path(job): Path<String>, uri: Uri, headers: HeaderMap) -> Response {
    match pages.get(&job) {
        Some(page) => page.read(uri.path(), &headers).await,
        None => lacking(&pages),
    }
}

fn lacking(pages: &BTreeMap<String, MetricsPage>) -> Response {
    let mut told = String::from("each job has a page of its own here, unless it serves its metrics itself:\n");
    for job in pages.keys() {
        // Writing to a string cannot fail.
        let _ = writeln!(told, "/metrics/{job}");
    }
    (StatusCode::NOT_FOUND, told).into_response()
}
