use std::sync::Arc;

use konverge_external::{
    Change, ChangeKind, Changes,
    memory::InProcess,
    objects::{
        Content, ObjectSource, StoredObject,
        object_store::{ObjectStore, ObjectStoreExt, local::LocalFileSystem, memory::InMemory, path::Path},
    },
    watch,
};

use crate::{
    failing, next, options, quiet_until,
    server::{ReceivedRequest, Server, answer},
};

pub(crate) async fn put(store: &dyn ObjectStore, path: &str, content: &'static str) {
    store.put(&Path::from(path), content.into()).await.unwrap();
}

pub(crate) async fn delete(store: &dyn ObjectStore, path: &str) {
    store.delete(&Path::from(path)).await.unwrap();
}

pub(crate) async fn next_path(changes: &mut Changes<StoredObject>) -> (ChangeKind, String) {
    let change = next(changes).await;
    (change.kind(), change.into_item().path)
}

#[tokio::test]
async fn objects_in_memory_come_change_and_go() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    put(&*store, "in/a", "1").await;
    put(&*store, "inside/b", "1").await;
    let (mut changes, health) = watch(ObjectSource::new("store", Arc::clone(&store)).prefix("in"), options());
    let Change::Added(item) = next(&mut changes).await else { panic!("it is added") };
    assert_eq!((item.path.as_str(), item.size, item.content), ("in/a", Some(1), Content::NotFetched));
    assert!(item.etag.is_some() && item.last_modified.is_some());
    put(&*store, "in/a", "2").await;
    put(&*store, "in/c/d", "1").await;
    assert_eq!(next_path(&mut changes).await, (ChangeKind::Modified, "in/a".to_owned()));
    assert_eq!(next_path(&mut changes).await, (ChangeKind::Added, "in/c/d".to_owned()));
    delete(&*store, "in/a").await;
    let Change::Removed(item) = next(&mut changes).await else { panic!("it is removed") };
    assert_eq!((item.path.as_str(), item.size), ("in/a", None));
    put(&*store, "in/a", "2").await;
    assert_eq!(next_path(&mut changes).await, (ChangeKind::Added, "in/a".to_owned()));
    health.ready().unwrap();
}

#[tokio::test]
async fn row_25_after_a_restart_only_what_changed_meanwhile_is_told() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    for path in ["same", "other", "gone"] {
        put(&*store, path, "1").await;
    }
    let memory = InProcess::default();
    let start = || watch(ObjectSource::new("store", Arc::clone(&store)), options().memory(memory.clone()));
    let (mut changes, _) = start();
    for _ in 0..3 {
        assert!(matches!(next(&mut changes).await, Change::Added(_)));
    }
    let mut polled = futures::FutureExt::now_or_never(futures::StreamExt::next(&mut changes));
    assert!(polled.take().is_none(), "asking for more is what makes it remember");
    drop(changes);
    put(&*store, "other", "2").await;
    put(&*store, "new", "1").await;
    delete(&*store, "gone").await;
    let (mut changes, _) = start();
    let mut found = Vec::new();
    for _ in 0..3 {
        found.push(next_path(&mut changes).await);
    }
    let expected = [(ChangeKind::Added, "new"), (ChangeKind::Modified, "other"), (ChangeKind::Removed, "gone")];
    assert_eq!(found, expected.map(|(kind, path)| (kind, path.to_owned())));
}

#[tokio::test]
async fn row_24_contents_of_a_folder_are_fetched_up_to_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a"), "one").unwrap();
    std::fs::write(folder.path().join("large"), "far too much").unwrap();
    let store: Arc<dyn ObjectStore> = Arc::new(LocalFileSystem::new_with_prefix(folder.path()).unwrap());
    let (mut changes, _) = watch(ObjectSource::new("folder", store).fetch(3), options());
    let mut contents = Vec::new();
    for _ in 0..2 {
        let item = next(&mut changes).await.into_item();
        contents.push((item.path, item.content));
    }
    contents.sort_by(|left, right| left.0.cmp(&right.0));
    let fetched = |text: &'static str| Content::Fetched(text.into());
    assert_eq!(contents, [("a".to_owned(), fetched("one")), ("large".to_owned(), Content::TooLarge)]);
    std::fs::write(folder.path().join("a"), "two").unwrap();
    let Change::Modified(item) = next(&mut changes).await else { panic!("it is modified") };
    assert_eq!(item.content, fetched("two"));
}

