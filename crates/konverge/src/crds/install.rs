//! Applying definitions at the start of a program that leads.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::future::join_all;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge_apply::Applier;
use konverge_core::{backoff::Backoff, error::in_one_line, reasons};
use konverge_runtime::Manager;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use tokio::time::Instant;

use super::{Decision, INSTALLED_BY_VERSION, decide, established, relocation};
use crate::error::Error;

/// The pause between two looks at a definition that is not established yet, which takes a fraction of a second.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// A definition that takes longer to be established is applied once more.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(10);

/// Lets a program of `version` apply its definitions when it leads: of replicas that differ, only the leader decides. Without leader
/// election each replica does; a definition that changed since it was read is read again before it is written. A leader is not
/// ready until all of them are established. A failure is retried with growing pauses, so that the program recovers without a restart.
/// A standby is ready without them: its caches tell whether the kinds are there.
pub(crate) fn install(
    definitions: Vec<CustomResourceDefinition>,
    version: &'static str,
    may_stand_by: bool,
    applier: &Applier,
    manager: &mut Manager,
) {
    let mut installations = Vec::new();
    for mut definition in definitions {
        let not_yet = || Err("not applied yet".to_owned());
        let state = Arc::new(Mutex::new(if may_stand_by { Ok(()) } else { not_yet() }));
        let (name, seen) = (definition.name_any(), Arc::clone(&state));
        manager.checks().readiness(format!("definition of {name}"), move || {
            seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
        });
        definition.annotations_mut().insert(INSTALLED_BY_VERSION.to_owned(), version.to_owned());
        let applier = applier.clone();
        installations.push(async move {
            let say = move |now| *state.lock().unwrap_or_else(PoisonError::into_inner) = now;
            say(not_yet());
            install_with_retry(definition, version, applier, say).await;
        });
    }
    manager.leader_task("definitions", async {
        join_all(installations).await;
        std::future::pending::<()>().await;
    });
}

/// Tries until it works, and says how it stands.
async fn install_with_retry(
    definition: CustomResourceDefinition,
    version: &str,
    applier: Applier,
    say: impl Fn(Result<(), String>),
) {
    let (name, backoff, mut attempt) = (definition.name_any(), Backoff::default(), 0_u32);
    while let Err(error) = try_once(&definition, version, &applier).await {
        attempt = attempt.saturating_add(1);
        let pause = backoff.delay(attempt, rand::random());
        let why = in_one_line(&error);
        tracing::warn!(definition = name, error = why, retry_after = ?pause, "cannot install a definition");
        say(Err(why));
        tokio::time::sleep(pause).await;
    }
    say(Ok(()));
}

async fn try_once(definition: &CustomResourceDefinition, version: &str, applier: &Applier) -> Result<(), Error> {
    let name = definition.name_any();
    let api = Api::<CustomResourceDefinition>::all(applier.client().clone());
    let mut found = api.get_opt(&name).await?;
    if let Some(found) = &found
        && let Decision::Keep(why) = decide(found, definition, version)?
    {
        tracing::warn!(definition = name, why, "the definition is not installed");
        return established(found)
            .map_err(|why| Error::transient(reasons::NOT_ESTABLISHED, format!("{name} is not established: {why}")));
    }
    if let Some(patch) = found.as_ref().and_then(|found| relocation(found, definition)) {
        if applier.is_dry_run() {
            tracing::info!(definition = name, "dry run: would change where its conversion calls");
            return Ok(());
        }
        let parameters = PatchParams { field_manager: Some(applier.manager().to_owned()), ..PatchParams::default() };
        found = Some(api.patch(&name, &parameters, &Patch::Merge(patch)).await?);
    }
    // Another replica may have brought a newer definition since ours was found to be the newest.
    let done = match &found {
        Some(found) => applier.clone().for_the_version_seen().apply(definition, Some(found)).await?,
        None => applier.create(definition).await?,
    };
    if applier.is_dry_run() {
        tracing::info!(definition = name, outcome = ?done.outcome, "dry run: would apply");
        return Ok(());
    }
    let (mut now, begun) = (done.object, Instant::now());
    while let Err(why) = established(&now) {
        if begun.elapsed() > ESTABLISHED_WITHIN {
            return Err(Error::transient(reasons::NOT_ESTABLISHED, format!("{name} is not established: {why}")));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
        now = api.get(&name).await?;
    }
    tracing::info!(definition = name, outcome = ?done.outcome, "the definition is established");
    Ok(())
}
