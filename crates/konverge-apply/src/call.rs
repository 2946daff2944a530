//! One request to the API server and its answer.

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use kube::{
    Client,
    api::{GetParams, ListParams},
    client::Body,
    core::{ObjectList, ObjectMeta, PartialObjectMeta, request},
};
use serde::de::DeserializeOwned;

use crate::{
    error::{ApplyError, refusal},
    object_name::ObjectName,
};

/// Returns the response of the API server, whatever its status.
pub(crate) struct Answer {
    pub(crate) code: StatusCode,
    headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn decode<T: DeserializeOwned>(&self, object: &ObjectName) -> Result<T, ApplyError> {
        serde_json::from_slice(&self.body)
            .map_err(|source| ApplyError::Answer { object: Box::new(object.clone()), source })
    }

    /// The error that a code other than a success is.
    pub(crate) fn refusal(&self, object: &ObjectName) -> ApplyError {
        refusal(object, self.code, &self.headers, &self.body)
    }

    /// The answer itself if it is a success.
    pub(crate) fn success(self, object: &ObjectName) -> Result<Self, ApplyError> {
        if self.code.is_success() { Ok(self) } else { Err(self.refusal(object)) }
    }
}

/// Sends a request that kube has built.
pub(crate) async fn send(
    client: &Client,
    object: &ObjectName,
    request: Result<Request<Vec<u8>>, request::Error>,
) -> Result<Answer, ApplyError> {
    let request = request.map_err(|source| ApplyError::Request { object: Box::new(object.clone()), source })?;
    exchange(client, object, request.map(Body::from)).await
}

/// Sends a request that kube has built, with another body than kube gave it.
pub(crate) async fn send_with_body(
    client: &Client,
    object: &ObjectName,
    request: Result<Request<Vec<u8>>, request::Error>,
    body: Bytes,
) -> Result<Answer, ApplyError> {
    let request = request.map_err(|source| ApplyError::Request { object: Box::new(object.clone()), source })?;
    exchange(client, object, request.map(|_| Body::from(body))).await
}

/// The metadata of the object with this uid, or nothing if it is no longer there; `requests` builds those about its kind, in its namespace. The
/// API server answers 409 for a deleted object as for a lost race, and 422 for one that was made anew as for a field that is not allowed.
///
/// Looks by a list, because a controller may list its kind, and often may not get single objects; where it may not list, it gets the object.
pub(crate) async fn still_there(
    client: &Client,
    object: &ObjectName,
    requests: &request::Request,
    uid: &str,
) -> Result<Option<ObjectMeta>, ApplyError> {
    let only = ListParams::default().fields(&format!("metadata.name={}", object.name));
    let listed = send(client, object, requests.list_metadata(&only)).await?;
    let found: Option<PartialObjectMeta> = if listed.code == StatusCode::FORBIDDEN {
        let got = send(client, object, requests.get_metadata(&object.name, &GetParams::default())).await?;
        if got.code == StatusCode::NOT_FOUND { None } else { Some(got.success(object)?.decode(object)?) }
    } else {
        let list: ObjectList<PartialObjectMeta> = listed.success(object)?.decode(object)?;
        list.items.into_iter().next()
    };
    Ok(found.map(|found| found.metadata).filter(|found| found.uid.as_deref() == Some(uid)))
}

async fn exchange(client: &Client, object: &ObjectName, request: Request<Body>) -> Result<Answer, ApplyError> {
    let transport = |source| ApplyError::Transport { object: Box::new(object.clone()), source };
    let response = client.send(request).await.map_err(transport)?;
    let (head, body) = response.into_parts();
    let body = body.collect_bytes().await.map_err(transport)?;
    Ok(Answer { code: head.status, headers: head.headers, body })
}
