//! The message of a failed command: the failure, the cause, and the next step.

use std::{error::Error, fmt::Write, process::ExitCode};

use konverge_zopp_client::{
    CallError, ConfigError, CredentialsError, FetchError, ManifestFault, config_file::FileError, error::NO_TLS,
    key_rotation::RotationError, keys::KeyAccessError, trust::PinMismatch, writer::WriteError,
};
use tonic::Code;

use crate::{escape::visible, project_file::ProjectFileError};

const RUNTIME: u8 = 1;
const USAGE: u8 = 2;

/// A failed command.
#[derive(Debug)]
pub struct Failure {
    what: String,
    source: Option<Box<dyn Error + Send + Sync>>,
    next: Option<String>,
    exit_code: u8,
}

impl Failure {
    /// The failure, in lower case and without a full stop.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), source: None, next: None, exit_code: RUNTIME }
    }

    /// Arguments that make no sense: exit code 2.
    pub fn usage(what: impl Into<String>) -> Self {
        Self { exit_code: USAGE, ..Self::new(what) }
    }

    /// Sets another exit code.
    #[must_use]
    pub fn exit_code(self, exit_code: u8) -> Self {
        Self { exit_code, ..self }
    }

    /// Why it failed.
    #[must_use]
    pub fn because(self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { source: Some(source.into()), ..self }
    }

    /// The next step, as a sentence.
    #[must_use]
    pub fn next(self, next: impl Into<String>) -> Self {
        Self { next: Some(next.into()), ..self }
    }

    /// Adds a further step, as a sentence.
    #[must_use]
    pub fn and_next(self, further: &str) -> Self {
        let next = self.next.map_or_else(|| further.to_owned(), |next| format!("{next} {further}"));
        Self { next: Some(next), ..self }
    }

    /// With words for what was done before it failed.
    #[must_use]
    pub fn after(self, done: &str) -> Self {
        Self { what: format!("{done}{}", self.what), ..self }
    }

    /// The text, without the leading `Error:`.
    pub fn text(&self) -> String {
        let mut text = self.what.clone();
        let mut source = self.source.as_ref().map(|source| source.as_ref() as &dyn Error);
        while let Some(error) = source {
            let reason = error.to_string();
            // Errors that quote their source would say everything twice.
            if !text.contains(&reason) {
                let _ = write!(text, ": {reason}");
            }
            source = error.source();
        }
        // Names and messages from the server must neither control the terminal nor begin lines of their own.
        let mut text = visible(&text);
        if let Some(next) = &self.next {
            let _ = write!(text, "\n  {}", visible(next));
        }
        text
    }

    /// Writes it to standard error and gives the exit code.
    pub fn report(&self) -> ExitCode {
        eprintln!("Error: {}", self.text());
        ExitCode::from(self.exit_code)
    }
}

/// For calls: `client.list_projects(request).await.map_err(failed("cannot list projects", &needs))`.
pub fn failed<E: Refusal>(what: impl Into<String>, need: Option<Need>) -> impl FnOnce(E) -> Failure {
    move |error| {
        let next = error.call().and_then(|call| next_step(call, need.as_ref()));
        let next = next.or_else(|| error.pin().map(after_mismatch));
        let next = next.or_else(|| error.fault().map(|_| AFTER_FAULT.to_owned()));
        let next = next.or_else(|| error.unvouched().map(pin_first));
        Failure { next, ..Failure::new(what).because(error) }
    }
}

/// Errors that may be a failed call.
pub trait Refusal: Error + Send + Sync + 'static {
    /// The failed access to a workspace's key, if it is that. It then answers the next three questions.
    fn access(&self) -> Option<&KeyAccessError> {
        None
    }

    /// The call, if it is one.
    fn call(&self) -> Option<&CallError> {
        self.access()?.call()
    }

    /// The key that is not the pinned one, if it is that.
    fn pin(&self) -> Option<&PinMismatch> {
        self.access()?.pin()
    }

    /// The workspace whose key nobody vouches for, if it is that.
    fn unvouched(&self) -> Option<&str> {
        self.access()?.unvouched()
    }

    /// Returns the fault of an environment's state, if that is the cause.
    fn fault(&self) -> Option<&ManifestFault> {
        None
    }
}

