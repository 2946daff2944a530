//! The statements about a Secret, for its owner: the object, the cause and the next step; never a value.

use std::collections::BTreeSet;

use konverge_apply::{ApplyError, Severity, Statement};
use konverge_core::{
    error::{Classify, ErrorClass},
    names::few,
};
use konverge_zopp_client::{EnvironmentName, FetchError, Fingerprint};

use crate::{
    annotations::KEYS,
    plan::{Problem, SECRET_SIZE_LIMIT},
    reasons,
    reconcile::LONGEST_REVERT_PAUSE,
};

/// Returns whether saying `new` after `said` would hide a better explanation: a server that refuses may be out of reach in between.
pub fn explains_more_than(said: &Statement, new: &Statement) -> bool {
    new.reason == reasons::SERVER_UNREACHABLE && said.is_passing && said.reason != new.reason
}

fn failure(reason: &'static str, text: String) -> Statement {
    Statement { is_passing: reasons::PASSING.contains(&reason), ..Statement::new(Severity::Problem, reason, text) }
}

/// The Secret holds the environment. `proven`: a manifest shows that it is whole and current. The text carries no version: a series of events keeps the text of its first, which would
/// soon be wrong.
pub fn synced(name: &EnvironmentName, proven: bool) -> Statement {
    let unproven = if proven { "" } else { "; it has no manifest to show that it is whole and current" };
    Statement::new(Severity::Good, reasons::SYNCED, format!("in sync with {name}{unproven}"))
}

