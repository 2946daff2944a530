//! Requests that never end.

use std::future::poll_fn;

use bytes::Bytes;
use http_body::Frame;
use http_body_util::StreamBody;
use tokio_stream::StreamExt;
use tonic::{Status, transport::Channel};
use tower_service::Service;

/// The beginning of an `UpsertSecret` request that never goes on. Clones share its bytes.
#[derive(Clone)]
pub struct UnfinishedRequest(Bytes);

impl UnfinishedRequest {
    /// Announces a message of so many bytes, of which the first `sent` arrive.
    pub fn new(announced: u32, sent: usize) -> Self {
        let mut message = vec![0; 5 + sent];
        message[1..5].copy_from_slice(&announced.to_be_bytes());
        Self(message.into())
    }

    /// Sends it and returns the answer, which can only be a refusal; otherwise this waits for ever.
    pub async fn send(&self, mut channel: Channel) -> Result<Status, Box<dyn std::error::Error + Send + Sync>> {
        let frames = tokio_stream::once(Ok::<_, Status>(Frame::data(self.0.clone()))).chain(tokio_stream::pending());
        let request = http::Request::post("http://localhost/zopp.ZoppService/UpsertSecret")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(tonic::body::Body::new(StreamBody::new(frames)))?;
        poll_fn(|context| channel.poll_ready(context)).await?;
        let response = channel.call(request).await?;
        Ok(Status::from_header_map(response.headers()).ok_or("the answer is no refusal")?)
    }
}
