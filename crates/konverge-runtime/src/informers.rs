//! The watches of a program, each with its event handler, as tasks of its manager.

use kube::{Client, Resource, core::ApiResource};

use crate::{
    Manager,
    object::Object,
    watch::{self, EventHandler, Guarded, WatchHealth, WatchOptions, handle_events, watch_when_available},
};

/// Starts watches as tasks of a manager. Each watch and its check are called after the plural of the kind, such as `secrets-watch`.
///
/// `E` is what a watch decodes: the kind itself, or [`Guarded`] where one malformed object must not end the watch of all others.
pub struct Informers<'a> {
    manager: &'a mut Manager,
    client: Client,
    options: WatchOptions,
}

impl<'a> Informers<'a> {
    /// Watches that begin when the manager runs, all with the same options.
    pub fn new(manager: &'a mut Manager, client: Client, options: WatchOptions) -> Self {
        Self { manager, client, options }
    }

    /// Watches a kind that the cluster must have. The program is ready only while the watch works.
    pub fn required<E, K, H>(&mut self, kind: &E::DynamicType, handler: H) -> WatchHealth
    where
        E: Object + Into<Guarded<K>>,
        K: Resource + 'static,
        H: EventHandler<K, Key: Send> + Send + 'static,
    {
        let (follow, health) = self.follow::<E, K, H>(kind, handler);
        let (name, checked) = (task_name::<E>(kind), health.clone());
        self.manager.checks().readiness(name.clone(), move || checked.check());
        self.manager.task(name, follow);
        health
    }

    /// Watches a kind that the cluster or the role need not have, once it can be listed. The readiness of the program does not depend on it;
    /// [`WatchHealth::presence`] tells what is known.
    pub fn optional<E, K, H>(&mut self, kind: &E::DynamicType, handler: H) -> WatchHealth
    where
        E: Object + Into<Guarded<K>>,
        K: Resource + 'static,
        H: EventHandler<K, Key: Send> + Send + 'static,
    {
        let (follow, health) = self.follow::<E, K, H>(kind, handler);
        let (resource, options) = (ApiResource::erase::<E>(kind), self.options.clone());
        self.manager.task(
            task_name::<E>(kind),
            watch_when_available(self.client.clone(), resource, options, health.clone(), follow),
        );
        health
    }

    fn follow<E, K, H>(
        &self,
        kind: &E::DynamicType,
        mut handler: H,
    ) -> (impl Future<Output = ()> + Send + use<E, K, H>, WatchHealth)
    where
        E: Object + Into<Guarded<K>>,
        K: Resource + 'static,
        H: EventHandler<K, Key: Send> + Send + 'static,
    {
        let (events, health) = watch::events::<E>(self.client.clone(), kind, &self.options);
        // A function that takes a stream and awaits it has room for it twice.
        let events = Box::pin(events);
        (async move { handle_events(events, &mut handler).await }, health)
    }
}

fn task_name<E: Object>(kind: &E::DynamicType) -> String {
    format!("{}-watch", E::plural(kind))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use k8s_openapi::api::core::v1::Secret;
    use kube::api::ObjectMeta;

    use super::*;
    use crate::{Metrics, watch::Origin};

    /// Keeps nothing.
    struct Nothing;

    impl EventHandler<Secret> for Nothing {
        type Key = String;

        fn key(&self, metadata: &ObjectMeta) -> Option<String> {
            metadata.name.clone()
        }

        fn apply(&mut self, _: &String, _: Secret, _: Origin) -> bool {
            false
        }

        fn delete(&mut self, _: &String) {}

        fn replace(&mut self, _: &HashSet<String>) {}
    }

    #[tokio::test]
    async fn the_task_of_a_watch_takes_the_memory_of_the_stream_once() {
        let silent = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, std::convert::Infallible>>()
        });
        let client = Client::new(silent, "shop");
        let options = WatchOptions::default();
        let stream = size_of_val(&watch::events::<Secret>(client.clone(), &(), &options).0);
        let mut manager = Manager::new(Metrics::new("test", "0"));
        let task = Informers::new(&mut manager, client, options).follow::<Secret, Secret, _>(&(), Nothing).0;
        let around = size_of_val(&task);
        assert!(around < stream, "{around} bytes around a stream of {stream}");
    }
}
