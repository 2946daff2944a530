//! Asking the operator for something, by annotations on the object.

use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use konverge_core::error::in_one_line;
use kube::{core::DynamicObject, runtime::watcher};
use serde::Serialize;
use serde_json::{Map, Value};

use super::asking;
use crate::{
    Cluster, Examined, Failure, Grade, Standing, Wish, arguments::Form, output::print, target::One, words::harmless,
};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    job: &'static str,
    asked: &'static str,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    standing: Option<Standing>,
}

#[derive(Serialize)]
struct Asked<'a> {
    /// The operators that were asked.
    jobs: &'a [&'static str],
    asked: &'static str,
}

/// Sets a token that was not there before. With a limit it waits for the operator's answer, and what is well is what that says.
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
    let wish = Wish::Sync(token.clone());
    if let Some((job, _)) = concerned.iter().find(|(job, _)| limit.is_some() && !job.does_answer()) {
        let message = format!("{} reports no result of a sync, so leave --wait out", job.name());
        return Err(Failure::Usage(message));
    }
    let (able, unable): (Vec<_>, Vec<_>) = concerned.into_iter().partition(|(job, _)| job.ask(&object, &wish).is_ok());
    let concerned = if able.is_empty() { unable } else { able };
    if let Some((_, standing)) = concerned.iter().find(|(_, standing)| standing.grade == Grade::Paused) {
        let why = standing.message.as_deref().unwrap_or_default();
        return Err(Failure::Failed(format!("{one} is paused: {why}. Resume it first: kubectl konverge resume {one}")));
    }
    let Some(job) = ask(cluster, one, &object, concerned.into_iter().take(1), &wish).await?.pop() else {
        return Err(Failure::Failed(format!("{one} has not opted in, so no operator works on it")));
    };
    let Some(limit) = limit else {
        let report = Report { job: job.name(), asked: "sync", standing: None };
        print(form, &report, || {
            format!("{one}: a sync is requested; --wait waits for its result, and kubectl konverge why {one} shows it")
        })?;
        return Ok(true);
    };
    let answer = tokio::time::timeout(limit, answered(cluster, one, &object, job, &token)).await;
    let standing = match answer {
        Ok(answered) => answered?,
        Err(_) => {
            return Err(Failure::Failed(format!(
                "{one}: the operator has not answered within {} seconds; the request stays, and kubectl konverge doctor shows whether \
                 an operator runs",
                limit.as_secs()
            )));
        }
    };
    let is_well = standing.grade == Grade::InStep;
    let text = format!(
        "{one}: {}{}",
        standing.state,
        standing.message.as_deref().map(|why| format!(": {why}")).unwrap_or_default()
    );
    print(form, &Report { job: job.name(), asked: "sync", standing: Some(standing) }, || harmless(&text))?;
    Ok(is_well)
}

/// Has something done that needs no answer.
pub(super) async fn wish(
    jobs: &[Box<dyn Examined>],
    one: &One,
    cluster: &Cluster,
    wish: &Wish,
    form: Form,
) -> Result<bool, Failure> {
    let object = cluster.get(one).await?;
    let concerned = asking(jobs, cluster, one, &object)?;
    let asked_of = ask(cluster, one, &object, concerned, wish).await?;
    let names: Vec<_> = asked_of.iter().map(|job| job.name()).collect();
    let by = names.join(" and ");
    print(form, &Asked { jobs: &names, asked: wish.verb() }, || match wish {
        Wish::Pause => {
            format!("{one} is paused for {by}; kubectl konverge resume {one} ends that")
        }
        Wish::Resume | Wish::Sync(_) => format!("{one} is resumed for {by}"),
        Wish::Adopt(id) => {
            let item =
                id.as_ref().map_or_else(|| "the only item of its name".to_owned(), |id| format!("the item {id}"));
            format!("{one} is to take over {item}, by {by}; kubectl konverge why {one} shows the outcome")
        }
        Wish::Release => format!("{by} will keep the item of {one} when the object is deleted"),
    })?;
    Ok(true)
}

/// Asks all of these jobs that can be asked, in one write; an error of the first if none can. Gives those that were.
async fn ask<'a>(
    cluster: &Cluster,
    one: &One,
    object: &DynamicObject,
    concerned: impl IntoIterator<Item = (&'a dyn Examined, Standing)>,
    wish: &Wish,
) -> Result<Vec<&'a dyn Examined>, Failure> {
    let mut refused = None;
    let mut asked = Vec::new();
    let mut annotations = Map::new();
    for (job, _) in concerned {
        match job.ask(object, wish) {
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

/// Waits until the operator has answered, and tells how the object stands then.
async fn answered(
    cluster: &Cluster,
    one: &One,
    asked: &DynamicObject,
    job: &dyn Examined,
    token: &str,
) -> Result<Standing, Failure> {
    let mut changes = cluster.follow(one);
    while let Some(change) = changes.next().await {
        match change {
            Ok(Some(object)) if object.metadata.uid != asked.metadata.uid => break,
            Ok(Some(object)) if job.is_answered(&object, token) => {
                if let Some(standing) = job.standing(&one.kind, &object) {
                    return Ok(standing);
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
