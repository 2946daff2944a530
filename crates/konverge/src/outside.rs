//! Things outside the cluster as triggers of a controller.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use futures::{FutureExt, StreamExt, stream};
use konverge_external::{Change, Metrics, Options, Source, watch};
use konverge_runtime::{
    cache::Store,
    object::{Object, ObjectKey},
};
use prometheus_client::registry::Registry;

use crate::{
    setup::{Setup, elects},
    wakes::Trigger,
};

/// A source as a trigger; see [`Controller::watches_outside`](crate::Controller::watches_outside).
pub(crate) fn trigger<K: Object, S: Source, Keys: IntoIterator<Item = ObjectKey>>(
    name: &'static str,
    source: S,
    options: Options,
    map: impl Fn(&Change<S::Item>, &Store<K>) -> Keys + Send + Sync + 'static,
) -> Trigger<K> {
    let on_standbys = options.polls_on_standbys();
    let stream = move |setup: &mut Setup, store: Store<K>| {
        let metrics = setup.series.outside.get_or_insert_with(|| setup.metrics.register(Metrics::register));
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
    let describe = |registry: &mut Registry| drop(Metrics::register(registry));
    Trigger { name, stream: Box::new(stream), on_standbys, describe }
}
