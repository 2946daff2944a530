//! `zopp environment protect`.

use clap::Args;
use konverge_zopp_client::{
    Client, EnvironmentName, EnvironmentWriter,
    manifest::Difference,
    writer::{Review, WriteError},
};
use konverge_zopp_crypto::Protection;
use serde::Serialize;

use super::Named;
use crate::{
    failure::{Failure, failed},
    output::{Outcome, plain},
    scope::Place,
};

pub(super) const EXAMPLES: &str = "\
Examples:
  zopp environment protect production -w acme -p backend
  zopp environment protect production --accept-changes   after a look at what differs
  zopp environment protect shared --off                  stock clients write here too

A server that has been taken over can give old values, or keep keys back. The manifest of a
protected environment shows which keys it holds, at which values, and only those who hold its key
can make one. What differs is refused, by zopp and by the operator, and nothing is deleted from
Kubernetes because of it.

Stock clients keep no manifest. After one of them made a change, and after the server's database
was restored, a member with zopp looks at the keys that differ and accepts them.";

/// `zopp environment protect`
#[derive(Debug, Args)]
pub struct ProtectArguments {
    #[command(flatten)]
    environment: Named,
    /// Accept the state that the server gives, although the manifest shows another
    #[arg(long)]
    accept_changes: bool,
    /// Accept changes without a manifest from now on
    #[arg(long)]
    off: bool,
}

/// `environment protect`
#[derive(Serialize)]
struct Answer {
    environment: String,
    protected: bool,
    version: i64,
    keys: usize,
    /// Keys that differed from the manifest, and were accepted.
    accepted: Vec<String>,
}

pub(super) async fn execute(client: &Client, arguments: ProtectArguments) -> Outcome {
    let ProtectArguments { environment, accept_changes, off } = arguments;
    let name = environment.resolve()?;
    let what = format!("cannot protect environment '{name}'");
    let need = Place::Environment(name.clone()).need("write", client);
    let writer = EnvironmentWriter::new(client.clone(), name.clone());
    let review = writer.review().await.map_err(failed(what.clone(), need.clone()))?;
    if let Some(fault) = &review.fault
        && !accept_changes
    {
        return Err(Failure::new(format!("{what}: {}", differences(&review))).because(fault.clone()).next(
            "If these changes are right (ask those who work with stock clients), accept them: add --accept-changes.",
        ));
    }
    let protection = if off { Protection::Off } else { Protection::On };
    let is_so_already =
        review.fault.is_none() && review.manifest.as_ref().is_some_and(|manifest| manifest.protection == protection);
    if !is_so_already {
        writer.accept(&review, protection).await.map_err(failed(what, need))?;
    }
    let Review { version, keys, ref difference, .. } = review;
    let accepted = if review.fault.is_some() { keys_of(difference) } else { Vec::new() };
    let state = if off { "not protected: changes without a manifest are accepted" } else { "protected" };
    let text = format!("Environment '{}' is {state} ({keys} keys at version {version})", name.environment);
    let object = Answer { environment: name.to_string(), protected: !off, version, keys, accepted };
    Ok(plain(object, text))
}

/// Protects an environment that was just made. A server that keeps no manifests is no error.
pub(super) async fn protect_new(client: &Client, name: &EnvironmentName) -> Result<(), Failure> {
    let writer = EnvironmentWriter::new(client.clone(), name.clone());
    let failure = Failure::new(format!("environment '{name}' was created, but it is not protected yet"))
        .next(format!("zopp environment protect {} -w {} -p {}", name.environment, name.workspace, name.project));
    let protected = match writer.review().await {
        Ok(review) if review.keys > 0 => return Err(failure.because("the server says that it holds keys already")),
        // Made anew under a former name, it differs from the manifest that was seen: that is of the former one.
        Ok(review) => writer.accept(&review, Protection::On).await,
        Err(WriteError::NotSupported) => Ok(()),
        Err(error) => Err(error),
    };
    protected.map_err(|error| failure.because(error))
}

fn differences(review: &Review) -> String {
    match &review.manifest {
        Some(_) if !review.difference.is_empty() => format!("the keys differ ({})", review.difference),
        Some(_) => "the keys are those of the manifest".to_owned(),
        None => format!("there is no manifest to compare its {} keys with", review.keys),
    }
}

fn keys_of(Difference { missing, replaced, added }: &Difference) -> Vec<String> {
    [missing, replaced, added].into_iter().flatten().cloned().collect()
}