/// The next step for an environment that is not in the state that its manifest shows.
const AFTER_FAULT: &str =
    "See what differs: zopp environment protect <environment>. Only if it is right, accept it: add --accept-changes.";

impl Refusal for CallError {
    fn call(&self) -> Option<&CallError> {
        Some(self)
    }
}

impl Refusal for KeyAccessError {
    fn call(&self) -> Option<&CallError> {
        match self {
            Self::Call(call) => Some(call),
            Self::NoExchangeKey { .. }
            | Self::OtherKey(_)
            | Self::BadSignature { .. }
            | Self::Chain { .. }
            | Self::Unvouched { .. }
            | Self::Unpinned { .. }
            | Self::AmbiguousName { .. }
            | Self::Open { .. } => None,
        }
    }

    fn pin(&self) -> Option<&PinMismatch> {
        match self {
            Self::OtherKey(mismatch) => Some(mismatch),
            _ => None,
        }
    }

    fn unvouched(&self) -> Option<&str> {
        match self {
            Self::Unvouched { workspace } | Self::Chain { workspace, .. } => Some(workspace),
            _ => None,
        }
    }
}

impl Refusal for PinMismatch {
    fn pin(&self) -> Option<&PinMismatch> {
        Some(self)
    }
}

impl Refusal for WriteError {
    fn access(&self) -> Option<&KeyAccessError> {
        match self {
            Self::Access(access) => Some(access),
            _ => None,
        }
    }

    fn fault(&self) -> Option<&ManifestFault> {
        match self {
            Self::NotCurrent(fault) => Some(fault),
            _ => None,
        }
    }
}

impl Refusal for RotationError {
    fn access(&self) -> Option<&KeyAccessError> {
        match self {
            Self::Access(access) => Some(access),
            _ => None,
        }
    }
}

impl Refusal for FetchError {
    fn call(&self) -> Option<&CallError> {
        self.source().and_then(|source| source.downcast_ref())
    }

    fn fault(&self) -> Option<&ManifestFault> {
        match self {
            Self::NotCurrent { source, .. } => Some(source),
            _ => None,
        }
    }

    fn pin(&self) -> Option<&PinMismatch> {
        self.source().and_then(|source| source.downcast_ref())
    }

    fn unvouched(&self) -> Option<&str> {
        self.source().and_then(|source| source.downcast_ref::<KeyAccessError>()).and_then(Refusal::unvouched)
    }
}

/// The next step for a key that differs from the pinned one. Nothing that a server says may lead to the new key by itself.
fn after_mismatch(mismatch: &PinMismatch) -> String {
    let PinMismatch { what, offered, .. } = mismatch;
    let command = match what.split_once('\'') {
        Some((_, workspace)) => {
            format!("zopp workspace fingerprint -w {} --pin {offered}", workspace.trim_end_matches('\''))
        }
        None => format!("add --fingerprint {offered}"),
    };
    format!(
        "Nothing was sent. Ask another member, not the server, for the fingerprint on their device. Only if it is the new one: {}",
        visible(&command)
    )
}

/// The next step for a key that nobody vouches for.
fn pin_first(workspace: &str) -> String {
    format!(
        "Ask another member for the fingerprint on their device (zopp workspace fingerprint), and pin it: zopp workspace fingerprint -w {} \
         --pin <fingerprint>",
        visible(workspace)
    )
}

impl From<PinMismatch> for Failure {
    fn from(mismatch: PinMismatch) -> Self {
        let next = after_mismatch(&mismatch);
        Self::new("the server's answer is refused").because(mismatch).next(next)
    }
}

