//! Secrets that are none of an operator's business, to see what they cost it.

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};

/// How many bytes one of [`create_foreign_secrets`] holds.
pub const FOREIGN_SECRET_SIZE: usize = 20 * 1024;

/// Makes so many Secrets without labels and annotations in a namespace, `foreign-0` and so on, so many at the same time.
pub async fn create_foreign_secrets(
    client: &Client,
    namespace: &str,
    count: usize,
    at_once: usize,
) -> Result<(), kube::Error> {
    let api = Api::<Secret>::namespaced(client.clone(), namespace);
    let made = stream::iter(0..count).map(async |number| {
        let metadata = ObjectMeta { name: Some(format!("foreign-{number}")), ..ObjectMeta::default() };
        let data = Some([("payload".to_owned(), ByteString(vec![b'x'; FOREIGN_SECRET_SIZE]))].into());
        api.create(&PostParams::default(), &Secret { metadata, data, ..Secret::default() }).await
    });
    made.buffer_unordered(at_once).try_for_each(async |_| Ok(())).await
}
