//! The publication of changes: one channel per environment with listeners.
//!
//! Guarantees: a subscription made before a change was published sees it, in order, or learns that it missed something. A channel
//! is freed with its last subscription. Publishing never waits.
//!
//! There are three ways for a change to get here. With the memory backend, the handler publishes it after the commit. With PostgreSQL
//! and the server's own database, the change's transaction tells all replicas (module `notice`), this one included, and one connection
//! of the process listens (module `listener`). With another PostgreSQL, the handler hands it to that connection after the commit.

mod listener;
pub(crate) mod notice;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::{broadcast, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use self::listener::Command;
pub(crate) use self::listener::Listener;
use crate::revocations::Revocations;

/// Changes a slow reader may be behind before it is sent back to listing. A listing of everything is then the cheaper way.
const CAPACITY: usize = 256;

/// How long a subscription waits for the connection to PostgreSQL. A caller that is refused tries again.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(10);

/// The change of an environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// A key was set or deleted.
    Changed {
        /// Which.
        key: String,
        /// The environment's version from then on.
        version: i64,
        /// Is it gone?
        deleted: bool,
        /// Unix seconds.
        timestamp: i64,
    },
    /// Several keys were set or deleted at once.
    SeveralChanged {
        /// The environment's version from then on.
        version: i64,
    },
    /// The environment is gone; nothing follows.
    EnvironmentDeleted,
    /// Something, of which nothing is known here.
    Missed,
}

type Channels = Arc<Mutex<HashMap<String, broadcast::Sender<Event>>>>;

/// The channels of all environments.
#[derive(Debug, Default)]
pub(crate) struct EventBus {
    channels: Channels,
    /// Held from before a secret is changed until the change is published: changes are told in the order in which they happened.
    order: tokio::sync::Mutex<()>,
    replicas: Option<Replicas>,
}

/// The way to the other replicas.
#[derive(Debug)]
struct Replicas {
    commands: mpsc::UnboundedSender<Command>,
    /// Does the transaction of a change tell of it?
    by_transaction: bool,
}

/// One listener's end. Dropping it frees the channel if it was the last.
#[derive(Debug)]
pub(crate) struct Subscription {
    receiver: broadcast::Receiver<Event>,
    environment_id: String,
    channels: Channels,
    commands: Option<mpsc::UnboundedSender<Command>>,
}

/// Why there is no next event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gap {
    /// Events were dropped because this listener was too slow, or never came.
    Lagged,
    /// Nobody can publish any more.
    Closed,
}

/// PostgreSQL does not listen.
#[derive(Debug)]
pub(crate) struct NotListening;

impl EventBus {
    /// A bus over all replicas, which `listener` connects until `stop`. `by_transaction` says that the transaction of a change tells of it.
    pub(crate) fn shared(
        listener: Listener,
        by_transaction: bool,
        revocations: &Revocations,
        stop: CancellationToken,
    ) -> Self {
        let commands = listener.sender.clone();
        let channels = Channels::default();
        tokio::spawn(listener.run(Arc::clone(&channels), revocations.clone(), stop));
        Self { channels, order: tokio::sync::Mutex::default(), replicas: Some(Replicas { commands, by_transaction }) }
    }

    /// Everything published to the environment from now on.
    pub(crate) async fn subscribe(&self, environment_id: &str) -> Result<Subscription, NotListening> {
        let receiver = lock(&self.channels)
            .entry(environment_id.to_owned())
            .or_insert_with(|| broadcast::Sender::new(CAPACITY))
            .subscribe();
        let commands = self.replicas.as_ref().map(|replicas| replicas.commands.clone());
        let subscription = Subscription {
            receiver,
            environment_id: environment_id.to_owned(),
            channels: Arc::clone(&self.channels),
            commands,
        };
        if let Some(commands) = &subscription.commands {
            let (told, listening) = oneshot::channel();
            commands.send(Command::Listen(environment_id.to_owned(), told)).map_err(|_| NotListening)?;
            let listening = tokio::time::timeout(SUBSCRIBE_TIMEOUT, listening).await;
            listening.map_err(|_| NotListening)?.map_err(|_| NotListening)?;
        }
        Ok(subscription)
    }

