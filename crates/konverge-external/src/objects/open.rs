//! Getting at a store by its address.

use std::{path::PathBuf, sync::Arc, time::Duration};

use konverge_core::error::in_one_line;
use object_store::{
    ObjectStore, ObjectStoreScheme, RetryConfig, aws::AmazonS3Builder, azure::MicrosoftAzureBuilder,
    gcp::GoogleCloudStorageBuilder, local::LocalFileSystem, memory::InMemory, path::Path,
};
use url::Url;

use super::Connector;
use crate::http;

/// A store cannot be got at.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the object store {address}: {why}")]
pub struct OpenError {
    address: String,
    why: String,
}

/// Opens a store by address: `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, the `https` addresses
/// of these, `file:///folder`, or `memory:///`. The path in it comes back beside the store.
/// [`ObjectSource::open`](super::ObjectSource::open) does it for a source.
///
/// Options are those of the crate `object_store`, such as `endpoint`, `region`, `access_key_id`, `secret_access_key` or
/// `allow_http`. The environment (`AWS_*`, `GOOGLE_*`, `AZURE_*`) takes precedence, so identities of pods work without
/// a setting. TLS is rustls with ring and the system's certificate authorities. A request is repeated twice at most;
/// the rest is left to the pauses of the watch.
pub fn open<'a>(
    address: &str,
    options: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<(Arc<dyn ObjectStore>, Path), OpenError> {
    let url = Url::parse(address)
        .map_err(|error| OpenError { address: "(not an address)".to_owned(), why: error.to_string() })?;
    // Causes quote the address as it was given.
    let shown = http::shown(&url);
    let failed = |why: String| OpenError { address: shown.clone(), why: why.replace(url.as_str(), &shown) };
    let (scheme, path) = ObjectStoreScheme::parse(&url).map_err(|error| failed(in_one_line(&error)))?;
    let retries = RetryConfig { max_retries: 2, retry_timeout: Duration::from_secs(30), ..RetryConfig::default() };
    // The three builders have the same methods and no trait in common.
    macro_rules! remote {
        ($builder:ty) => {{
            let mut builder = <$builder>::from_env().with_url(url.as_str());
            for (name, value) in options {
                let key = name.to_ascii_lowercase().parse().map_err(|_| failed(format!("it has no option {name}")))?;
                builder = builder.with_config(key, value);
            }
            let built = builder.with_http_connector(Connector).with_retry(retries).build();
            Arc::new(built.map_err(|error| failed(in_one_line(&error)))?) as Arc<dyn ObjectStore>
        }};
    }
    let store = match scheme {
        ObjectStoreScheme::AmazonS3 => remote!(AmazonS3Builder),
        ObjectStoreScheme::GoogleCloudStorage => remote!(GoogleCloudStorageBuilder),
        ObjectStoreScheme::MicrosoftAzure => remote!(MicrosoftAzureBuilder),
        ObjectStoreScheme::Local => Arc::new(LocalFileSystem::new()),
        ObjectStoreScheme::Memory => Arc::new(InMemory::new()),
        other => return Err(failed(format!("{other:?} is not supported"))),
    };
    Ok((store, path))
}

/// The folder that an address means, if it means one.
pub(super) fn folder(address: &str) -> Option<PathBuf> {
    Url::parse(address).ok().filter(|url| url.scheme() == "file")?.to_file_path().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (address, options, store, prefix) in [
            ("memory:///a", vec![], "InMemory", "a"),
            ("file:///a/b", vec![], "LocalFileSystem(file:///)", "a/b"),
            ("s3://bucket/a/b", vec![("region", "eu-central-1")], "AmazonS3(bucket)", "a/b"),
            (
                "az://container/a",
                vec![("account_name", "x")],
                "MicrosoftAzure { account: x, container: container }",
                "a",
            ),
        ] {
            let (opened, path) = open(address, options).unwrap();
            assert_eq!((opened.to_string().as_str(), path.as_ref()), (store, prefix));
        }
    }

    #[test]
    fn what_cannot_be_opened_is_named_without_secrets() {
        for (address, options, why) in [
            ("bucket", vec![], "relative URL"),
            ("https://example.com/a?sig=secret", vec![], "not supported"),
            ("s3://user:secret@bucket/a", vec![("regoin", "x")], "it has no option regoin"),
            ("ftp://secret@example.com/", vec![], "ftp"),
        ] {
            let error = open(address, options).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains("secret"), "{error}");
        }
    }
}
