//! Actions that a person requests of the operator, by annotations on the object.

use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use konverge_core::error::in_one_line;
use kube::{core::DynamicObject, runtime::watcher};
use serde::Serialize;
use serde_json::{Map, Value};

use super::asking;
use crate::{
    Cluster, Examined, Failure, Grade, ObjectHealth, RequestedAction, arguments::Form, output::print, target::One,
    text::harmless,
};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    job: &'static str,
    asked: &'static str,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    health: Option<ObjectHealth>,
}

#[derive(Serialize)]
struct Requested<'a> {
    /// The operators that got the request.
    jobs: &'a [&'static str],
    asked: &'static str,
}

/// Sets a new token. With a timeout, waits for the operator's answer, which decides the result.
pub(super) async fn sync(
    jobs: &[Box<dyn Examined>],
    one: &One,
    cluster: &Cluster,
    limit: Option<Duration>,
    form: Form,
) -> Result<bool, Failure> {
    let object = cluster.get(one).await?;
    let concerned = asking(jobs, cluster, one, &object)?;
    let token = Timestamp::now().to_string();
    let action = RequestedAction::Sync(token.clone());
    if let Some((job, _)) = concerned.iter().find(|(job, _)| limit.is_some() && !job.acknowledges()) {
        let message = format!("{} reports no result of a sync, so leave --wait out", job.name());
        return Err(Failure::Usage(message));
    }
    let (able, unable): (Vec<_>, Vec<_>) =
        concerned.into_iter().partition(|(job, _)| job.annotation_for(&object, &action).is_ok());
    let concerned = if able.is_empty() { unable } else { able };
    if let Some((_, health)) = concerned.iter().find(|(_, health)| health.grade == Grade::Paused) {
        let why = health.message.as_deref().unwrap_or_default();
        return Err(Failure::Failed(format!("{one} is paused: {why}. Resume it first: kubectl konverge resume {one}")));
    }
    let Some(job) = annotate(cluster, one, &object, concerned.into_iter().take(1), &action).await?.pop() else {
        return Err(Failure::Failed(format!("{one} has not opted in, so no operator works on it")));
    };
    let Some(limit) = limit else {
        let report = Report { job: job.name(), asked: "sync", health: None };
        print(form, &report, || {
            format!("{one}: a sync is requested; --wait waits for its result, and kubectl konverge why {one} shows it")
        })?;
        return Ok(true);
    };
    let answer = tokio::time::timeout(limit, acknowledged(cluster, one, &object, job, &token)).await;
    let health = match answer {
        Ok(acknowledged) => acknowledged?,
        Err(_) => {
            return Err(Failure::Failed(format!(
                "{one}: the operator has not answered within {} seconds; the request stays, and kubectl konverge doctor shows whether \
                 an operator runs",
                limit.as_secs()
            )));
        }
    };
    let is_well = health.grade == Grade::InSync;
    let text = format!(
        "{one}: {}{}",
        health.state,
        health.message.as_deref().map(|why| format!(": {why}")).unwrap_or_default()
    );
    print(form, &Report { job: job.name(), asked: "sync", health: Some(health) }, || harmless(&text))?;
    Ok(is_well)
}

/// Requests an action that the operator does not acknowledge.
pub(super) async fn run(
    jobs: &[Box<dyn Examined>],
    one: &One,
    cluster: &Cluster,
    action: &RequestedAction,
    form: Form,
) -> Result<bool, Failure> {
    let object = cluster.get(one).await?;
    let concerned = asking(jobs, cluster, one, &object)?;
    let asked_of = annotate(cluster, one, &object, concerned, action).await?;
    let names: Vec<_> = asked_of.iter().map(|job| job.name()).collect();
    let by = names.join(" and ");
    print(form, &Requested { jobs: &names, asked: action.verb() }, || match action {
        RequestedAction::Pause => {
            format!("{one} is paused for {by}; kubectl konverge resume {one} ends that")
        }
        RequestedAction::Resume | RequestedAction::Sync(_) => format!("{one} is resumed for {by}"),
        RequestedAction::Adopt(id) => {
            let item =
                id.as_ref().map_or_else(|| "the only item of its name".to_owned(), |id| format!("the item {id}"));
            format!("{one} is to take over {item}, by {by}; kubectl konverge why {one} shows the outcome")
        }
        RequestedAction::Release => format!("{by} will keep the item of {one} when the object is deleted"),
    })?;
    Ok(true)
}

/// Asks all of these jobs that can be asked, in one write; an error of the first if none can. Gives those that were.
async fn annotate<'a>(
    cluster: &Cluster,
    one: &One,
    object: &DynamicObject,
    concerned: impl IntoIterator<Item = (&'a dyn Examined, ObjectHealth)>,
    action: &RequestedAction,
) -> Result<Vec<&'a dyn Examined>, Failure> {
    let mut refused = None;
    let mut asked = Vec::new();
    let mut annotations = Map::new();
    for (job, _) in concerned {
        match job.annotation_for(object, action) {
            Ok((annotation, value)) => {
                annotations.insert(annotation.to_owned(), value);
                asked.push(job);
            }
            Err(failure) => drop(refused.get_or_insert(failure)),
        }
    }
    if asked.is_empty() {
        return Err(
            refused.unwrap_or_else(|| Failure::Failed(format!("{one} has not opted in, so no operator works on it")))
        );
    }
    cluster.annotate(one, object, &Value::Object(annotations)).await?;
    Ok(asked)
}

/// Waits until the operator has answered. Returns the health of the object at that time.
async fn acknowledged(
    cluster: &Cluster,
    one: &One,
    asked: &DynamicObject,
    job: &dyn Examined,
    token: &str,
) -> Result<ObjectHealth, Failure> {
    let mut changes = cluster.follow(one);
    while let Some(change) = changes.next().await {
        match change {
            Ok(Some(object)) if object.metadata.uid != asked.metadata.uid => break,
            Ok(Some(object)) if job.is_acknowledged(&object, token) => {
                if let Some(health) = job.health(&one.kind, &object) {
                    return Ok(health);
                }
                break;
            }
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error)) if matches!(&error, kube::Error::Api(status) if matches!(status.code, 401 | 403)) =>
            {
                return Err(Failure::of(
                    &format!("watch {one}{}, which --wait needs", one.kind.place(&cluster.namespace)),
                    &error,
                ));
            }
            Err(error) => {
                // The watch begins again by itself; a rest keeps it from doing so at once.
                eprintln!("warning: {}", in_one_line(&error));
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
    Err(Failure::Failed(format!("{one} was deleted or has opted out before the operator answered")))
}
