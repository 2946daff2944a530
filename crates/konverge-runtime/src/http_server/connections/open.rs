//! The open connections: how many there are, and which one ends for a new one.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{
    sync::Notify,
    task::{AbortHandle, Id, JoinError, JoinSet},
    time::Instant,
};

/// The connections that are open. Dropping it ends them.
pub(super) struct Open {
    tasks: JoinSet<()>,
    connections: HashMap<Id, (AbortHandle, Arc<Activity>)>,
    limit: usize,
    became_idle: Arc<Notify>,
}

/// Whether a connection is being answered.
pub(super) struct Activity {
    /// `None` while a request is being answered.
    idle_since: Mutex<Option<Instant>>,
    became_idle: Arc<Notify>,
}

/// A request is being answered until this is dropped.
pub(super) struct Answering(Arc<Activity>);

impl Open {
    pub(super) fn new(limit: usize) -> Self {
        Self { tasks: JoinSet::new(), connections: HashMap::new(), limit, became_idle: Arc::default() }
    }

    /// Waits until there is a place for another connection. Ends the one that has been idle for the longest time if all are taken.
    pub(super) async fn place(&mut self) {
        while self.connections.len() >= self.limit {
            if let Some((id, connection)) = self.longest_idle() {
                connection.abort();
                self.connections.remove(&id);
                return;
            }
            let became_idle = Arc::clone(&self.became_idle);
            tokio::select! {
                () = self.ended() => {}
                () = became_idle.notified() => {}
            }
        }
    }

    fn longest_idle(&self) -> Option<(Id, AbortHandle)> {
        let idle = self.connections.iter().filter_map(|(id, (connection, activity))| {
            let since = *activity.idle_since.lock().unwrap_or_else(PoisonError::into_inner);
            Some((since?, *id, connection))
        });
        idle.min_by_key(|(since, ..)| *since).map(|(_, id, connection)| (id, connection.clone()))
    }

    /// Begins a connection, which is idle at first.
    pub(super) fn begin<F>(&mut self, connection: impl FnOnce(Arc<Activity>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let idle_since = Mutex::new(Some(Instant::now()));
        let activity = Arc::new(Activity { idle_since, became_idle: Arc::clone(&self.became_idle) });
        let task = self.tasks.spawn(connection(Arc::clone(&activity)));
        self.connections.insert(task.id(), (task, activity));
    }

    /// Waits until a connection has ended. Never ends if there is none.
    pub(super) async fn ended(&mut self) {
        let Some(ended) = self.tasks.join_next_with_id().await else { return std::future::pending().await };
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, ())| *id);
        self.connections.remove(&id);
        if let Err(error) = ended
            && error.is_panic()
        {
            tracing::error!(%error, "an answer of the server for health and metrics panicked");
        }
    }
}

impl Activity {
    /// A request begins to be answered.
    pub(super) fn answering(self: &Arc<Self>) -> Answering {
        self.set(None);
        Answering(Arc::clone(self))
    }

    fn set(&self, idle_since: Option<Instant>) {
        *self.idle_since.lock().unwrap_or_else(PoisonError::into_inner) = idle_since;
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.set(Some(Instant::now()));
        self.0.became_idle.notify_one();
    }
}
