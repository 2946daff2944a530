//! The statements about a Secret, for its owner: the object, the cause and the next step; never a value.

use konverge_apply::{ApplyError, Severity, Statement};
use konverge_core::{
    error::{Classify, ErrorClass},
    names::few,
};

use crate::{
    allow,
    annotations::PAUSE,
    bindings::SecretRef,
    plan::{Problem, SECRET_SIZE_LIMIT},
    reasons,
    reconcile::LONGEST_REVERT_PAUSE,
    source::{ConnectionName, Reference},
    vault,
    wanted::{Foreign, Owner, Wanted},
    zopp::{self, messages as zopp_messages},
};

/// Returns whether saying `new` after `said` would hide a better explanation: a server that refuses may be out of reach in between.
pub fn explains_more_than(said: &Statement, new: &Statement) -> bool {
    new.reason == reasons::SERVER_UNREACHABLE && said.is_passing && said.reason != new.reason
}

pub(crate) fn failure(reason: &'static str, text: String) -> Statement {
    Statement { is_passing: reasons::PASSING.contains(&reason), ..Statement::new(Severity::Problem, reason, text) }
}

/// The Secret holds the content. The text carries no version: a series of events keeps the text of its first, which would soon be wrong.
pub fn synced(wanted: &Wanted, remark: Option<&str>) -> Statement {
    let remark = remark.map(|remark| format!("; {remark}")).unwrap_or_default();
    Statement::new(Severity::Good, reasons::SYNCED, format!("in sync with {wanted}{remark}"))
}

