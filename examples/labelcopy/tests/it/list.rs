//! A list of labels that fails when a test says so.

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
use konverge_testkit::OutsideServer;
use labelcopy_operator::list::{Entry, Listed};
use serde::Serialize;
use serde_json::{Value, json};

/// The list, ended when dropped.
pub(crate) struct FakeList {
    pub(crate) server: OutsideServer,
    state: Shared,
}

type Shared = Arc<Mutex<Inner>>;

#[derive(Default)]
struct Inner {
    entries: BTreeMap<String, Listed>,
    created: usize,
}

impl FakeList {
    pub(crate) async fn start() -> Self {
        Self::start_at("127.0.0.1:0").await
    }

    pub(crate) async fn start_at(address: &str) -> Self {
        let state = Shared::default();
        let router = Router::new()
            .route("/v1/entries", get(list).post(create))
            .route("/v1/entries/{id}", get(show).put(update).delete(remove))
            .with_state(Arc::clone(&state));
        Self { server: OutsideServer::start(address, router).await.unwrap(), state }
    }

    pub(crate) fn url(&self) -> String {
        self.server.url() + "/v1"
    }

    /// The labels of each entry by its name.
    pub(crate) fn entries(&self) -> BTreeMap<String, BTreeMap<String, String>> {
        let inner = lock(&self.state);
        inner.entries.values().map(|listed| (listed.entry.name.clone(), listed.entry.labels.clone())).collect()
    }

    /// Changes the labels of an entry as a person does in the list itself.
    pub(crate) fn edit(&self, name: &str, labels: &[(&str, &str)]) {
        let mut inner = lock(&self.state);
        inner.entries.values_mut().find(|listed| listed.entry.name == name).unwrap().entry.labels = owned(labels);
    }

    /// Creates an entry as a person does in the list itself.
    pub(crate) fn create_by_hand(&self, name: &str, labels: &[(&str, &str)]) {
        lock(&self.state).create(Entry { name: name.to_owned(), labels: owned(labels) }, "");
    }
}

impl Inner {
    fn create(&mut self, entry: Entry, tag: &str) -> Listed {
        self.created += 1;
        let listed = Listed { id: format!("e-{}", self.created), tag: tag.to_owned(), entry };
        self.entries.insert(listed.id.clone(), listed.clone());
        listed
    }

    fn has_other(&self, name: &str, id: &str) -> bool {
        self.entries.values().any(|listed| listed.entry.name == name && listed.id != id)
    }
}

pub(crate) fn owned(labels: &[(&str, &str)]) -> BTreeMap<String, String> {
    labels.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect()
}

fn lock(state: &Shared) -> MutexGuard<'_, Inner> {
    state.lock().unwrap()
}

fn answer(code: StatusCode, body: &impl Serialize) -> Response {
    (code, serde_json::to_vec(body).unwrap()).into_response()
}

fn refused(code: StatusCode, why: &str) -> Response {
    answer(code, &json!({ "error": why }))
}

async fn list(State(state): State<Shared>) -> Response {
    answer(StatusCode::OK, &lock(&state).entries.values().collect::<Vec<_>>())
}

async fn create(State(state): State<Shared>, body: Bytes) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap();
    let entry: Entry = serde_json::from_value(body.clone()).unwrap();
    let mut inner = lock(&state);
    if inner.has_other(&entry.name, "") {
        return refused(StatusCode::CONFLICT, "the name is taken");
    }
    let listed = inner.create(entry, body["tag"].as_str().unwrap());
    answer(StatusCode::CREATED, &listed)
}

async fn show(State(state): State<Shared>, Path(id): Path<String>) -> Response {
    match lock(&state).entries.get(&id) {
        Some(listed) => answer(StatusCode::OK, listed),
        None => refused(StatusCode::NOT_FOUND, "no such entry"),
    }
}

async fn update(State(state): State<Shared>, Path(id): Path<String>, body: Bytes) -> Response {
    let entry: Entry = serde_json::from_slice(&body).unwrap();
    let mut inner = lock(&state);
    if inner.has_other(&entry.name, &id) {
        return refused(StatusCode::CONFLICT, "the name is taken");
    }
    match inner.entries.get_mut(&id) {
        Some(listed) => {
            listed.entry = entry;
            answer(StatusCode::OK, listed)
        }
        None => refused(StatusCode::NOT_FOUND, "no such entry"),
    }
}

async fn remove(State(state): State<Shared>, Path(id): Path<String>) -> Response {
    match lock(&state).entries.remove(&id) {
        Some(_) => StatusCode::NO_CONTENT.into_response(),
        None => refused(StatusCode::NOT_FOUND, "no such entry"),
    }
}
