//! The content of an object.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use object_store::{Error, GetOptions, ObjectMeta, ObjectStore};
use tokio::time::timeout;

use super::ObjectsError;

/// The content of an object, if it was asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Content {
    /// It was not asked for, or the object was removed.
    #[default]
    NotFetched,
    /// All of it.
    Fetched(Bytes),
    /// It is larger than the limit.
    TooLarge,
}

/// The result of a fetch.
pub(super) enum Fetched {
    Content(Content),
    /// It changed or went since it was listed; the next listing tells more.
    Outdated,
    /// This one object could not be had.
    Failed(ObjectsError),
}

/// Fetches the version that was listed, up to a size.
pub(super) async fn fetch(store: &dyn ObjectStore, meta: &ObjectMeta, largest: u64, silence: Duration) -> Fetched {
    if meta.size > largest {
        return Fetched::Content(Content::TooLarge);
    }
    let place = || format!("{store}/{}", meta.location);
    let get = async {
        let options = GetOptions { if_match: meta.e_tag.clone(), ..GetOptions::default() };
        let answer = store.get_opts(&meta.location, options).await?;
        let mut chunks = answer.into_stream();
        let mut content = BytesMut::new();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk?;
            // A store without tags may have a larger version by now.
            if (content.len() + chunk.len()) as u64 > largest {
                return Ok(Content::TooLarge);
            }
            content.extend_from_slice(&chunk);
        }
        Ok(Content::Fetched(content.freeze()))
    };
    match timeout(silence, get).await {
        Ok(Ok(content)) => Fetched::Content(content),
        Ok(Err(Error::NotFound { .. } | Error::Precondition { .. })) => Fetched::Outdated,
        Ok(Err(error)) => Fetched::Failed(ObjectsError::store("read", place(), &error)),
        Err(_) => Fetched::Failed(ObjectsError::Silent { act: "read", place: place(), limit: silence }),
    }
}