/// The Secret asks to be synced but not from where.
pub fn incomplete(missing: &[&'static str]) -> Statement {
    let missing = missing.join(", ");
    failure(
        reasons::INVALID_ANNOTATION,
        format!("annotation missing or empty: {missing}. The data stays as it is; set it, or remove zopp.dev/sync"),
    )
}

/// The value of an annotation cannot be used.
pub fn invalid_annotation(cause: &str) -> Statement {
    failure(
        reasons::INVALID_ANNOTATION,
        format!(
            "{cause}. The data stays as it is; change the annotation, or remove it if the Secret is not to be filled"
        ),
    )
}

/// The reference begins with `zopp://` and does not name an environment.
pub fn not_an_environment(reference: &Reference) -> Statement {
    invalid_annotation(&format!(
        "{reference} does not name an environment: zopp://WORKSPACE/PROJECT/ENVIRONMENT is expected"
    ))
}

/// The operator has no connection to the store.
pub fn no_connection(reference: &Reference) -> Statement {
    let next = match reference.scheme() {
        vault::SCHEME => "the operator's administrator connects it with --vault-addr",
        zopp::SCHEME => "the operator's administrator connects it with --server and --credentials",
        _ => "write zopp:// or vault://",
    };
    failure(
        reasons::SOURCE_NOT_CONNECTED,
        format!("this operator has no connection for {reference}. The data stays as it is; {next}"),
    )
}

/// No custom resource of this name has connected a store.
pub fn no_source(name: &ConnectionName) -> Statement {
    source_not_ready(&format!("{name} does not exist, or is not connected yet; create it, or correct the name"))
}

/// A custom resource that is a connection cannot be used.
pub fn source_not_ready(cause: &str) -> Statement {
    failure(reasons::SOURCE_NOT_READY, format!("{cause}. The data stays as it is"))
}

/// The selector of a connection leaves the namespace out.
pub fn namespace_not_admitted(name: &ConnectionName, namespace: &str) -> Statement {
    failure(
        reasons::NOT_ALLOWED,
        format!(
            "{name} is not for namespace {namespace}. The data stays as it is; the platform's administrators can add the namespace to \
             spec.namespaces, or its labels to spec.namespaceSelector"
        ),
    )
}

/// The connection leads to another store than the reference.
pub fn other_scheme(reference: &Reference, scheme: &str) -> Statement {
    source_not_ready(&format!(
        "{reference} cannot be read, since that source has references that begin with {scheme}://"
    ))
}

/// The platform's rules do not let this namespace read this content.
pub fn not_allowed(namespace: &str, reference: &Reference) -> Statement {
    let rule = word(&format!("{namespace}={}", allow::name(reference)));
    failure(
        reasons::NOT_ALLOWED,
        format!(
            "namespace {namespace} may not read {reference}. The data stays as it is; the operator's administrator can permit it with \
             --allow {rule}"
        ),
    )
}

/// The Secret has annotations with a prefix of this operator that nobody reads.
pub fn unknown_annotations(names: &[String]) -> Statement {
    failure(
        reasons::UNKNOWN_ANNOTATION,
        format!(
            "nobody reads {}; correct the name or remove the annotation. docs/reference/annotations.md lists all",
            quoted(names)
        ),
    )
}

/// The object cannot be used.
pub fn invalid_spec(cause: &str) -> Statement {
    failure(reasons::INVALID_SPEC, format!("{cause}. The Secret stays as it is"))
}

/// The object is suspended.
pub fn suspended() -> Statement {
    failure(reasons::SUSPENDED, "spec.suspend is true, so the Secret stays as it is".to_owned())
}

/// An annotation pauses the Secret.
pub fn paused() -> Statement {
    failure(reasons::PAUSED, format!("{PAUSE} is true, so the Secret stays as it is. Remove it to go on"))
}

/// An older object makes the same Secret.
pub fn target_taken(target: &SecretRef, first: &Owner) -> Statement {
    failure(
        reasons::TARGET_TAKEN,
        format!(
            "{first} is older and makes Secret {target}. It stays as {first} says; name another Secret, or delete {first}"
        ),
    )
}

/// The Secret must not be filled.
pub fn foreign(secret: &SecretRef, foreign: &Foreign) -> Statement {
    let text = match foreign {
        Foreign::Reserved(secret_type) => format!(
            "Secret {secret} has the type {secret_type}, which belongs to Kubernetes or Helm, so it is never filled. Name another Secret"
        ),
        Foreign::Annotated => format!(
            "annotations on Secret {secret} request a sync of their own. The Secret stays as they say; remove them, or name another Secret"
        ),
        Foreign::Of(owner) => format!(
            "Secret {secret} was made for {owner}. It stays as it is; name another Secret, or set spec.target.adopt to true to take it over"
        ),
        Foreign::Unknown => format!(
            "Secret {secret} exists and was not made by this operator. It stays as it is; name another Secret, or set spec.target.adopt to true to take it \
             over"
        ),
    };
    failure(reasons::TARGET_NOT_OWNED, text)
}

/// The API server did not take the write.
pub fn apply_failed(wanted: &Wanted, error: &ApplyError) -> Statement {
    if let (true, Some(source)) = (error.is_immutable(), wanted.sources.first()) {
        return problem(&source.reference, &Problem::Immutable);
    }
    let then = match error {
        ApplyError::Altered { .. } => "It is tried again",
        _ => "The data stays as it is",
    };
    let statement = failure(reasons::SYNC_FAILED, format!("{error}. {then} ({})", error.reason()));
    Statement { is_refusal: error.class() == ErrorClass::Refused, ..statement }
}

/// A problem that the plan found.
pub fn problem(reference: &Reference, problem: &Problem) -> Statement {
    let environment = zopp::environment(reference);
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
        Problem::MissingKeys(keys) => failure(
            reasons::KEY_NOT_FOUND,
            format!(
                "{reference} does not have {}: a value that the Secret has stays. The other keys are in sync; set the keys, or correct the choice of keys",
                quoted(keys)
            ),
        ),
        Problem::Collision(collision) => failure(
            reasons::KEYS_COLLIDE,
            format!("{collision}. The keys of {reference} stay as they are in the Secret; rename one of them"),
        ),
        Problem::OtherType { found } => failure(
            reasons::TYPE_DIFFERS,
            format!(
                "the Secret has the type {found}, and Kubernetes does not change the type of a Secret. It stays as it is; delete it and the operator makes \
                 it anew, or set that type"
            ),
        ),
        Problem::LacksKeys(keys) => failure(
            reasons::KEY_NOT_FOUND,
            format!(
                "the type of the Secret demands {}, which no source has. The Secret stays as it is; set the keys, or rename others",
                few(keys.iter())
            ),
        ),
        Problem::Unmade { key, cause } => failure(
            reasons::TEMPLATE_FAILED,
            format!(
                "the template cannot make {key:?}: {cause}. {key:?} keeps its value in the Secret; without one, the Secret stays as it is. Set what is \
                 missing, or correct spec.template"
            ),
        ),
        Problem::TooLarge { size } => failure(
            reasons::TOO_LARGE,
            format!(
                "{reference} holds {size} bytes and a Secret at most {SECRET_SIZE_LIMIT}. The data stays as it is; move keys to \
                 another place"
            ),
        ),
        Problem::Immutable => failure(
            reasons::IMMUTABLE,
            "the Secret is marked immutable and differs from its source. Delete and create it again, without \
             'immutable' if it is to follow"
                .to_owned(),
        ),
        Problem::NeverFilled => failure(
            reasons::ENVIRONMENT_EMPTY,
            format!("{reference} has never held a key. The data stays as it is until it holds one"),
        ),
        Problem::Replaced { applied, stated } => {
            let next =
                environment.map_or_else(|| "check the store".to_owned(), |name| zopp_messages::accept_replaced(&name));
            failure(
                reasons::ENVIRONMENT_REPLACED,
                format!(
                    "the server states the content {stated:?} of this name and {applied:?} was applied before. The data stays as it is; {next}"
                ),
            )
        }
        Problem::WentBack { applied, stated } => {
            let next = environment.map_or_else(
                || "a server that lags catches up by itself. If the store was restored from a backup on purpose, write the secret there again".to_owned(),
                |name| zopp_messages::accept_older(&name),
            );
            failure(
                reasons::SOURCE_WENT_BACK,
                format!(
                    "the server states version {stated} and {applied} was applied before. The data stays as it is; {next}"
                ),
            )
        }
    }
}

