//! `zopp secret history`, `rollback` and `forget`: the earlier values of a secret.

use clap::Args;
use konverge_core::SecretValue;
use konverge_zopp_client::{Client, EnvironmentWriter, history::Version, writer::WriteError};
use serde::Serialize;

use super::{EnvironmentObject, no_such_key, odd_key};
use crate::{
    escape::visible,
    failure::{Failure, failed},
    output::{Answer, Document, JsonValue, Outcome, plain, time},
    scope::{EnvironmentArguments, Place},
    wiped::Wiped,
};

pub(super) const EXAMPLES: &str = "\
Examples:
  zopp secret history API_KEY
  zopp secret history API_KEY --show
  zopp secret rollback API_KEY --to 12

The server keeps earlier values until there are too many of them, until the environment gets a new
key, or until \"zopp secret forget\". Their numbers, times and authors are by the word of the server.";

/// `zopp secret history`
#[derive(Debug, Args)]
pub struct HistoryArguments {
    /// Its key, also of a deleted secret
    key: String,
    /// Print the values as well; takes the write role
    #[arg(long)]
    show: bool,
    #[command(flatten)]
    environment: EnvironmentArguments,
}

/// `zopp secret rollback`
#[derive(Debug, Args)]
pub struct RollbackArguments {
    /// Its key, also of a deleted secret
    key: String,
    /// The version that "zopp secret history" shows
    #[arg(long, value_name = "VERSION", value_parser = clap::value_parser!(i64).range(0..))]
    to: i64,
    #[command(flatten)]
    environment: EnvironmentArguments,
}

/// `zopp secret forget`
#[derive(Debug, Args)]
pub struct ForgetArguments {
    /// Its key, also of a deleted secret
    key: String,
    #[command(flatten)]
    environment: EnvironmentArguments,
}

/// `secret history`
struct History {
    key: String,
    environment: String,
    shown: bool,
    versions: Vec<Version>,
}

/// A version in JSON. Times are RFC 3339.
#[derive(Serialize)]
struct VersionObject<'a> {
    version: i64,
    /// `current`, `replaced` or `deleted`.
    state: &'static str,
    set_at: String,
    /// The name of the principal, or its ID if it is gone.
    set_by: Option<&'a str>,
    ended_version: Option<i64>,
    ended_at: Option<String>,
    ended_by: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<JsonValue<'a>>,
    /// Why there is no value.
    #[serde(skip_serializing_if = "Option::is_none")]
    undecryptable: Option<String>,
}

/// `secret rollback`
#[derive(Serialize)]
struct RolledBack {
    key: String,
    environment: EnvironmentObject,
    /// The version whose value it has again.
    to: i64,
}

/// `secret forget`
#[derive(Serialize)]
struct Forgotten {
    key: String,
    environment: EnvironmentObject,
    erased: u32,
}

impl<'a> VersionObject<'a> {
    fn of(version: &'a Version) -> Self {
        let name = |actor: &'a konverge_zopp_proto::secrets::Actor| {
            if actor.name.is_empty() { actor.principal_id.as_str() } else { actor.name.as_str() }
        };
        let end = version.end.as_ref();
        let (value, undecryptable) = match &version.value {
            None => (None, None),
            Some(Ok(value)) => (Some(JsonValue(value.expose())), None),
            Some(Err(error)) => (None, Some(error.to_string())),
        };
        Self {
            version: version.number,
            state: end.map_or("current", |end| if end.deleted { "deleted" } else { "replaced" }),
            set_at: time(version.set_at),
            set_by: version.set_by.as_ref().map(name),
            ended_version: end.map(|end| end.version),
            ended_at: end.map(|end| time(end.at)),
            ended_by: end.and_then(|end| end.by.as_ref()).map(name),
            value,
            undecryptable,
        }
    }

    /// The line for people, without the value.
    fn line(&self) -> String {
        let by = self.set_by.unwrap_or("unknown");
        let end = match (self.ended_version, &self.ended_at) {
            (Some(version), Some(at)) => {
                format!("{} at version {version}, {at}, by {}", self.state, self.ended_by.unwrap_or("unknown"))
            }
            _ => self.state.to_owned(),
        };
        format!("  {}  set {} by {by}; {end}", self.version, self.set_at)
    }
}

