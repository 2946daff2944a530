//! `zopp secret`.

use clap::{Args, Subcommand};
use konverge_zopp_client::{
    Client, EnvironmentName, EnvironmentReader, EnvironmentWriter,
    writer::{KeyChange, WriteError},
};
use serde::Serialize;

use crate::{
    context::Context,
    failure::{Failure, failed},
    output::{Answer, Document, JsonValue, Outcome, listing, plain},
    scope::{EnvironmentArguments, Place},
    value,
    wiped::Wiped,
};

mod edit;
mod export;
mod history;
mod import;
mod odd_key;

pub use export::snapshot;

const SET_EXAMPLES: &str = "\
Examples:
  zopp secret set API_KEY                      asks for the value without showing it
  printf %s \"$key\" | zopp secret set API_KEY   takes standard input, byte for byte
  zopp secret set TLS_CERT - < server.pem      the same
  zopp secret set GREETING hello               visible to others in the list of processes

A value that looks like one of the flags above stands behind \"--\".";

/// `zopp secret`
#[derive(Debug, Subcommand)]
pub enum SecretCommand {
    /// Set a secret
    #[command(after_help = SET_EXAMPLES)]
    Set(SetArguments),
    /// Print a secret's value
    #[command(after_help = "Examples:\n  zopp secret get API_KEY\n  zopp secret get TLS_CERT --raw > server.pem")]
    Get(GetArguments),
    /// List the keys of an environment
    List(EnvironmentArguments),
    /// Delete a secret
    Delete {
        /// Its key
        key: String,
        /// The environment
        #[command(flatten)]
        environment: EnvironmentArguments,
    },
    /// List the versions of a secret: the current value and earlier ones
    #[command(after_help = history::EXAMPLES)]
    History(history::HistoryArguments),
    /// Set a secret to the value that it had at a version
    Rollback(history::RollbackArguments),
    /// Erase the earlier values of a secret on the server; the current one stays
    Forget(history::ForgetArguments),
    /// Change a secret in your editor
    #[command(after_help = edit::EXAMPLES)]
    Edit(edit::EditArguments),
    /// Print all secrets in dotenv format
    #[command(after_help = export::EXAMPLES)]
    Export(export::ExportArguments),
    /// Set secrets from a file in dotenv format
    #[command(after_help = import::EXAMPLES)]
    Import(import::ImportArguments),
}

/// `zopp secret set`
#[derive(Debug, Args)]
pub struct SetArguments {
    /// Its key
    key: String,
    /// Its value; "-" for standard input, left out to be asked for it
    #[arg(allow_hyphen_values = true)]
    pub value: Option<String>,
    /// Read the value from standard input, byte for byte
    #[arg(long, conflicts_with = "value")]
    stdin: bool,
    /// The environment
    #[command(flatten)]
    pub environment: EnvironmentArguments,
}

/// `zopp secret get`
#[derive(Debug, Args)]
pub struct GetArguments {
    /// Its key
    key: String,
    /// Print the exact bytes, without a newline behind them
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    environment: EnvironmentArguments,
}

/// `secret set`, `secret delete`
#[derive(Serialize)]
struct Changed {
    key: String,
    environment: EnvironmentObject,
}

/// Where a secret is.
#[derive(Serialize)]
struct EnvironmentObject {
    workspace: String,
    project: String,
    environment: String,
}

impl From<EnvironmentName> for EnvironmentObject {
    fn from(EnvironmentName { workspace, project, environment }: EnvironmentName) -> Self {
        Self { workspace, project, environment }
    }
}

/// `secret get`: `{"key", "value"}`
struct Got {
    key: String,
    value: konverge_core::SecretValue,
    raw: bool,
}

impl Answer for Got {
    fn text(&self, text: &mut Wiped) -> Result<(), Failure> {
        text.push(self.value.expose());
        if !self.raw {
            text.push(b"\n");
        }
        Ok(())
    }

    fn holds_values(&self) -> bool {
        true
    }

    fn object(&self, document: &mut Document<'_>) -> Result<(), Failure> {
        #[derive(Serialize)]
        struct Object<'a> {
            key: &'a str,
            value: JsonValue<'a>,
        }
        document.put(&Object { key: &self.key, value: JsonValue(self.value.expose()) })
    }
}

