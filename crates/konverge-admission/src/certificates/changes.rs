//! News that the Secret or a target has changed, so that what somebody overwrote is mended at once and not at the next look.
//!
//! Only metadata is watched. A watch that fails, for want of permission too, costs speed and nothing else.

use std::fmt::Debug;

use futures::{
    Stream, StreamExt,
    future::ready,
    stream::{BoxStream, select_all},
};
use k8s_openapi::{
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        core::v1::Secret,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use konverge_core::error::in_one_line;
use kube::{
    Api, Client, Resource,
    core::PartialObjectMeta,
    runtime::{WatchStreamExt, watcher},
};
use serde::de::DeserializeOwned;

use super::inject::Target;

/// An item for each change that was seen. Never ends.
pub(super) fn changes(
    client: &Client,
    namespace: &str,
    secret: &str,
    targets: &[Target],
) -> impl Stream<Item = ()> + Send + use<> {
    let mut streams = vec![of::<Secret>(Api::namespaced(client.clone(), namespace), secret)];
    streams.extend(targets.iter().map(|target| {
        let name = target.name();
        match target {
            Target::Validating(_) | Target::ApplyValidating(_) => {
                of::<ValidatingWebhookConfiguration>(Api::all(client.clone()), name)
            }
            Target::Mutating(_) | Target::ApplyMutating(_) => {
                of::<MutatingWebhookConfiguration>(Api::all(client.clone()), name)
            }
            Target::Conversion(_) | Target::ConversionAt { .. } => {
                of::<CustomResourceDefinition>(Api::all(client.clone()), name)
            }
        }
    }));
    select_all(streams)
}

fn of<K>(api: Api<PartialObjectMeta<K>>, name: &str) -> BoxStream<'static, ()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    watcher(api, only)
        .default_backoff()
        .filter_map(|event| {
            let changed = matches!(event, Ok(watcher::Event::Apply(_) | watcher::Event::Delete(_)));
            if let Err(error) = event {
                tracing::debug!(
                    error = %in_one_line(&error),
                    "a watch of what the webhook certificates need fails; the next look will do"
                );
            }
            ready(changed.then_some(()))
        })
        .boxed()
}
