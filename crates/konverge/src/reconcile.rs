//! The trait that an author implements.

use std::{error::Error, sync::Arc, time::Duration};

use konverge_apply::conditions::Reason;
use konverge_core::error::Classify;
use konverge_runtime::{Action, object::Object};

use crate::context::Context;

/// Makes the actual state match an object of kind `K`.
///
/// It is level-based: it is told which object, not what happened. It compares the desired with the actual state and changes what differs, so
/// another run changes nothing. It may be dropped at any await, when it takes too long or the process ends.
pub trait Reconcile<K: Object>: Send + Sync + 'static {
    /// The error of a run; [`Error`](crate::Error) unless you need a type of your own.
    type Error: Error + Classify + Send + Sync + 'static;

    /// Reconciles an object that exists: does what its spec says.
    ///
    /// Runs after creation and changes of the object, its children and what else the controller watches, after failures, and
    /// every few hours to be sure.
    fn apply(&self, object: Arc<K>, context: Context<K>) -> impl Future<Output = Result<Action, Self::Error>> + Send;

    /// The object is being deleted: undo what is outside the cluster. Only called where the controller has a finalizer.
    ///
    /// Children are deleted by the controller after this. The object goes once this has succeeded.
    fn cleanup(&self, object: Arc<K>, context: Context<K>) -> impl Future<Output = Result<(), Self::Error>> + Send {
        let _ = (object, context);
        std::future::ready(Ok(()))
    }

    /// The [`cleanup`](Self::cleanup) of something that goes slowly, such as a database in a cloud: implement this one instead, and
    /// return [`Cleanup::pending`] until it has gone. That is no failure: the status says what is waited for, the run is repeated after
    /// the given time, and the pause does not grow.
    fn finalize(
        &self,
        object: Arc<K>,
        context: Context<K>,
    ) -> impl Future<Output = Result<Cleanup, Self::Error>> + Send {
        async move { self.cleanup(object, context).await.map(|()| Cleanup::Done) }
    }
}

/// How far the cleanup of an object is that is being deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cleanup {
    /// Nothing of the object is left outside the cluster. Its children are deleted next, and then it goes.
    Done,
    /// Something of the object is still there. The object and its children stay.
    Pending {
        /// When to look again.
        after: Duration,
        /// Why, for programs.
        reason: Reason,
        /// Why, for people.
        message: String,
    },
}

impl Cleanup {
    /// Not yet: look again after this time. `message` says what is waited for, and becomes the status of the object.
    pub fn pending(after: Duration, reason: impl Into<Reason>, message: impl Into<String>) -> Self {
        Self::Pending { after, reason: reason.into(), message: message.into() }
    }
}

/// Makes a [`Reconcile`] of a plain async function.
pub fn reconcile_fn<F>(apply: F) -> FromFunction<F> {
    FromFunction(apply)
}

/// See [`reconcile_fn`].
pub struct FromFunction<F>(F);

impl<K, E, F, Run> Reconcile<K> for FromFunction<F>
where
    K: Object,
    E: Error + Classify + Send + Sync + 'static,
    F: Fn(Arc<K>, Context<K>) -> Run + Send + Sync + 'static,
    Run: Future<Output = Result<Action, E>> + Send,
{
    type Error = E;

    fn apply(&self, object: Arc<K>, context: Context<K>) -> impl Future<Output = Result<Action, E>> + Send {
        (self.0)(object, context)
    }
}
