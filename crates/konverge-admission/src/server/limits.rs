//! The bounds of a request. Every client that reaches the port may call, so each resource has a bound.

use std::time::Duration;

/// The bounds of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of an admission review; 8 MiB. The API server takes requests of up to 3 MiB, and the stored object next to it is at
    /// most 1.5 MiB in etcd. Built-in kinds are stored and may be sent as protobuf, of which JSON is up to twice as long.
    pub admission_body: usize,
    /// Bytes of a conversion review; 64 MiB. It may hold a whole page of a list, and one that does not fit makes the list
    /// unreadable.
    pub conversion_body: usize,
    /// Connections at once; 256. An API server keeps one or a few. Further ones wait to be accepted. One of HTTP/2 may
    /// stay as long as it answers pings.
    pub connections: usize,
    /// Calls at once; 64. Further ones wait, so that bodies take a bounded part of memory.
    pub calls: usize,
    /// For the TLS handshake; 10 seconds.
    pub handshake: Duration,
    /// For the head of an HTTP/1.1 request, and between two on one connection; 90 seconds, as long as the API server keeps an idle
    /// connection.
    pub idle: Duration,
    /// For a call as a whole, if the API server does not say how long it waits; 30 seconds, the most that it can.
    pub call: Duration,
    /// For the calls that are under way when the server is to stop; 15 seconds, half of what Kubernetes gives a pod to end.
    pub drain: Duration,
    /// How long new connections are accepted after the server is to stop; 0. Readiness fails from the beginning of it. With some
    /// seconds, nobody meets a closed port while the endpoints of the Service are brought up to date.
    pub linger: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            admission_body: 8 << 20,
            conversion_body: 64 << 20,
            connections: 256,
            calls: 64,
            handshake: Duration::from_secs(10),
            idle: Duration::from_secs(90),
            call: Duration::from_secs(30),
            drain: Duration::from_secs(15),
            linger: Duration::ZERO,
        }
    }
}

konverge_core::with!(Limits);
