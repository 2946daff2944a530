//! What callers are told. Faults of ours are logged with their cause and told without.

use tonic::Status;

use crate::store::StoreError;

/// For a store error that no handler has more to say about.
#[expect(clippy::needless_pass_by_value, reason = "given to map_err as it is")]
pub(crate) fn from_store(error: StoreError) -> Status {
    match error {
        StoreError::Duplicate => Status::already_exists("it exists already"),
        StoreError::Missing => Status::not_found("it does not exist (any more)"),
        StoreError::Corrupt(_) | StoreError::Database(_) => {
            tracing::error!(error = &error as &dyn std::error::Error, "a request failed in the database");
            Status::internal("the server could not complete the request; its log says why")
        }
    }
}

/// The same, with words for something of that name being there already.
pub(crate) fn or_exists(what: &'static str, name: &str) -> impl FnOnce(StoreError) -> Status + use<> {
    let message = format!("{what} {name:?} exists already; choose another name");
    move |error| match error {
        StoreError::Duplicate => Status::already_exists(message),
        other => from_store(other),
    }
}

/// The same, with words for what is to be changed not being there.
pub(crate) fn or_missing(what: &'static str, name: &str) -> impl FnOnce(StoreError) -> Status + use<> {
    let message = format!("{what} {name:?} not found");
    move |error| match error {
        StoreError::Missing => Status::not_found(message),
        other => from_store(other),
    }
}