#[tokio::test]
async fn row_24_more_objects_than_the_limit_are_an_error_and_no_change() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    put(&*store, "a", "1").await;
    put(&*store, "b", "1").await;
    let (mut changes, health) = watch(ObjectSource::new("store", Arc::clone(&store)).object_limit(2), options());
    next(&mut changes).await;
    next(&mut changes).await;
    put(&*store, "c", "1").await;
    let error = failing(&mut changes, &health).await;
    assert!(error.contains("more than 2 objects in InMemory"), "{error}");
    delete(&*store, "a").await;
    assert_eq!(next_path(&mut changes).await, (ChangeKind::Added, "c".to_owned()));
    assert_eq!(next_path(&mut changes).await, (ChangeKind::Removed, "a".to_owned()));
}

/// A page of a listing as S3 writes it, and where the next one begins.
fn page(keys: &[&str], next: Option<&str>) -> String {
    let content = |key: &&str| {
        format!(
            "<Contents><Key>{key}</Key><Size>1</Size><ETag>&quot;{key}&quot;</ETag>\
             <LastModified>2026-11-20T10:00:00.000Z</LastModified></Contents>"
        )
    };
    let contents = keys.iter().map(content).collect::<Vec<_>>().concat();
    let next = next.map(|token| format!("<NextContinuationToken>{token}</NextContinuationToken>")).unwrap_or_default();
    format!("<?xml version=\"1.0\"?><ListBucketResult>{contents}{next}</ListBucketResult>")
}

fn two_pages(request: &ReceivedRequest) -> axum::response::Response {
    let second = request.query.contains("continuation-token");
    let page = if second { page(&["c", "d"], None) } else { page(&["a", "b"], Some("more")) };
    answer(200, &[("content-type", "application/xml")], page)
}

/// No destruction from ignorance, for listings.
#[tokio::test]
async fn a_listing_that_fails_half_way_or_never_ends_changes_nothing() {
    let server = Server::start(two_pages).await;
    let settings = [("endpoint", server.address.as_str()), ("allow_http", "true"), ("skip_signature", "true")];
    let source =
        ObjectSource::open("store", "s3://bucket", settings).unwrap().silence(std::time::Duration::from_millis(300));
    let (mut changes, health) = watch(source, options());
    for path in ["a", "b", "c", "d"] {
        assert_eq!(next_path(&mut changes).await, (ChangeKind::Added, path.to_owned()));
    }
    let faults: [(u16, &'static str, &'static str); 4] = [
        (403, "<Error><Code>AccessDenied</Code><Message>no</Message></Error>", "AccessDenied: no"),
        (404, "<Error><Code>NoSuchBucket</Code><Message>none</Message></Error>", "NoSuchBucket: none"),
        (200, "<ListBucketResult><Contents><Key>c</Key>", "cannot list AmazonS3(bucket)"),
        (200, "<html>please log in</html>", "is something between here and the store"),
    ];
    for (status, body, expected) in faults {
        server.answers(move |request| {
            let second = request.query.contains("continuation-token");
            if second { answer(status, &[], body) } else { answer(200, &[], page(&["a", "b"], Some("more"))) }
        });
        let error = failing(&mut changes, &health).await;
        assert!(error.contains(expected), "{error}");
        quiet_until(&mut changes, server.times(6)).await;
        server.answers(two_pages);
        quiet_until(&mut changes, || health.failures() == 0).await;
    }
    let silent = || futures::stream::pending::<Result<axum::body::Bytes, std::convert::Infallible>>();
    server.answers(move |_| answer(200, &[], axum::body::Body::from_stream(silent())));
    assert!(failing(&mut changes, &health).await.contains("nothing came for"));
    server.answers(|_| answer(200, &[], page(&["a", "b", "c"], None)));
    assert_eq!(next_path(&mut changes).await, (ChangeKind::Removed, "d".to_owned()));
}

#[tokio::test]
async fn one_object_that_may_not_be_read_holds_up_no_other() {
    let answers = |forbidden: bool| {
        move |request: &ReceivedRequest| match request.path.as_str() {
            "/bucket" => answer(200, &[], page(&["a", "b"], None)),
            "/bucket/a" if forbidden => answer(403, &[], "<Error><Code>AccessDenied</Code></Error>"),
            path => {
                let tag = path.trim_start_matches("/bucket/");
                let headers = [("etag", &*format!("\"{tag}\"")), ("last-modified", "Fri, 20 Nov 2026 10:00:00 GMT")];
                answer(200, &headers, "1")
            }
        }
    };
    let server = Server::start(answers(true)).await;
    let settings = [("endpoint", server.address.as_str()), ("allow_http", "true"), ("skip_signature", "true")];
    let source = ObjectSource::open("store", "s3://bucket", settings).unwrap().fetch(100);
    let (mut changes, health) = watch(source, options());
    let Change::Added(item) = next(&mut changes).await else { panic!("it is added") };
    assert_eq!((item.path.as_str(), item.content), ("b", Content::Fetched("1".into())));
    quiet_until(&mut changes, server.times(4)).await;
    health.ready().unwrap();
    let error = health.last_error().unwrap();
    assert!(error.contains("cannot read AmazonS3(bucket)/a: ") && error.contains("AccessDenied"), "{error}");
    server.answers(answers(false));
    assert_eq!(next_path(&mut changes).await, (ChangeKind::Added, "a".to_owned()));
}

