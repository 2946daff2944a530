//! A user who changes objects while a peer watches them.

use std::{collections::HashMap, time::Duration};

use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use konverge_bench_protocol::{MARK, now};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{
    field::object_name,
    peer::{Peer, milliseconds_between},
};

/// Fifty a second.
pub(crate) const PACE: Duration = Duration::from_millis(20);

/// Steps over the objects in such a way that neighbours in time are none in the list; it shares no divisor with round counts.
const STRIDE: usize = 7919;

/// One change: when it was sent and answered.
pub(crate) struct Sent {
    mark: String,
    request: u64,
    answer: u64,
}

pub(crate) struct Changes {
    api: Api<ConfigMap>,
    pub(crate) sent: Vec<Sent>,
}

impl Changes {
    pub(crate) fn new(client: &Client, namespace: &str) -> Self {
        Self { api: Api::namespaced(client.clone(), namespace), sent: Vec::new() }
    }

    /// Changes the next of `objects`, and waits for the answer.
    pub(crate) async fn change(&mut self, objects: usize) -> Result<()> {
        let request = now();
        let mark = format!("{}-{request}", self.sent.len());
        let name = object_name(self.sent.len().wrapping_mul(STRIDE) % objects);
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { MARK: mark } } }));
        self.api.patch(&name, &PatchParams::default(), &patch).await?;
        self.sent.push(Sent { mark, request, answer: now() });
        Ok(())
    }

    /// Waits until the peer has begun a run for each change from the `from`th on, and returns how long it took in milliseconds: from
    /// the request and from its answer.
    pub(crate) async fn latencies(&self, from: usize, peer: &mut Peer) -> Result<Vec<(f64, f64)>> {
        let sent = self.sent.get(from..).unwrap_or_default();
        peer.until("a run for each change", |peer| {
            let mut begun = HashMap::new();
            for run in peer.runs.iter().filter(|run| !run.mark.is_empty()) {
                begun.entry(run.mark.as_str()).or_insert(run.at);
            }
            let latency = |sent: &Sent| {
                let at = *begun.get(sent.mark.as_str())?;
                Some((milliseconds_between(sent.request, at), milliseconds_between(sent.answer, at)))
            };
            sent.iter().map(latency).collect()
        })
        .await
    }
}