/// The role that a command needs, for the sentence that says who can grant it and how.
#[derive(Debug, Clone)]
pub struct Need {
    /// `read`, `write` or `admin`.
    pub role: &'static str,
    /// Workspace name.
    pub workspace: String,
    /// Project name, if the role is needed in one.
    pub project: Option<String>,
    /// Environment name, if the role is needed in one.
    pub environment: Option<String>,
    /// The caller, whom an admin would name.
    pub principal_id: String,
    /// Whether the caller is a person, whose role does not come from principal permissions.
    pub is_human: bool,
}

impl Need {
    fn sentence(&self) -> String {
        let Self { role, workspace, project, environment, principal_id, is_human } = self;
        if *is_human {
            return format!("Ask the owner or an admin of workspace '{workspace}' for the {role} role.");
        }
        let (verb, place) = match (project, environment) {
            (Some(project), Some(environment)) => ("env-set", format!("-w {workspace} -p {project} -e {environment}")),
            (Some(project), None) => ("project-set", format!("-w {workspace} -p {project}")),
            _ => ("set", format!("-w {workspace}")),
        };
        format!("An admin can grant it: zopp permission {verb} {place} --principal {principal_id} --role {role}")
    }
}

fn next_step(error: &CallError, need: Option<&Need>) -> Option<String> {
    let says = |beginning: &str| error.server_message().is_some_and(|message| message.starts_with(beginning));
    let text = match (error, error.code()) {
        (CallError::Unreachable { reason, .. }, _) if reason.contains(NO_TLS) => {
            "Write http:// if the server is meant to have no TLS; else --server or ZOPP_SERVER names another address."
        }
        (CallError::Unreachable { reason, server, .. }, _) if server.starts_with("https://") && was_hung_up(reason) => {
            "Does the server require a client certificate? Name one with --tls-client-cert and --tls-client-key, or with \
             ZOPP_TLS_CLIENT_CERT and ZOPP_TLS_CLIENT_KEY."
        }
        (CallError::Unreachable { reason, .. }, _) if reason.contains("certificate") || reason.contains("tls") => {
            "Name the certificate authority of the server with --tls-ca-cert or ZOPP_TLS_CA_CERT."
        }
        // Tonic's error when a TLS server answers a plaintext connection.
        (CallError::Unreachable { reason, server, .. }, _)
            if server.starts_with("http://") && reason.contains("stream closed") =>
        {
            "Write https:// if the server uses TLS; else --server or ZOPP_SERVER names another address."
        }
        (CallError::Unreachable { .. } | CallError::Deadline { .. }, _) => {
            "Is zopp-server running there? --server or ZOPP_SERVER names another address."
        }
        // Its own words say what to do.
        (CallError::FirstGeneration { .. }, _) => return None,
        (CallError::Garbage { .. }, _) => {
            "Is this the address of a zopp-server, and does it use TLS exactly if the address begins with https?"
        }
        (_, Code::InvalidArgument) if says("principal_id") => {
            "It is the ID that counts, not the name: zopp principal list and zopp principal service-list show both."
        }
        (_, Code::Unauthenticated) if says("service principals") => {
            "Switch to a principal of yours: zopp principal list, zopp principal use <name>."
        }
        (_, Code::Unauthenticated) => {
            "The server does not know this principal, or the clocks differ; \"zopp principal list\" shows who you are."
        }
        (_, Code::PermissionDenied) => return need.map(Need::sentence),
        (_, Code::NotFound) => return error.server_message().and_then(what_there_is).map(str::to_owned),
        (_, Code::Unimplemented) => "This server does not know the command; it may be of an older version.",
        _ => return None,
    };
    Some(text.to_owned())
}

/// How it shows that a server hangs up on a client without a certificate: by its alert, or by what the system says if that comes first.
fn was_hung_up(reason: &str) -> bool {
    let reason = reason.to_lowercase();
    ["certificaterequired", "broken pipe", "reset", "closed", "eof"].iter().any(|sign| reason.contains(sign))
}

