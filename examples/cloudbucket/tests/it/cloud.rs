//! A cloud with a bucket API that fails when a test says so.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

use axum::{
    Router,
    body::Bytes,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};
use cloudbucket_operator::cloud::{Listed, ObservedBucket, Phase, Settings};
use konverge_testkit::OutsideServer;
use serde::Serialize;
use serde_json::Value;

/// The cloud, ended when dropped.
pub(crate) struct FakeCloud {
    pub(crate) server: OutsideServer,
    state: Shared,
}

type Shared = Arc<Mutex<Inner>>;

#[derive(Default)]
struct Inner {
    buckets: BTreeMap<String, Listed>,
    created: usize,
    keeps_deleting: bool,
}

impl FakeCloud {
    pub(crate) async fn start() -> Self {
        Self::start_at("127.0.0.1:0").await
    }

    pub(crate) async fn start_at(address: &str) -> Self {
        let state = Shared::default();
        let router = Router::new()
            .route("/v1/buckets", get(list).post(create))
            .route("/v1/buckets/{id}", get(show).patch(update).delete(remove))
            .with_state(Arc::clone(&state));
        Self { server: OutsideServer::start(address, router).await.unwrap(), state }
    }

    /// The buckets by name.
    pub(crate) fn buckets(&self) -> BTreeMap<String, ObservedBucket> {
        let inner = lock(&self.state);
        inner.buckets.values().map(|bucket| (bucket.observed.name.clone(), bucket.observed.clone())).collect()
    }

    /// Changes a bucket as a person does in the cloud's console.
    pub(crate) fn edit(&self, name: &str, settings: Settings) {
        let mut inner = lock(&self.state);
        inner.buckets.values_mut().find(|bucket| bucket.observed.name == name).unwrap().observed.settings = settings;
    }

    /// Creates a bucket as a person does in the cloud's console.
    pub(crate) fn create_by_hand(&self, name: &str, settings: Settings) {
        lock(&self.state).create(name, "", settings);
    }

    /// Keeps buckets in deletion from being gone, or lets them go.
    pub(crate) fn keep_deleting(&self, keep: bool) {
        let mut inner = lock(&self.state);
        inner.keeps_deleting = keep;
        if !keep {
            inner.buckets.retain(|_, bucket| bucket.observed.phase != Phase::Deleting);
        }
    }
}

impl Inner {
    fn create(&mut self, name: &str, tag: &str, settings: Settings) -> Listed {
        self.created += 1;
        let id = format!("b-{}", self.created);
        let observed = ObservedBucket { id, name: name.to_owned(), settings, phase: Phase::Active };
        let bucket = Listed { tag: tag.to_owned(), observed };
        self.buckets.insert(bucket.observed.id.clone(), bucket.clone());
        bucket
    }
}

fn lock(state: &Shared) -> MutexGuard<'_, Inner> {
    state.lock().unwrap()
}

fn json(code: StatusCode, body: &impl Serialize) -> Response {
    (code, serde_json::to_vec(body).unwrap()).into_response()
}

async fn list(State(state): State<Shared>) -> Response {
    let inner = lock(&state);
    json(StatusCode::OK, &inner.buckets.values().collect::<Vec<_>>())
}

async fn create(State(state): State<Shared>, body: Bytes) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap();
    let mut inner = lock(&state);
    let (name, tag) = (body["name"].as_str().unwrap(), body["tag"].as_str().unwrap());
    if inner.buckets.values().any(|bucket| bucket.observed.name == name) {
        return StatusCode::CONFLICT.into_response();
    }
    let observed = inner.create(name, tag, serde_json::from_value(body.clone()).unwrap());
    json(StatusCode::CREATED, &observed)
}

async fn show(State(state): State<Shared>, Path(id): Path<String>) -> Response {
    match lock(&state).buckets.get(&id) {
        Some(bucket) => json(StatusCode::OK, bucket),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn update(State(state): State<Shared>, Path(id): Path<String>, body: Bytes) -> StatusCode {
    let settings = serde_json::from_slice(&body).unwrap();
    match lock(&state).buckets.get_mut(&id) {
        Some(bucket) => {
            bucket.observed.settings = settings;
            StatusCode::OK
        }
        None => StatusCode::NOT_FOUND,
    }
}

async fn remove(State(state): State<Shared>, Path(id): Path<String>) -> StatusCode {
    let mut inner = lock(&state);
    if inner.keeps_deleting
        && let Some(bucket) = inner.buckets.get_mut(&id)
    {
        bucket.observed.phase = Phase::Deleting;
        return StatusCode::ACCEPTED;
    }
    match inner.buckets.remove(&id) {
        Some(_) => StatusCode::NO_CONTENT,
        None => StatusCode::NOT_FOUND,
    }
}