/// The Secret asks to be synced but not from where.
pub fn incomplete(missing: &[&'static str]) -> Statement {
    let missing = missing.join(", ");
    failure(
        reasons::INVALID_ANNOTATION,
        format!("annotation missing or empty: {missing}. The data stays as it is; set it, or remove zopp.dev/sync"),
    )
}

/// The platform's rules do not let this namespace read this environment.
pub fn not_allowed(namespace: &str, name: &EnvironmentName) -> Statement {
    failure(
        reasons::NOT_ALLOWED,
        format!(
            "namespace {namespace} may not read {name}. The data stays as it is; the operator's administrator can \
             permit it with --allow {}",
            word(&format!("{namespace}={name}"))
        ),
    )
}

/// The Secret requests a choice of keys, and gets all.
pub fn keys_not_supported(name: &EnvironmentName) -> Statement {
    failure(
        reasons::FEATURE_MISSING,
        format!(
            "{KEYS} is not supported: the Secret holds all keys of {name}. Put the keys that it needs into an environment of their own, or remove \
             the annotation"
        ),
    )
}

/// A `ZoppSecretSync` is not followed.
pub fn kind_not_supported() -> Statement {
    failure(
        reasons::FEATURE_MISSING,
        "ZoppSecretSync is not supported, so nothing is synced for this object. Annotate a Secret with zopp.dev/sync, or keep the original operator for \
         these objects"
            .to_owned(),
    )
}

/// The environment could not be read.
pub fn fetch_failed(principal: &str, error: &FetchError) -> Statement {
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

/// The API server did not take the write.
pub fn apply_failed(environment: &EnvironmentName, error: &ApplyError) -> Statement {
    if error.is_immutable() {
        return problem(environment, &Problem::Immutable);
    }
    let then = match error {
        ApplyError::Altered { .. } => "It is tried again",
        _ => "The data stays as it is",
    };
    let statement = failure(reasons::SYNC_FAILED, format!("{error}. {then} ({})", error.reason()));
    Statement { is_refusal: error.class() == ErrorClass::Refused, ..statement }
}

/// A problem that the plan found.
pub fn problem(environment: &EnvironmentName, problem: &Problem) -> Statement {
    match problem {
        Problem::InvalidKeys(keys) => failure(
            reasons::INVALID_KEY_NAME,
            format!(
                "left out, because Kubernetes does not allow the name: {}. The other keys are in sync; rename with \
                 letters, digits, '-', '_' and '.'",
                quoted(keys)
            ),
        ),
        Problem::Undecryptable(keys) => failure(
            reasons::DECRYPTION_FAILED,
            format!(
                "cannot decrypt {}: they keep the value they have here. The other keys are in sync; set them again with: \
                 zopp secret set",
                quoted(keys)
            ),
        ),
        Problem::TooLarge { size } => failure(
            reasons::TOO_LARGE,
            format!(
                "the environment holds {size} bytes and a Secret at most {SECRET_SIZE_LIMIT}. The data stays as it is; \
                 move keys to another environment"
            ),
        ),
        Problem::Immutable => failure(
            reasons::IMMUTABLE,
            "the Secret is marked immutable and differs from the environment. Delete and create it again, without \
             'immutable' if it is to follow"
                .to_owned(),
        ),
        Problem::NeverFilled => failure(
            reasons::ENVIRONMENT_EMPTY,
            "the environment has never held a key. The data stays as it is until it holds one".to_owned(),
        ),
        Problem::Replaced { applied, stated } => failure(
            reasons::ENVIRONMENT_REPLACED,
            format!(
                "the server states the environment {stated:?} of this name and {applied:?} was applied before. The data stays as it is; \
                 if the environment was made anew on purpose, a manifest proves it (zopp environment protect {} -w {} -p {}), or {}",
                word(&environment.environment),
                word(&environment.workspace),
                word(&environment.project),
                how_to_accept(environment)
            ),
        ),
        Problem::WentBack { applied, stated } => failure(
            reasons::SOURCE_WENT_BACK,
            format!(
                "the server states version {stated} of the environment and {applied} was applied before. The data stays \
                 as it is; if the server was restored from a backup on purpose, {}",
                how_to_accept(environment)
            ),
        ),
    }
}

/// Returns the warning about a trusted first key of a workspace.
pub fn first_key(workspace: &str, fingerprint: Fingerprint) -> String {
    format!(
        "the key {fingerprint} of workspace {workspace:?} is trusted because it is, or follows from, the first that the server gave. {}",
        how_to_compare(workspace, fingerprint)
    )
}

/// Returns the same warning for a reader of these Secrets, who cannot tell whether the operator wrote their records.
pub fn recorded_first_key(workspace: &str, fingerprint: Fingerprint, secrets: &BTreeSet<String>) -> String {
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

/// Quotes a word of a command line, which a person may copy into a shell. Tenants and servers choose the names in it. A control character is
/// escaped, since a terminal may act on it although it is quoted.
fn word(text: &str) -> String {
    let escape = |letter: char| {
        if letter.is_control() { letter.escape_default().to_string() } else { letter.to_string() }
    };
    let text: String = text.chars().map(escape).collect();
    shlex::try_quote(&text).unwrap_or_default().into_owned()
}

/// Returns the statement that another client keeps reverting the operator's writes.
pub fn contested(other: Option<&str>) -> Statement {
    let other = other.map_or_else(|| "another client".to_owned(), |other| format!("{other:?}"));
    failure(
        reasons::CONTESTED,
        format!(
            "{other} keeps reverting the operator's writes to this Secret, so the operator writes again after growing pauses of up to {} minutes. \
             Have only one of the two write it: stop the other one, or remove zopp.dev/sync",
            LONGEST_REVERT_PAUSE.as_secs() / 60
        ),
    )
}

/// Puts the names between quotes, since a key may hold anything.
fn quoted(keys: &[String]) -> String {
    few(keys.iter().map(|key| format!("{key:?}")))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use konverge_zopp_client::{CallError, ManifestFault, trust::PinMismatch};
    use tonic::Status;

    use super::*;

    #[test]
    fn every_problem_says_what_becomes_of_the_data_or_the_next_step() {
        for problem in [
            Problem::InvalidKeys(vec!["a b".into()]),
            Problem::Undecryptable(vec!["A".into()]),
            Problem::TooLarge { size: 2_000_000 },
            Problem::Immutable,
            Problem::NeverFilled,
            Problem::Replaced { applied: "e1".into(), stated: "e2".into() },
            Problem::WentBack { applied: 4, stated: 2 },
        ] {
            let name = EnvironmentName::new("acme", "backend", "production");
            let statement = super::problem(&name, &problem);
            assert!(reasons::REASONS.iter().any(|entry| entry.reason == statement.reason), "{problem:?}");
            assert!(statement.text.contains('.'), "{problem:?}");
            assert!(statement.is_problem() && !statement.is_passing);
        }
    }

    #[test]
    fn a_word_reaches_the_command_whatever_a_tenant_calls_a_thing() {
        for name in ["acme", "a b", "x; id", "x' ; id; '", "$(id)", "`id`", "\"", "a\\b", "!!", "^a^b", "", "é"] {
            let line = format!("printf %s {}", word(name));
            let output = Command::new("sh").args(["-c", &line]).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), name, "{line}");
        }
        // A terminal acts on these before a shell reads the quotes.
        let escaped = word("x\u{3}\nid\n\u{1b}[201~");
        assert!(!escaped.chars().any(char::is_control), "{escaped:?}");
    }

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
            (not_allowed(name, &environment()).text, vec!["--allow 'x; id=x; id/x; id/x; id'"]),
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
            (super::problem(&environment(), &went_back).text, vec![accept]),
            (super::problem(&environment(), &replaced).text, vec![protect, accept]),
            (first_key(name, fingerprint), vec![show, pin]),
            (recorded_first_key(name, fingerprint, &["team-a/s".to_owned()].into()), vec![show, pin]),
        ] {
            assert!(commands.iter().all(|command| text.contains(command)), "{commands:?} in {text}");
        }
    }
}
