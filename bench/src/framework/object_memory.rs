//! The memory for each watched object: the resident set of a peer that holds many `ConfigMap`s of 4 KiB, less that of a peer with a single
//! one, divided by their number. The bench compares it with the object's own bytes, which are its JSON without `managedFields`.
//!
//! With metadata alone, the same for objects of 4 and of 20 KiB: the payload must make no difference. Each is a new process that has
//! looked at every object once and then rested for a moment.
//!
//! A process keeps memory from the pages that it has listed. That is much for few objects and little for many, so there is a bound only from
//! 10,000 objects on.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use konverge_bench_protocol::Work;
use kube::{Api, api::ListParams};

use super::field::{Field, Framework};
use crate::report::{Report, Row};

/// A cached object needs at least its bytes; half as much again is for its strings and maps, and for finding it.
const TYPED: f64 = 1.5;
/// The larger payload may cost a tenth more or less, which is noise.
const INDEPENDENT: f64 = 1.1;

pub(crate) const SMALL: usize = 4 * 1024;
const LARGE: usize = 20 * 1024;

/// Until what was begun while listing has ended.
const SETTLE: Duration = Duration::from_secs(2);

/// So many that what a process keeps of its listed pages is little for each.
const ENOUGH: usize = 10_000;

pub(crate) async fn measure(field: &Field, small: &str, report: &mut Report) -> Result<()> {
    let bound = |bound| (field.objects >= ENOUGH).then_some(bound);
    let single = field.config_maps("single", 1, SMALL).await?;
    let own = own_bytes(field, &single).await?;
    let mut typed = [0.0; 3];
    for (cost, framework) in typed.iter_mut().zip(Framework::ALL) {
        *cost = per_object(field, framework, Work::Hold, &single, small).await?;
    }
    let [ours, kube_runtime, koprs] = typed;
    report.add(Row {
        subject: "memory per object, typed",
        figure: format!("{ours:.0} bytes"),
        against: format!("{own:.0} own bytes; kube_runtime {kube_runtime:.0}, koprs {koprs:.0}"),
        ratio: ours / own,
        bound: bound(TYPED),
    });
    let metadata = per_object(field, Framework::Konverge, Work::HoldMetadata, &single, small).await?;
    report.add(Row {
        subject: "memory per object, metadata",
        figure: format!("{metadata:.0} bytes"),
        against: format!("{own:.0} own bytes"),
        ratio: metadata / own,
        bound: bound(TYPED),
    });
    let large = field.config_maps("large", field.objects, LARGE).await?;
    let of_large = per_object(field, Framework::Konverge, Work::HoldMetadata, &single, &large).await?;
    report.add(Row {
        subject: "the same of objects of 20 KiB",
        figure: format!("{of_large:.0} bytes"),
        against: format!("{metadata:.0} bytes of those of 4 KiB"),
        ratio: of_large / metadata,
        bound: bound(INDEPENDENT),
    });
    Ok(())
}

/// Returns the memory of each object of `many`, in bytes.
async fn per_object(field: &Field, framework: Framework, work: Work, single: &str, many: &str) -> Result<f64> {
    let one = resident(field, framework, work, single, 1).await?;
    let all = resident(field, framework, work, many, field.objects).await?;
    #[expect(clippy::cast_precision_loss, reason = "some thousands")]
    let more = (field.objects - 1) as f64;
    eprintln!(
        "memory: {framework:?} {work:?}: {:.1} MiB with one object, {:.1} MiB with all",
        mebibytes(one),
        mebibytes(all)
    );
    Ok((all - one) / more)
}

async fn resident(field: &Field, framework: Framework, work: Work, namespace: &str, objects: usize) -> Result<f64> {
    let mut peer = field.peer(framework, work, namespace, Duration::ZERO, objects)?;
    peer.all().await?;
    tokio::time::sleep(SETTLE).await;
    peer.resident()
}

/// The JSON of an object without `managedFields`.
async fn own_bytes(field: &Field, namespace: &str) -> Result<f64> {
    let api = Api::<ConfigMap>::namespaced(field.client.clone(), namespace);
    let mut object = api.list(&ListParams::default()).await?.items.pop().context("there is no object")?;
    object.metadata.managed_fields = None;
    #[expect(clippy::cast_precision_loss, reason = "some thousands")]
    let bytes = serde_json::to_vec(&object)?.len() as f64;
    Ok(bytes)
}

fn mebibytes(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}
