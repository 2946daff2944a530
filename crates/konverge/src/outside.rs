//! Things outside the cluster as triggers of a controller.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use futures::{FutureExt, StreamExt, stream};
use konverge_external::{Change, Metrics, Options, Source, watch};
use konverge_runtime::{cache::Store, object::Object, object::ObjectKey};

use crate::{
    controller::{Controller, Trigger},
    setup::{Setup, elects},
};

impl<K: Object, R> Controller<K, R> {
    /// Watches something outside the cluster. `map` tells which objects a change concerns; it may look into the cache of `K`.
    ///
    /// The source is asked as `options` say, with growing pauses after failures. Its name names it in logs, in its metrics and in the
    /// readiness checks, which fail until it has answered once and while it has been failing for long. It ends with the program.
    ///
    /// With leader election, only the leader asks, and a replica that stands by is ready without an answer. Set
    /// [`Options::on_standbys`] to have a stream open, and its changes in the queue, before a replica takes over.
    #[must_use]
    pub fn watches_outside<S: Source, Keys>(
        mut self,
        name: &'static str,
        source: S,
        options: Options,
        map: impl Fn(&Change<S::Item>, &Store<K>) -> Keys + Send + Sync + 'static,
    ) -> Self
    where
        Keys: IntoIterator<Item = ObjectKey>,
    {
        let on_standbys = options.asks_on_standbys();
        let stream = move |setup: &mut Setup, store: Store<K>| {
            let metrics = setup.outside.get_or_insert_with(|| setup.metrics.register(Metrics::register));
            let options = options.metrics(metrics).shutdown(setup.manager.stop_tasks());
            let (changes, health) = watch(source, options);
            let waits_for_the_lease = elects(setup.options()) && !on_standbys;
            let has_begun = Arc::new(AtomicBool::new(!waits_for_the_lease));
            let begin = Arc::clone(&has_begun);
            setup
                .manager
                .checks()
                .readiness(name, move || if has_begun.load(Ordering::Acquire) { health.ready() } else { Ok(()) });
            let keys = move |change| stream::iter(map(&change, &store).into_iter().collect::<Vec<_>>());
            let changes = async move {
                begin.store(true, Ordering::Release);
                changes
            };
            changes.flatten_stream().flat_map(keys).boxed()
        };
        self.triggers.push(Trigger {
            name,
            stream: Box::new(stream),
            on_standbys,
            describe: |registry| drop(Metrics::register(registry)),
        });
        self
    }
}