/// Quotes a word of a command line, which a person may copy into a shell. Tenants and servers choose the names in it. A control character is
/// escaped, since a terminal may act on it although it is quoted.
pub(crate) fn word(text: &str) -> String {
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
             Have only one of the two write it: stop the other one, or remove zopp.dev/sync or pull.konverge.dev/from",
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

    use super::*;
    use crate::select::Collision;

    #[test]
    fn every_problem_says_what_becomes_of_the_data_or_the_next_step() {
        for problem in [
            Problem::InvalidKeys(vec!["a b".into()]),
            Problem::Undecryptable(vec!["A".into()]),
            Problem::TooLarge { size: 2_000_000 },
            Problem::Immutable,
            Problem::NeverFilled,
            Problem::MissingKeys(vec!["A".into()]),
            Problem::Collision(Collision { name: "A".into(), keys: ["a".into(), "A".into()] }),
            Problem::OtherType { found: "Opaque".into() },
            Problem::LacksKeys(vec!["tls.crt"]),
            Problem::Replaced { applied: "e1".into(), stated: "e2".into() },
            Problem::WentBack { applied: 4, stated: 2 },
        ] {
            for reference in ["zopp://acme/backend/production", "vault://secret/db"] {
                let statement = super::problem(&reference.parse().unwrap(), &problem);
                assert!(reasons::REASONS.iter().any(|entry| entry.reason == statement.reason), "{problem:?}");
                assert!(statement.text.contains('.'), "{problem:?}");
                assert!(statement.is_problem() && !statement.is_passing);
            }
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
}
