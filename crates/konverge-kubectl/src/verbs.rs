//! The verbs, one file each.

mod action;
mod approve;
mod convert;
mod diff;
mod doctor;
mod leftovers;
mod status;
mod why;

use kube::core::DynamicObject;

use crate::{
    Cluster, Examined, Failure, ObjectHealth, RequestedAction,
    arguments::{Arguments, Form, Object, Verb},
    target::{One, Target, kinds},
};
use status::Place;

/// Runs the verb of the command line. Returns whether all is well.
pub(crate) async fn run(jobs: &[Box<dyn Examined>], arguments: Arguments) -> Result<bool, Failure> {
    let Arguments { connection, output, verb } = arguments;
    let all = kinds(jobs);
    // Of the arguments of a verb, the object comes before the cluster: a wrong command line is reported without a cluster.
    let one = |object: &Object| Target::parse(&all, &object.target).and_then(Target::one);
    let cluster = || Cluster::of(&connection);
    if matches!(output, Form::Wide | Form::Name) && !matches!(verb, Verb::Status { .. }) {
        return Err(Failure::Usage("-o wide and -o name are of status; write text, json or yaml".to_owned()));
    }
    match verb {
        Verb::Completions { shell } => {
            clap_complete::generate(shell, &mut crate::command(), "kubectl-konverge", &mut std::io::stdout());
            Ok(true)
        }
        Verb::Status { target, all_namespaces, selector, watch } => {
            let target = if target.is_empty() { None } else { Some(Target::parse(&all, &target)?) };
            let is_one = target.as_ref().is_some_and(|target| target.name.is_some());
            if all_namespaces && is_one {
                return Err(Failure::Usage("an object is in one namespace; leave out -A, or the name".to_owned()));
            }
            if selector.is_some() && is_one {
                return Err(Failure::Usage("a name says which object; leave out -l, or the name".to_owned()));
            }
            let cluster = cluster().await?;
            let place = Place { namespace: (!all_namespaces).then(|| cluster.namespace.clone()), selector };
            if watch {
                return status::watch(jobs, &cluster, target, &place, output).await;
            }
            status::run(jobs, &cluster, target, &place, output).await
        }
        Verb::Why(object) => why::run(jobs, &one(&object)?, &cluster().await?, output).await,
        Verb::Diff(object) => diff::run(jobs, &one(&object)?, &cluster().await?, output).await,
        Verb::Sync { object, wait, timeout } => {
            action::sync(jobs, &one(&object)?, &cluster().await?, wait.then_some(timeout), output).await
        }
        Verb::Pause(object) => {
            action::run(jobs, &one(&object)?, &cluster().await?, &RequestedAction::Pause, output).await
        }
        Verb::Resume(object) => {
            action::run(jobs, &one(&object)?, &cluster().await?, &RequestedAction::Resume, output).await
        }
        Verb::Adopt { target, id } => {
            let one = Target::parse(&all, &[target])?.one()?;
            action::run(jobs, &one, &cluster().await?, &RequestedAction::Adopt(id), output).await
        }
        Verb::Release(object) => {
            action::run(jobs, &one(&object)?, &cluster().await?, &RequestedAction::Release, output).await
        }
        Verb::Convert(object) => convert::run(jobs, &one(&object)?, &cluster().await?, output).await,
        Verb::Leftovers { ids, delete } => leftovers::run(jobs, &cluster().await?, &ids, delete, output).await,
        Verb::Approve => approve::run(jobs, &cluster().await?, connection.namespace.as_deref(), output).await,
        Verb::Doctor => doctor::run(jobs, &cluster().await?, connection.namespace.as_deref(), output).await,
    }
}

/// The jobs that the object concerns, each with how it stands.
fn concerned<'a>(
    jobs: &'a [Box<dyn Examined>],
    one: &One,
    object: &DynamicObject,
) -> Vec<(&'a dyn Examined, ObjectHealth)> {
    let of_kind = jobs.iter().filter(|job| job.kinds().iter().any(|kind| kind.is(&one.kind)));
    of_kind.filter_map(|job| Some((&**job, job.health(&one.kind, object)?))).collect()
}

/// Like the function above, but an object that concerns no job is an error.
fn asking<'a>(
    jobs: &'a [Box<dyn Examined>],
    cluster: &Cluster,
    one: &One,
    object: &DynamicObject,
) -> Result<Vec<(&'a dyn Examined, ObjectHealth)>, Failure> {
    let concerned = concerned(jobs, one, object);
    if concerned.is_empty() {
        return Err(Failure::Failed(format!(
            "{one}{} has not opted in; kubectl konverge why {one} shows how to opt in",
            one.kind.place(&cluster.namespace)
        )));
    }
    Ok(concerned)
}
