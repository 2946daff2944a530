//! Who is told of changes: one channel per environment that somebody listens to.
//!
//! Guarantees: a subscription made before a change was published sees it, in order, or learns that it lagged behind. A channel
//! is freed with its last subscription. Publishing never waits.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::broadcast;

/// Changes a slow reader may be behind before it is sent back to listing. A listing of everything is then the cheaper way.
const CAPACITY: usize = 256;

/// What happened in an environment.
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
    /// The environment is gone; nothing follows.
    EnvironmentDeleted,
}

type Channels = Mutex<HashMap<String, broadcast::Sender<Event>>>;

/// The channels of all environments. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventBus {
    channels: Arc<Channels>,
}

/// One listener's end. Dropping it frees the channel if it was the last.
#[derive(Debug)]
pub(crate) struct Subscription {
    receiver: broadcast::Receiver<Event>,
    environment_id: String,
    channels: Arc<Channels>,
}

/// Why there is no next event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gap {
    /// Events were dropped because this listener was too slow.
    Lagged,
    /// Nobody can publish any more.
    Closed,
}

impl EventBus {
    /// Everything published to the environment from now on.
    pub(crate) fn subscribe(&self, environment_id: &str) -> Subscription {
        let receiver = lock(&self.channels)
            .entry(environment_id.to_owned())
            .or_insert_with(|| broadcast::Sender::new(CAPACITY))
            .subscribe();
        Subscription { receiver, environment_id: environment_id.to_owned(), channels: Arc::clone(&self.channels) }
    }

    /// Tells whoever listens.
    pub(crate) fn publish(&self, environment_id: &str, event: Event) {
        if let Some(sender) = lock(&self.channels).get(environment_id) {
            // An error means that the last listener is going this moment.
            let _ = sender.send(event);
        }
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
        self.receiver.recv().await.map_err(|error| match error {
            broadcast::error::RecvError::Lagged(_) => Gap::Lagged,
            broadcast::error::RecvError::Closed => Gap::Closed,
        })
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut channels = lock(&self.channels);
        // Our own receiver is still counted. Subscribing takes the same lock, so nobody comes in between.
        if channels.get(&self.environment_id).is_some_and(|sender| sender.receiver_count() <= 1) {
            channels.remove(&self.environment_id);
        }
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
        let (mut first, second) = (bus.subscribe("e"), bus.subscribe("e"));
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
        let mut slow = bus.subscribe("e");
        for version in 0..1000 {
            bus.publish("e", changed(version));
        }
        assert_eq!(slow.next().await, Err(Gap::Lagged));
    }
}
