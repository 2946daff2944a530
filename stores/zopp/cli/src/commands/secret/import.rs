//! `zopp secret import`.

use std::{fs::File, io, path::PathBuf};

use clap::Args;
use konverge_core::SecretValue;
use konverge_zopp_client::{Client, EnvironmentName};
use konverge_zopp_crypto::Dek;
use konverge_zopp_proto::UpsertSecretRequest;
use serde::Serialize;

use crate::{
    commands::Outcome,
    dotenv,
    failure::{Failure, failed},
    output::plain,
    progress::Progress,
    scope::{EnvironmentArguments, Place},
    value,
};

pub(super) const EXAMPLES: &str = "\
Examples:
  zopp secret import -e dev -i .env
  zopp secret export -e dev | zopp secret import -e staging

Lines that cannot be understood are reported and skipped. $NAME stands for an earlier line of the
file, never for a variable of the shell.";

/// `zopp secret import`
#[derive(Debug, Args)]
pub struct ImportArguments {
    #[command(flatten)]
    environment: EnvironmentArguments,
    /// File to read [default: standard input]
    #[arg(short, long, value_name = "PATH")]
    input: Option<PathBuf>,
}

/// `secret import`
#[derive(Serialize)]
struct Imported {
    imported: usize,
    /// Lines that were not understood.
    skipped_lines: Vec<usize>,
}

pub(super) async fn execute(client: &Client, arguments: ImportArguments) -> Outcome {
    let ImportArguments { environment, input } = arguments;
    let name = environment.resolve()?;
    let (source, content) = read(input)?;
    let text = std::str::from_utf8(content.expose())
        .map_err(|error| Failure::new(format!("{source} is not UTF-8 text from byte {} on", error.valid_up_to())))?;
    let parsed = dotenv::parse(text);
    for problem in &parsed.problems {
        eprintln!("Warning: {source}: {problem}; skipped");
    }
    if parsed.entries.is_empty() {
        return Err(
            Failure::new(format!("{source} holds no secrets in dotenv format")).next("Write lines like KEY=value.")
        );
    }

    let what = format!("cannot import into {name}");
    let need = Place::Environment(name.clone()).need("write", client);
    let dek = client.environment_key(&name).await.map_err(failed(what, need.clone()))?;
    let total = parsed.entries.len();
    let mut progress = Progress::new("Importing", total);
    for (done, entry) in parsed.entries.into_iter().enumerate() {
        progress.at(done);
        let what = format!("cannot set secret '{}' in {name}, after {done} of {total}", entry.key);
        let request = encrypted(&dek, &name, &entry.key, &entry.value)?;
        client.upsert_secret(request).await.map_err(failed(what, need.clone()))?;
    }
    drop(progress);
    let skipped_lines = parsed.problems.iter().map(|problem| problem.line).collect();
    Ok(plain(Imported { imported: total, skipped_lines }, format!("Imported {total} secrets")))
}

fn read(input: Option<PathBuf>) -> Result<(String, SecretValue), Failure> {
    let (source, content) = match input {
        None => ("standard input".to_owned(), value::read(io::stdin().lock())),
        Some(file) => (file.display().to_string(), File::open(&file).and_then(value::read)),
    };
    match content {
        Ok(content) => Ok((source, content)),
        Err(error) => Err(Failure::new(format!("cannot read {source}")).because(error)),
    }
}

/// The request that stores one value.
pub(super) fn encrypted(
    dek: &Dek,
    name: &EnvironmentName,
    key: &str,
    value: &SecretValue,
) -> Result<UpsertSecretRequest, Failure> {
    let sealed = dek
        .encrypt(name, key, value)
        .map_err(|source| Failure::new(format!("the value of '{key}' cannot be encrypted")).because(source))?;
    Ok(UpsertSecretRequest {
        workspace_name: name.workspace.clone(),
        project_name: name.project.clone(),
        environment_name: name.environment.clone(),
        key: key.to_owned(),
        nonce: sealed.nonce.to_vec(),
        ciphertext: sealed.ciphertext,
    })
}
