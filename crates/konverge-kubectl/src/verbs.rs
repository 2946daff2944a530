//! The verbs, one file each.

mod ask;
mod convert;
mod diff;
mod doctor;
mod leftovers;
mod status;
mod why;

use kube::core::DynamicObject;

use crate::{
    Cluster, Examined, Failure, Standing, Wish,
    arguments::{Arguments, Form, Object, Verb},
    target::{One, Target, kinds},
};
use status::Place;

/// Runs the verb of the command line. Returns whether all is well.
pub(crate) async fn run(jobs: &[Box<dyn Examined>], arguments: Arguments) -> Result<bool, Failure> {
    let Arguments { connection, output, verb } = arguments;
    let all = kinds(jobs);
    let one = |object: &Object| Target::parse(&all, &object.target).and_then(Target::one);
    // A wrong command line is reported without a cluster.
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
            if all_namespaces && target.as_ref().is_some_and(|target| target.name.is_some()) {
                return Err(Failure::Usage("an object is in one namespace; leave out -A, or the name".to_owned()));
            }
            if selector.is_some() && target.as_ref().is_some_and(|target| target.name.is_some()) {
                return Err(Failure::Usage("a name says which object; leave out -l, or the name".to_owned()));
            }
            let cluster = Cluster::of(&connection).await?;
            let place = Place { namespace: (!all_namespaces).then(|| cluster.namespace.clone()), selector };
            if watch {
                return status::watch(jobs, &cluster, target, &place, output).await;
            }
            status::run(jobs, &cluster, target, &place, output).await
        }
        Verb::Why(object) => {
            let one = one(&object)?;
            why::run(jobs, &Cluster::of(&connection).await?, &one, output).await
        }
        Verb::Diff(object) => {
            let one = one(&object)?;
            diff::run(jobs, &Cluster::of(&connection).await?, &one, output).await
        }
        Verb::Sync { object, wait, timeout } => {
            let one = one(&object)?;
            ask::sync(jobs, &Cluster::of(&connection).await?, &one, wait.then_some(timeout), output).await
        }
        Verb::Pause(object) => {
            let one = one(&object)?;
            ask::wish(jobs, &Cluster::of(&connection).await?, &one, &Wish::Pause, output).await
        }
        Verb::Resume(object) => {
            let one = one(&object)?;
            ask::wish(jobs, &Cluster::of(&connection).await?, &one, &Wish::Resume, output).await
        }
        Verb::Adopt { target, id } => {
            let one = Target::parse(&all, &[target]).and_then(Target::one)?;
            ask::wish(jobs, &Cluster::of(&connection).await?, &one, &Wish::Adopt(id), output).await
        }
        Verb::Release(object) => {
            let one = one(&object)?;
            ask::wish(jobs, &Cluster::of(&connection).await?, &one, &Wish::Release, output).await
        }
        Verb::Convert(object) => {
            let one = one(&object)?;
            convert::run(jobs, &Cluster::of(&connection).await?, &one, output).await
        }
        Verb::Leftovers { ids, delete } => {
            leftovers::run(jobs, &Cluster::of(&connection).await?, &ids, delete, output).await
        }
        Verb::Doctor => {
            let namespace = connection.namespace.clone();
            doctor::run(jobs, &Cluster::of(&connection).await?, namespace.as_deref(), output).await
        }
    }
}

/// The jobs that the object concerns, each with how it stands.
fn concerned<'a>(
    jobs: &'a [Box<dyn Examined>],
    one: &One,
    object: &DynamicObject,
) -> Vec<(&'a dyn Examined, Standing)> {
    let of_kind = jobs.iter().filter(|job| job.kinds().iter().any(|kind| kind.is(&one.kind)));
    of_kind.filter_map(|job| Some((&**job, job.standing(&one.kind, object)?))).collect()
}

/// The same, and it has to concern one at least.
fn asking<'a>(
    jobs: &'a [Box<dyn Examined>],
    cluster: &Cluster,
    one: &One,
    object: &DynamicObject,
) -> Result<Vec<(&'a dyn Examined, Standing)>, Failure> {
    let concerned = concerned(jobs, one, object);
    if concerned.is_empty() {
        return Err(Failure::Failed(format!(
            "{one}{} has not opted in; kubectl konverge why {one} shows how to opt in",
            one.kind.place(&cluster.namespace)
        )));
    }
    Ok(concerned)
}
