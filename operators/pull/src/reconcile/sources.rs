//! The sources of a Secret in one run: what they answer, and what they gave before.

use std::sync::Arc;

use futures::future::join_all;
use tokio::time::Instant;

use super::Run;
use crate::{
    hub::Hub,
    plan::{Given, Part},
    record::{SourceRecord, TargetRecord},
    source::{Connections, Failure, Snapshot},
    wanted::{Wanted, WantedSource},
};

/// The content of one source, or why there is none.
pub(super) type Answer = Result<Arc<Snapshot>, Arc<Failure>>;

/// The facts that a decision uses besides the contents and the Secret's data.
#[derive(Clone, Copy)]
pub(super) struct Memory<'a> {
    /// The record on the Secret.
    pub(super) recorded: Option<&'a str>,
    /// Whether two reads agree that a source is empty.
    pub(super) is_confirmed: bool,
    /// Whether the newest revision that any Secret has held counts. A Secret that this process verified has its own.
    pub(super) knows_accepted: bool,
}

/// Fetches all contents at the same time; with `since`, by calls that began no earlier. A connection that is not for the namespace gives nothing.
pub(super) async fn fetch(run: Run<'_>, connections: &Connections, since: Option<Instant>) -> Vec<Answer> {
    let fetch = async |(source, hub): (&WantedSource, &&Arc<Hub>)| match connections
        .refusal(&source.reference, &run.key.namespace)
    {
        Some(refusal) => Err(Arc::new(refusal)),
        None => hub.snapshot(since).await,
    };
    join_all(run.wanted.sources.iter().zip(run.hubs).map(fetch)).await
}

/// Returns the keys that each source gave the Secret, as its record says.
pub(super) fn given(wanted: &Wanted, recorded: Option<&str>) -> Vec<Option<SourceRecord>> {
    let record = wanted.made.as_ref().and_then(|_| TargetRecord::read(recorded?));
    let of = |reference: String| record.as_ref()?.of(&reference).cloned();
    wanted.sources.iter().map(|source| of(source.reference.to_string())).collect()
}

/// Returns what is known of each source.
pub(super) fn parts<'a>(
    run: Run<'a>,
    answers: &'a [Answer],
    given: &'a [Option<SourceRecord>],
    memory: Memory<'_>,
) -> Vec<Part<'a>> {
    let part = |(number, source): (usize, &'a WantedSource)| {
        let upstream = run.hubs[number].upstream();
        let proof = match &run.wanted.made {
            Some(_) => given[number].as_ref().and_then(|given| given.proof.as_deref()),
            None => memory.recorded,
        };
        let accepted = || upstream.accepted().or_else(|| upstream.recorded(proof?));
        Part {
            selection: &source.selection,
            is_optional: source.is_optional,
            snapshot: answers[number].as_deref().ok(),
            accepted: memory.knows_accepted.then(accepted).flatten(),
            given: given[number].as_ref().map(|given| &given.keys),
        }
    };
    run.wanted.sources.iter().enumerate().map(part).collect()
}

/// Returns the record for a Secret with these contributions.
pub(super) fn record(run: Run<'_>, parts: &[Part<'_>], given: &[Given], memory: Memory<'_>) -> Option<String> {
    let Run { wanted, hubs, .. } = run;
    let proof = |number: usize| hubs[number].upstream().record(parts[number].snapshot?);
    let Some(made) = &wanted.made else { return proof(0) };
    let before = TargetRecord::read(memory.recorded.unwrap_or_default());
    let sources = wanted.sources.iter().zip(given).enumerate().map(|(number, (source, given))| {
        let from = source.reference.to_string();
        let keys = given.keys.clone();
        match (parts[number].snapshot, before.as_ref().and_then(|before| before.of(&from))) {
            (Some(snapshot), _) if !given.is_kept => {
                SourceRecord { from, version: snapshot.revision.number, keys, proof: proof(number) }
            }
            (_, Some(before)) => SourceRecord { keys, ..before.clone() },
            (_, None) => SourceRecord { from, version: 0, keys, proof: None },
        }
    });
    TargetRecord { owner: made.owner.to_string(), sources: sources.collect() }.text()
}
