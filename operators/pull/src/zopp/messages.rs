//! The statements about environments of zopp, for their readers.

use std::collections::BTreeSet;

use konverge_apply::Statement;
use konverge_core::names::few;
use konverge_zopp_client::{EnvironmentName, FetchError, Fingerprint};

use crate::{
    messages::{failure, word},
    reasons,
};

/// The environment could not be read.
pub(super) fn fetch_failed(principal: &str, error: &FetchError) -> Statement {
    let (reason, next) = match error {
        FetchError::Unreachable { .. } => (
            reasons::SERVER_UNREACHABLE,
            "the operator goes on trying; check the server, its address and its certificate".to_owned(),
        ),
        FetchError::Unauthenticated { .. } => {
            (reasons::CREDENTIALS_INVALID, "check the operator's credentials and the clocks of both sides".to_owned())
        }
        FetchError::NoExchangeKey { .. } | FetchError::Key { .. } => (
            reasons::CREDENTIALS_INVALID,
            "give the operator the credentials of a principal that was granted access to the workspace".to_owned(),
        ),
        FetchError::PermissionDenied { environment, .. } => (
            reasons::PERMISSION_DENIED,
            format!(
                "grant it with: zopp permission env-set -w {} -p {} -e {} --principal {principal} --role read",
                word(&environment.workspace),
                word(&environment.project),
                word(&environment.environment)
            ),
        ),
        FetchError::NotFound { .. } => (
            reasons::ENVIRONMENT_NOT_FOUND,
            "check the three annotations, and that the operator's principal was given access to the workspace"
                .to_owned(),
        ),
        FetchError::Garbage { .. } | FetchError::Refused { .. } => {
            (reasons::BAD_SERVER_ANSWER, "check that the address is a zopp server's and see its log".to_owned())
        }
        FetchError::OtherKey { environment, .. } => (
            reasons::WORKSPACE_KEY_CHANGED,
            format!(
                "ask a member of the workspace for its fingerprint (zopp workspace fingerprint -w {}); only if it is the new one, give \
                 it to the operator with --workspace-fingerprint; if the server was restored on purpose from a backup from before the key was \
                 replaced, {}",
                word(&environment.workspace),
                how_to_accept(environment)
            ),
        ),
        FetchError::ForgedKey { environment, .. } => (
            reasons::WORKSPACE_KEY_CHANGED,
            format!(
                "give the operator the fingerprint of a member of the workspace (zopp workspace fingerprint -w {}) with \
                 --workspace-fingerprint",
                word(&environment.workspace)
            ),
        ),
        FetchError::Unpinned { workspace, offered, .. } => (
            reasons::WORKSPACE_KEY_UNKNOWN,
            format!(
                "compare the key with that of a member (zopp workspace fingerprint -w {}); only if it is the same, {}. \
                 --trust-first-key trusts the server",
                word(workspace),
                how_to_pin(workspace, *offered)
            ),
        ),
        FetchError::NotCurrent { environment, .. } => (
            reasons::SOURCE_NOT_CURRENT,
            format!(
                "a member sees what differs with zopp environment protect {} -w {} -p {}, and accepts it with --accept-changes; if the \
                 server was restored from a backup on purpose, {}",
                word(&environment.environment),
                word(&environment.workspace),
                word(&environment.project),
                how_to_accept(environment)
            ),
        ),
        FetchError::AmbiguousName { .. } => (
            reasons::INVALID_ANNOTATION,
            "make a project without it, move the secrets there, and name it in the annotation".to_owned(),
        ),
    };
    failure(reason, format!("{error}. The data stays as it is; {next}"))
}

/// Returns the step that accepts another environment of the same name.
pub(crate) fn accept_replaced(environment: &EnvironmentName) -> String {
    format!(
        "if the environment was made anew on purpose, a manifest proves it (zopp environment protect {} -w {} -p {}), or {}",
        word(&environment.environment),
        word(&environment.workspace),
        word(&environment.project),
        how_to_accept(environment)
    )
}

/// Returns the step that accepts an older version.
pub(crate) fn accept_older(environment: &EnvironmentName) -> String {
    format!("if the server was restored from a backup on purpose, {}", how_to_accept(environment))
}