impl Answer for History {
    fn text(&self, text: &mut Wiped) -> Result<(), Failure> {
        let heading = format!("Versions of secret '{}' of {}:", self.key, self.environment);
        text.push(visible(&heading).as_bytes());
        text.push(b"\n");
        for version in &self.versions {
            let object = VersionObject::of(version);
            text.push(visible(&object.line()).as_bytes());
            text.push(b"\n");
            match &version.value {
                None => {}
                Some(Ok(value)) => push_value(text, value),
                Some(Err(error)) => text.push(format!("     cannot be decrypted: {error}\n").as_bytes()),
            }
        }
        Ok(())
    }

    fn holds_values(&self) -> bool {
        self.shown
    }

    fn object(&self, document: &mut Document<'_>) -> Result<(), Failure> {
        #[derive(Serialize)]
        struct Object<'a> {
            key: &'a str,
            versions: Vec<VersionObject<'a>>,
        }
        let versions = self.versions.iter().map(VersionObject::of).collect();
        document.put(&Object { key: &self.key, versions })
    }
}

/// Each line of a value is indented, so that no value looks like the next version.
fn push_value(text: &mut Wiped, value: &SecretValue) {
    for line in value.expose().split(|byte| *byte == b'\n') {
        text.push(b"     ");
        text.push(line);
        text.push(b"\n");
    }
}

pub(super) async fn history(client: &Client, arguments: HistoryArguments) -> Outcome {
    let HistoryArguments { key, show, environment } = arguments;
    let name = environment.resolve()?;
    odd_key::refuse_unknown(client, &name, &key, "history").await?;
    let what = format!("cannot read the history of secret '{key}' of {name}");
    let need = Place::Environment(name.clone()).need(if show { "write" } else { "read" }, client);
    let writer = EnvironmentWriter::new(client.clone(), name.clone());
    let versions = writer.history(&key, show).await.map_err(|error| match error {
        WriteError::NoSuchKey(key) => no_such_key(&what, &key),
        error => failed(what, need)(error),
    })?;
    Ok(Box::new(History { key, environment: name.to_string(), shown: show, versions }))
}

pub(super) async fn rollback(client: &Client, arguments: RollbackArguments) -> Outcome {
    let RollbackArguments { key, to, environment } = arguments;
    odd_key::refuse(&key, "Write the key alone: zopp secret rollback KEY --to VERSION")?;
    let name = environment.resolve()?;
    let what = format!("cannot set secret '{key}' of {name} to its value of version {to}");
    let need = Place::Environment(name.clone()).need("write", client);
    let writer = EnvironmentWriter::new(client.clone(), name.clone());
    writer.roll_back(&key, to).await.map_err(|error| match error {
        WriteError::NoSuchVersion { .. } => {
            Failure::new(what).because(error).next(format!("See which versions there are: zopp secret history {key}."))
        }
        error => failed(what, need)(error),
    })?;
    let text = format!("Secret '{key}' set to its value of version {to}");
    Ok(plain(RolledBack { key, environment: name.into(), to }, text))
}

pub(super) async fn forget(client: &Client, arguments: ForgetArguments) -> Outcome {
    let ForgetArguments { key, environment } = arguments;
    let name = environment.resolve()?;
    odd_key::refuse_unknown(client, &name, &key, "forget").await?;
    let what = format!("cannot erase the earlier values of secret '{key}' of {name}");
    let need = Place::Environment(name.clone()).need("write", client);
    let writer = EnvironmentWriter::new(client.clone(), name.clone());
    let erased = writer.forget_history(&key).await.map_err(failed(what, need))?;
    let text = match erased {
        0 => format!("Secret '{key}' has no earlier values"),
        1 => format!("1 earlier value of secret '{key}' erased"),
        _ => format!("{erased} earlier values of secret '{key}' erased"),
    };
    Ok(plain(Forgotten { key, environment: name.into(), erased }, text))
}
