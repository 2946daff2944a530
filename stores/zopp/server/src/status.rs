//! The statuses of responses. Faults of ours are logged with their cause and told without.

use tonic::{
    Code, Status,
    metadata::{MetadataMap, MetadataValue},
};

use crate::{
    limits::Reached,
    rbac::Role,
    store::{Revoked, StoreError},
};

/// Metadata of a refusal: in how many seconds to try again.
const RETRY_AFTER: &str = "retry-after";
/// Metadata of a refusal: the name of the limit that was reached. The metrics count by it.
pub(crate) const REACHED_LIMIT: &str = "reached-limit";

/// For a store error that no handler has more to say about.
#[expect(clippy::needless_pass_by_value, reason = "given to map_err as it is")]
pub(crate) fn from_store(error: StoreError) -> Status {
    match error {
        StoreError::Duplicate => Status::already_exists("it exists already"),
        StoreError::Missing => Status::not_found("it does not exist (any more)"),
        StoreError::EnvironmentGone => Status::not_found("the environment does not exist (any more)"),
        StoreError::KeyTaken => Status::already_exists(
            "this public key belongs to another principal; make a new key pair for each principal",
        ),
        StoreError::Replayed => replayed(),
        StoreError::Revoked(Revoked::Principal) => disabled(),
        StoreError::Revoked(Revoked::Workspace) => Status::not_found("workspace not found or access denied"),
        StoreError::Revoked(Revoked::Role(role)) => denied(role),
        StoreError::Revoked(Revoked::Key) => Status::aborted(
            "the workspace's key was replaced meanwhile, and this request was made with the former one; try again",
        ),
        StoreError::Revoked(Revoked::Restored) => Status::aborted(
            "the server's database was restored meanwhile; sign the request again, with a clock that is right",
        ),
        StoreError::RightsChanged => Status::aborted("your rights changed again and again meanwhile; try again"),
        StoreError::Limit(reached) => exhausted(&reached, None),
        StoreError::Outage(_) => {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "the database cannot be reached or written for now"
            );
            Status::unavailable(
                "the server's database cannot be reached or written for now; try again later; the server's log says why",
            )
        }
        StoreError::Procedure { .. } | StoreError::Corrupt(_) | StoreError::Database(_) => {
            tracing::error!(error = &error as &dyn std::error::Error, "a request failed in the database");
            Status::internal("the server could not complete the request; its log says why")
        }
    }
}

/// The status for a client that reached a limit, with the seconds until a retry makes sense, if time helps.
pub(crate) fn exhausted(reached: &Reached, retry_after: Option<i64>) -> Status {
    let mut metadata = MetadataMap::new();
    metadata.insert(REACHED_LIMIT, MetadataValue::from_static(reached.name()));
    let next = match retry_after {
        None => "delete what is not needed any more, or ask the server's operator for more".to_owned(),
        Some(seconds) => {
            metadata.insert(RETRY_AFTER, seconds.into());
            format!("try again in {seconds} s")
        }
    };
    Status::with_metadata(Code::ResourceExhausted, format!("{reached}; {next}"), metadata)
}

/// The status for a client with too low a role.
pub(crate) fn denied(role: Role) -> Status {
    let role = match role {
        Role::Admin => "admin",
        Role::Write => "write",
        Role::Read => "read",
    };
    Status::permission_denied(format!("this needs the {role} role here; ask an admin of the workspace to grant it"))
}

/// The status for a repeated request.
pub(crate) fn replayed() -> Status {
    Status::unauthenticated("this very request was received before; to repeat it, sign it again a second later")
}

/// The status for a disabled principal, once it has proven its identity.
pub(crate) fn disabled() -> Status {
    Status::unauthenticated(
        "this principal is disabled; another device of its user can enable it (a service: an admin of its workspaces)",
    )
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