/// Returns the command that lists the objects of the kind that the server did not find.
fn what_there_is(message: &str) -> Option<&'static str> {
    let (kind, rest) = message.split_once(' ')?;
    match kind {
        // Its own words say what to do.
        _ if rest.contains("ask for") || rest.contains("no permission here") => None,
        "user" if rest.contains("is not a member of workspace") => {
            Some("Invite the user with zopp invite create, or add --allow-non-member.")
        }
        "user" => Some("See what there is: zopp group list-members, zopp permission user-list."),
        "group" => Some("See what there is: zopp group list."),
        "audit" => Some("See what there is: zopp audit list."),
        "secret" => Some("See what there is: zopp secret list."),
        "invite" => Some("See what there is: zopp invite list."),
        "principal" => Some("See what there is: zopp principal list, zopp principal service-list."),
        _ => Some("See what there is: zopp workspace list, zopp project list, zopp environment list."),
    }
}

macro_rules! plain {
    ($($error:ty),*) => {
        $(
            impl From<$error> for Failure {
                fn from(error: $error) -> Self {
                    // The text of these errors already says what failed and what to do.
                    let source = error.source().map(ToString::to_string);
                    match source {
                        Some(source) if !error.to_string().contains(&source) => {
                            Self::new(format!("{error}: {source}"))
                        }
                        _ => Self::new(error.to_string()),
                    }
                }
            }
        )*
    };
}

plain!(ConfigError, CredentialsError, FileError);

impl From<ProjectFileError> for Failure {
    fn from(error: ProjectFileError) -> Self {
        let next = error.next_step();
        let failure = Self::new(error.to_string());
        let failure = match error {
            ProjectFileError::Unreadable { source, .. } => failure.because(source),
            ProjectFileError::Malformed { .. } | ProjectFileError::Unsafe { .. } => failure,
        };
        Self { next, ..failure }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(is_human: bool, environment: Option<&str>) -> Need {
        Need {
            role: "write",
            workspace: "acme".to_owned(),
            project: Some("backend".to_owned()),
            environment: environment.map(str::to_owned),
            principal_id: "id".to_owned(),
            is_human,
        }
    }

    #[test]
    fn a_missing_role_names_the_command_that_grants_it() {
        assert_eq!(
            need(false, Some("dev")).sentence(),
            "An admin can grant it: zopp permission env-set -w acme -p backend -e dev --principal id --role write"
        );
        assert_eq!(
            need(false, None).sentence(),
            "An admin can grant it: zopp permission project-set -w acme -p backend --principal id --role write"
        );
        assert_eq!(need(true, None).sentence(), "Ask the owner or an admin of workspace 'acme' for the write role.");
    }

    #[test]
    fn what_is_not_found_is_listed_by_another_command() {
        for (message, expected) in [
            ("secret \"K\" not found", Some("zopp secret list.")),
            ("environment \"dev\" not found", Some("zopp environment list.")),
            ("principal \"id\" not found", Some("zopp principal service-list.")),
            ("principal \"id\" has no permission here", None),
            ("invite not found", Some("zopp invite list.")),
            ("group \"ops\" not found", Some("zopp group list.")),
            ("user \"a@b\" is not a member of group \"ops\"", Some("zopp permission user-list.")),
            ("invite not found; ask for a new one", None),
        ] {
            let next = what_there_is(message);
            assert_eq!(next.and_then(|next| next.rsplit(", ").next()?.rsplit(": ").next()), expected, "{message}");
        }
    }

    #[test]
    fn the_chain_of_reasons_is_one_line_and_says_nothing_twice() {
        let io = std::io::Error::other("disk full");
        let failure = Failure::new("cannot write x: disk full").because(io).next("Make room.");
        assert_eq!(failure.text(), "cannot write x: disk full\n  Make room.");
        let failure = Failure::new("cannot write x").because(std::io::Error::other("disk full"));
        assert_eq!(failure.text(), "cannot write x: disk full");
    }
}