/// No destruction from ignorance, for parents: a folder that went away has not become empty.
#[tokio::test]
async fn a_folder_that_is_not_there_is_an_error() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("mounted");
    let address = format!("file://{}", folder.display());
    let (mut changes, health) = watch(ObjectSource::open("folder", &address, []).unwrap(), options());
    let error = failing(&mut changes, &health).await;
    assert!(error.contains(&format!("cannot list {}", folder.display())), "{error}");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("a"), "1").unwrap();
    assert!(matches!(next(&mut changes).await, Change::Added(_)));
    std::fs::rename(&folder, parent.path().join("unmounted")).unwrap();
    quiet_until(&mut changes, || health.failures() >= 4).await;
    std::fs::rename(parent.path().join("unmounted"), &folder).unwrap();
    quiet_until(&mut changes, || health.failures() == 0).await;
    std::fs::remove_file(folder.join("a")).unwrap();
    assert!(matches!(next(&mut changes).await, Change::Removed(_)));
}

/// Objects without a tag were added by each poll, and never removed.
#[tokio::test]
async fn row_24_objects_without_a_tag_are_known_by_size_and_time() {
    let listing = |objects: &[(&str, &str)]| {
        let content = |(key, time): &(&str, &str)| {
            format!("<Contents><Key>{key}</Key><Size>1</Size><LastModified>{time}</LastModified></Contents>")
        };
        let contents = objects.iter().map(content).collect::<Vec<_>>().concat();
        let page = format!("<ListBucketResult>{contents}</ListBucketResult>");
        move |_: &ReceivedRequest| answer(200, &[], page.clone())
    };
    let (ten, eleven) = ("2026-11-20T10:00:00.000Z", "2026-11-20T11:00:00.000Z");
    let server = Server::start(listing(&[("a", ten), ("b", ten)])).await;
    let settings = [("endpoint", server.address.as_str()), ("allow_http", "true"), ("skip_signature", "true")];
    let (mut changes, _) = watch(ObjectSource::open("store", "s3://bucket", settings).unwrap(), options());
    let item = next(&mut changes).await.into_item();
    assert_eq!((item.path.as_str(), item.etag, item.last_modified), ("a", None, ten.parse().ok()));
    assert_eq!(next_path(&mut changes).await, (ChangeKind::Added, "b".to_owned()));
    quiet_until(&mut changes, server.times(3)).await;
    server.answers(listing(&[("a", eleven), ("b", ten)]));
    assert_eq!(next_path(&mut changes).await, (ChangeKind::Modified, "a".to_owned()));
    server.answers(listing(&[("b", ten)]));
    assert_eq!(next_path(&mut changes).await, (ChangeKind::Removed, "a".to_owned()));
}

/// The same client and the same checks for the other clouds.
#[tokio::test]
async fn azure_and_google_are_listed_too() {
    let azure = "<?xml version=\"1.0\"?><EnumerationResults><Blobs><Blob><Name>in/a</Name><Properties>\
                 <Last-Modified>Fri, 20 Nov 2026 10:00:00 GMT</Last-Modified><Content-Length>1</Content-Length>\
                 <Content-Type>text/plain</Content-Type><Etag>0x1</Etag></Properties></Blob></Blobs><NextMarker/></EnumerationResults>";
    let google = page(&["in/a"], None);
    for (address, listing) in [("az://container/in", azure), ("gs://bucket/in", google.as_str())] {
        let listing = listing.to_owned();
        let good = move |_: &ReceivedRequest| answer(200, &[("content-type", "application/xml")], listing.clone());
        let server = Server::start(good.clone()).await;
        let base = ("google_base_url", server.address.as_str());
        let endpoint = ("azure_storage_endpoint", server.address.as_str());
        let settings = if address.starts_with("az") {
            vec![endpoint, ("azure_storage_account_name", "account"), ("azure_skip_signature", "true")]
        } else {
            vec![base, ("google_skip_signature", "true")]
        };
        let settings = settings.into_iter().chain([("allow_http", "true")]);
        let (mut changes, health) = watch(ObjectSource::open("store", address, settings).unwrap(), options());
        assert_eq!(next_path(&mut changes).await, (ChangeKind::Added, "in/a".to_owned()));
        server.answers(|_| answer(200, &[], "<html>please log in</html>"));
        let error = failing(&mut changes, &health).await;
        assert!(error.contains("is something between here and the store"), "{error}");
        quiet_until(&mut changes, server.times(4)).await;
        server.answers(good);
        quiet_until(&mut changes, || health.failures() == 0).await;
    }
}