    /// Waits until the changes that are being published are published, where their order is for this process to keep.
    pub(crate) async fn in_order(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        if self.is_told_by_transaction() { None } else { Some(self.order.lock().await) }
    }

    /// Notifies the listeners, unless the transaction of the change does.
    pub(crate) fn publish(&self, environment_id: &str, event: Event) {
        match &self.replicas {
            None => send(&self.channels, environment_id, event),
            Some(replicas) if replicas.by_transaction => {}
            Some(replicas) => {
                if let Some(notice) = notice::of_event(environment_id, &event) {
                    // An error means that the server is going.
                    let _ = replicas.commands.send(Command::Tell(notice));
                }
            }
        }
    }

    /// Tells other replicas that these principals lost something.
    pub(crate) fn publish_losses(&self, principal_ids: &[String]) {
        if let Some(replicas) = &self.replicas {
            for notice in notice::of_losses(principal_ids) {
                let _ = replicas.commands.send(Command::Tell(notice));
            }
        }
    }

    fn is_told_by_transaction(&self) -> bool {
        self.replicas.as_ref().is_some_and(|replicas| replicas.by_transaction)
    }

    /// How many environments are listened to.
    #[cfg(test)]
    fn channel_count(&self) -> usize {
        lock(&self.channels).len()
    }
}

impl Subscription {
    /// Waits for the next event. Safe to drop and call again.
    pub(crate) async fn next(&mut self) -> Result<Event, Gap> {
        match self.receiver.recv().await {
            Ok(Event::Missed) | Err(broadcast::error::RecvError::Lagged(_)) => Err(Gap::Lagged),
            Ok(event) => Ok(event),
            Err(broadcast::error::RecvError::Closed) => Err(Gap::Closed),
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut channels = lock(&self.channels);
        // Our own receiver is still counted. Subscribing takes the same lock, so nobody comes in between.
        if channels.get(&self.environment_id).is_some_and(|sender| sender.receiver_count() <= 1) {
            channels.remove(&self.environment_id);
            if let Some(commands) = &self.commands {
                let _ = commands.send(Command::Unlisten(std::mem::take(&mut self.environment_id)));
            }
        }
    }
}

/// Hands an event to the listeners in this process.
fn send(channels: &Channels, environment_id: &str, event: Event) {
    if let Some(sender) = lock(channels).get(environment_id) {
        // An error means that the last listener is going this moment.
        let _ = sender.send(event);
    }
}

fn lock(channels: &Channels) -> MutexGuard<'_, HashMap<String, broadcast::Sender<Event>>> {
    // The map is whole after every operation on it, so a panic elsewhere does not spoil it.
    channels.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(version: i64) -> Event {
        Event::Changed { key: "A".into(), version, deleted: false, timestamp: 0 }
    }

    #[tokio::test]
    async fn a_channel_lives_as_long_as_somebody_listens() {
        let bus = EventBus::default();
        bus.publish("e", changed(1));
        assert_eq!(bus.channel_count(), 0);
        let (mut first, second) = (bus.subscribe("e").await.unwrap(), bus.subscribe("e").await.unwrap());
        drop(second);
        bus.publish("e", changed(2));
        bus.publish("other", changed(3));
        assert_eq!(first.next().await, Ok(changed(2)));
        drop(first);
        assert_eq!(bus.channel_count(), 0);
    }

    #[tokio::test]
    async fn a_slow_listener_learns_that_it_lagged() {
        let bus = EventBus::default();
        let mut slow = bus.subscribe("e").await.unwrap();
        for version in 0..1000 {
            bus.publish("e", changed(version));
        }
        assert_eq!(slow.next().await, Err(Gap::Lagged));
    }
}
