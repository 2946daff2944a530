//! Against a real S3 server.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use konverge_external::{
    ChangeKind,
    objects::{
        Content, ObjectSource,
        object_store::{ObjectStore, ObjectStoreExt, path::Path},
        open,
    },
    watch,
};
use konverge_testkit_stores::ObjectStoreServer;

use crate::{
    failing, next,
    objects::{delete, next_path, put},
    options, quiet_until,
};

fn connect(server: &ObjectStoreServer, secret: &str) -> Arc<dyn ObjectStore> {
    let endpoint = server.endpoint();
    let settings = [
        ("endpoint", endpoint.as_str()),
        ("region", ObjectStoreServer::REGION),
        ("access_key_id", ObjectStoreServer::ACCESS_KEY_ID),
        ("secret_access_key", secret),
        ("allow_http", "true"),
    ];
    open(&format!("s3://{}", ObjectStoreServer::BUCKET), settings).unwrap().0
}

async fn start() -> (ObjectStoreServer, Arc<dyn ObjectStore>) {
    let server = ObjectStoreServer::start().await.unwrap();
    let store = connect(&server, ObjectStoreServer::SECRET_ACCESS_KEY);
    (server, store)
}

#[tokio::test]
async fn objects_come_change_and_go() {
    let (_server, store) = start().await;
    let source = ObjectSource::new("bucket", Arc::clone(&store)).prefix("in").fetch(100);
    let (mut changes, health) = watch(source, options());
    quiet_until(&mut changes, || health.ready().is_ok()).await;
    put(&*store, "out/a", "1").await;
    put(&*store, "in/a", "one").await;
    let item = next(&mut changes).await.into_item();
    assert_eq!((item.path.as_str(), item.size), ("in/a", Some(3)));
    assert_eq!(item.content, Content::Fetched("one".into()));
    assert!(item.etag.is_some() && item.last_modified.is_some());

    put(&*store, "in/a", "two").await;
    let change = next(&mut changes).await;
    assert_eq!((change.kind(), &change.item().content), (ChangeKind::Modified, &Content::Fetched("two".into())));

    // The same content again has the same tag, and is no change.
    put(&*store, "in/a", "two").await;
    put(&*store, "in/b", "one").await;
    assert_eq!(next_path(&mut changes).await, (ChangeKind::Added, "in/b".to_owned()));

    delete(&*store, "in/a").await;
    assert_eq!(next_path(&mut changes).await, (ChangeKind::Removed, "in/a".to_owned()));
}

#[tokio::test]
async fn row_24_a_listing_of_several_pages_is_seen_whole() {
    const OBJECTS: usize = 1_100;
    let (_server, store) = start().await;
    let puts = stream::iter(0..OBJECTS).map(|number| {
        let store = Arc::clone(&store);
        async move { store.put(&Path::from(format!("{number:04}")), "1".into()).await }
    });
    puts.buffer_unordered(16).try_collect::<Vec<_>>().await.unwrap();
    let (mut changes, _) = watch(ObjectSource::new("bucket", Arc::clone(&store)), options());
    for number in 0..OBJECTS {
        assert_eq!(next_path(&mut changes).await, (ChangeKind::Added, format!("{number:04}")));
    }
    delete(&*store, "1050").await;
    assert_eq!(next_path(&mut changes).await, (ChangeKind::Removed, "1050".to_owned()));
}

#[tokio::test]
async fn wrong_credentials_are_named_and_the_secret_is_not() {
    let (server, _) = start().await;
    let (mut changes, health) = watch(ObjectSource::new("bucket", connect(&server, "wrong-secret")), options());
    let error = failing(&mut changes, &health).await;
    assert!(error.starts_with("cannot list AmazonS3(bucket): "), "{error}");
    assert!(
        error.contains("403 Forbidden: SignatureDoesNotMatch") && error.contains("are the credentials right"),
        "{error}"
    );
    assert!(!error.contains("wrong-secret") && error.len() < 700, "{error}");
}

#[tokio::test]
async fn an_outage_changes_nothing_and_ends() {
    let (mut server, store) = start().await;
    put(&*store, "a", "1").await;
    put(&*store, "b", "1").await;
    let (mut changes, health) = watch(ObjectSource::new("bucket", Arc::clone(&store)), options());
    next(&mut changes).await;
    next(&mut changes).await;
    server.kill();
    quiet_until(&mut changes, || health.failures() >= 3).await;
    assert!(health.last_error().unwrap().contains("cannot list AmazonS3(bucket)"));
    server.start_again().await.unwrap();
    quiet_until(&mut changes, || health.failures() == 0).await;
    put(&*store, "c", "1").await;
    assert_eq!(next_path(&mut changes).await, (ChangeKind::Added, "c".to_owned()));
}