/// Returns the warning about a trusted first key of a workspace.
pub(crate) fn first_key(workspace: &str, fingerprint: Fingerprint) -> String {
    format!(
        "the key {fingerprint} of workspace {workspace:?} is trusted because it is, or follows from, the first that the server gave. {}",
        how_to_compare(workspace, fingerprint)
    )
}

/// Returns the same warning for a reader of these Secrets, who cannot tell whether the operator wrote their records.
pub(crate) fn recorded_first_key(workspace: &str, fingerprint: Fingerprint, secrets: &BTreeSet<String>) -> String {
    format!(
        "by the record on Secret {}, which is not verified here, the operator trusts the key {fingerprint} of workspace {workspace:?} because it \
         is, or follows from, the first that the server gave. {}",
        few(secrets),
        how_to_compare(workspace, fingerprint)
    )
}

/// Returns the steps that confirm and pin a key.
fn how_to_compare(workspace: &str, fingerprint: Fingerprint) -> String {
    format!(
        "Compare it with that of a member (zopp workspace fingerprint -w {}), and {}",
        word(workspace),
        how_to_pin(workspace, fingerprint)
    )
}

/// Returns the step that pins a key.
fn how_to_pin(workspace: &str, fingerprint: Fingerprint) -> String {
    format!("start the operator with --workspace-fingerprint {}", word(&format!("{workspace}={fingerprint}")))
}

/// Returns the step that accepts an older state.
fn how_to_accept(environment: &EnvironmentName) -> String {
    let accepted = word(&format!("{environment}=WORD"));
    format!("start the operator with --accept-older {accepted}, where WORD is a new word such as the date")
}

#[cfg(test)]
mod tests {
    use konverge_zopp_client::{CallError, ManifestFault, trust::PinMismatch};
    use tonic::Status;

    use super::*;
    use crate::{messages, plan::Problem, zopp::reference};

    #[test]
    fn every_command_for_a_person_quotes_the_names() {
        let (name, source) = ("x; id", || CallError::Refused {
            rpc: "Read",
            server: "zopp".into(),
            status: Box::new(Status::permission_denied("")),
        });
        let environment = || EnvironmentName::new(name, name, name);
        let fingerprint = Fingerprint::of_principal(b"a", b"");
        let mismatch = PinMismatch { what: String::new(), pinned: fingerprint, offered: fingerprint };
        let failed = |error| fetch_failed("p", &error).text;
        let show = "zopp workspace fingerprint -w 'x; id'";
        let pin = &*format!("--workspace-fingerprint 'x; id={fingerprint}'");
        let accept = "--accept-older 'x; id/x; id/x; id=WORD'";
        let protect = "zopp environment protect 'x; id' -w 'x; id' -p 'x; id'";
        let went_back = Problem::WentBack { applied: 4, stated: 2 };
        let replaced = Problem::Replaced { applied: "e1".into(), stated: "e2".into() };
        for (text, commands) in [
            (messages::not_allowed(name, &reference(&environment())).text, vec!["--allow 'x; id=x; id/x; id/x; id'"]),
            (
                failed(FetchError::PermissionDenied { environment: environment(), source: source() }),
                vec!["zopp permission env-set -w 'x; id' -p 'x; id' -e 'x; id' --principal p"],
            ),
            (failed(FetchError::OtherKey { environment: environment(), source: mismatch.clone() }), vec![show, accept]),
            (failed(FetchError::ForgedKey { environment: environment(), source: mismatch.into() }), vec![show]),
            (
                failed(FetchError::Unpinned {
                    environment: environment(),
                    workspace: name.into(),
                    offered: fingerprint,
                }),
                vec![show, pin],
            ),
            (
                failed(FetchError::NotCurrent { environment: environment(), source: ManifestFault::Missing }),
                vec![protect, accept],
            ),
            (messages::problem(&reference(&environment()), &went_back).text, vec![accept]),
            (messages::problem(&reference(&environment()), &replaced).text, vec![protect, accept]),
            (first_key(name, fingerprint), vec![show, pin]),
            (recorded_first_key(name, fingerprint, &["team-a/s".to_owned()].into()), vec![show, pin]),
        ] {
            assert!(commands.iter().all(|command| text.contains(command)), "{commands:?} in {text}");
        }
    }
}