/// `secret list`
#[derive(Serialize)]
struct Keys {
    /// Of the environment; grows with every change.
    version: i64,
    secrets: Vec<String>,
}

pub(super) async fn execute(context: &Context, command: SecretCommand) -> Outcome {
    match command {
        SecretCommand::Set(arguments) => set(context, arguments).await,
        SecretCommand::Get(GetArguments { key, raw, environment }) => {
            get(&context.client()?, environment.resolve()?, key, raw).await
        }
        SecretCommand::List(environment) => list(&context.client()?, environment.resolve()?).await,
        SecretCommand::Delete { key, environment } => delete(&context.client()?, environment.resolve()?, key).await,
        SecretCommand::History(arguments) => history::history(&context.client()?, arguments).await,
        SecretCommand::Rollback(arguments) => history::rollback(&context.client()?, arguments).await,
        SecretCommand::Forget(arguments) => history::forget(&context.client()?, arguments).await,
        SecretCommand::Edit(arguments) => edit::execute(&context.client()?, arguments).await,
        SecretCommand::Export(arguments) => export::execute(&context.client()?, arguments).await,
        SecretCommand::Import(arguments) => import::execute(&context.client()?, arguments).await,
    }
}

async fn set(context: &Context, arguments: SetArguments) -> Outcome {
    let SetArguments { key, value, stdin, environment } = arguments;
    let right_form = "Write the value as a word of its own, or leave it out to be asked for it: zopp secret set KEY";
    odd_key::refuse(&key, right_form)?;
    let (client, name) = (context.client()?, environment.resolve()?);
    let value = value::obtain(if stdin { Some("-".to_owned()) } else { value }, &key)?;
    let what = format!("cannot set secret '{key}' in {name}");
    let need = Place::Environment(name.clone()).need("write", &client);
    let changes = [(key.clone(), KeyChange::Set(value))].into();
    let writer = EnvironmentWriter::new(client, name.clone());
    writer.write(&changes).await.map_err(failed(what, need))?;
    let text = format!("Secret '{key}' set");
    Ok(plain(Changed { key, environment: name.into() }, text))
}

async fn get(client: &Client, name: EnvironmentName, key: String, raw: bool) -> Outcome {
    odd_key::refuse_unknown(client, &name, &key, "get").await?;
    let what = format!("cannot get secret '{key}' of {name}");
    let need = Place::Environment(name.clone()).need("read", client);
    let reader = EnvironmentReader::new(client.clone(), name);
    match reader.get(&key).await.map_err(failed(what.clone(), need))? {
        Some(Ok(value)) => Ok(Box::new(Got { key, value, raw })),
        Some(Err(source)) => Err(Failure::new(what).because(source)),
        None => Err(no_such_key(&what, &key)),
    }
}

async fn list(client: &Client, name: EnvironmentName) -> Outcome {
    let what = format!("cannot list the secrets of {name}");
    let need = Place::Environment(name.clone()).need("read", client);
    let reader = EnvironmentReader::new(client.clone(), name);
    let (version, secrets) = reader.keys().await.map_err(failed(what, need))?;
    let text = listing("Secrets:", "No secrets found", secrets.iter().map(|key| format!("  {key}")));
    Ok(plain(Keys { version, secrets }, text))
}

async fn delete(client: &Client, name: EnvironmentName, key: String) -> Outcome {
    odd_key::refuse_unknown(client, &name, &key, "delete").await?;
    let what = format!("cannot delete secret '{key}' of {name}");
    let need = Place::Environment(name.clone()).need("write", client);
    let changes = [(key.clone(), KeyChange::Delete)].into();
    let writer = EnvironmentWriter::new(client.clone(), name.clone());
    writer.write(&changes).await.map_err(|error| match error {
        WriteError::NoSuchKey(key) => no_such_key(&what, &key),
        error => failed(what, need)(error),
    })?;
    let text = format!("Secret '{key}' deleted");
    Ok(plain(Changed { key, environment: name.into() }, text))
}

fn no_such_key(what: &str, key: &str) -> Failure {
    Failure::new(what)
        .because(format!("secret {key:?} not found (NotFound)"))
        .next("See what there is: zopp secret list.")
}
