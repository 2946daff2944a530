//! The cost of reading the lease's clock before each write: the same write with and without the gate, by turns. The difference of the
//! medians is held against the noise, which is the distance between the quartiles of the writes without it.

use std::{collections::BTreeMap, time::Instant};

use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use konverge_runtime::lease::{Elector, LeaseOptions};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::field::{Field, object_name};
use crate::{
    report::{Report, Row},
    samples::{median, percentile},
};

const WRITES: usize = 500;

pub(crate) async fn measure(field: &Field, report: &mut Report) -> Result<()> {
    let namespace = field.config_maps("lease-check", 1, 100).await?;
    let elector = Elector::new(field.client.clone(), LeaseOptions::new(&*namespace, "bench"));
    let mut leadership = elector.leadership();
    let release = CancellationToken::new();
    let elector = tokio::spawn(elector.run(release.clone()));
    leadership.acquired().await;
    let plain = Api::<ConfigMap>::namespaced(field.client.clone(), &namespace);
    let gated = Api::<ConfigMap>::namespaced(leadership.gate(field.client.clone()), &namespace);
    let mut samples = BTreeMap::from([(false, Vec::new()), (true, Vec::new())]);
    for number in 0..2 * WRITES {
        let is_gated = number % 2 == 1;
        let patch = Patch::Merge(json!({ "data": { "one": number.to_string() } }));
        let begun = Instant::now();
        let api = if is_gated { &gated } else { &plain };
        api.patch(&object_name(0), &PatchParams::default(), &patch).await?;
        samples.entry(is_gated).or_default().push(begun.elapsed().as_secs_f64() * 1e6);
    }
    release.cancel();
    elector.await??;
    let [without, with] = [false, true].map(|is_gated| samples.remove(&is_gated).unwrap_or_default());
    let (more, noise) = (median(&with) - median(&without), percentile(&without, 75) - percentile(&without, 25));
    report.add(Row {
        subject: "lease check of one write",
        figure: format!("{more:.0} µs more than {:.0} µs", median(&without)),
        against: format!("noise of {noise:.0} µs"),
        ratio: more / noise,
        bound: Some(1.0),
    });
    Ok(())
}
