//! Whether a server is there and serves: the standard gRPC health check, unsigned.

use bytes::Bytes;
use prost::Message;

use crate::{
    connection::{Connection, Rpc},
    error::CallError,
};

const CHECK: Rpc = Rpc { name: "Check", path: "/grpc.health.v1.Health/Check" };

/// `grpc.health.v1.HealthCheckRequest` for the server as a whole: the service's name is empty, so there is nothing to send.
const WHOLE_SERVER: Bytes = Bytes::new();

/// `HealthCheckResponse.ServingStatus.SERVING`.
const SERVING: i32 = 1;

/// `grpc.health.v1.HealthCheckResponse`.
#[derive(Clone, PartialEq, Message)]
struct HealthCheckResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

impl Connection {
    /// Whether the server says of itself that it serves. Asks it, within the call timeout.
    pub async fn is_serving(&self) -> Result<bool, CallError> {
        let answer: HealthCheckResponse = self.unary(CHECK, WHOLE_SERVER, None).await?;
        Ok(answer.status == SERVING)
    }
}
