//! The memory that a standby keeps after objects were created and deleted. The bench reads the resident set of the example configmapsync while another
//! replica has the lease: once after some objects came and went, and once after fifty times as many.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Result;
use configmapsync_operator::{ConfigMapSync, ConfigMapSyncSpec};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};

use super::{
    field::{Field, object_name},
    operator::Operator,
};
use crate::{
    memory::mebibytes,
    report::{Report, Row},
};

/// So many pass before the first look, so that buffers and pools have their size.
const FIRST: usize = 1000;
/// With 10,000 objects in the other figures, 50,000 pass here.
const TIMES: usize = 5;
/// A tenth is for what an allocator keeps.
const BOUND: f64 = 1.1;
const AT_ONCE: usize = 16;
/// Until the last deletion was seen.
const SETTLE: Duration = Duration::from_secs(5);

pub(crate) async fn measure(field: &Field, report: &mut Report) -> Result<()> {
    let namespace = field.plane.namespace("standby").await?;
    Operator::install(field, &namespace).await?;
    let mut lease = Lease::default();
    lease.metadata.name = Some("configmapsync-operator-leader".to_owned());
    lease.spec = Some(LeaseSpec {
        holder_identity: Some("another".to_owned()),
        lease_duration_seconds: Some(24 * 3600),
        ..LeaseSpec::default()
    });
    let leases = Api::<Lease>::namespaced(field.client.clone(), &namespace);
    leases.create(&PostParams::default(), &lease).await?;
    let arguments = ["--leader-election", "--lease-namespace", &namespace, "--namespace", &namespace];
    let standby = Operator::start(field, field.plane.kubeconfig(), &arguments).await?;
    let objects = field.objects * TIMES;
    pass(field, &namespace, 0..FIRST).await?;
    let before = standby.process.resident()?;
    eprintln!("standby: {objects} objects come and go");
    pass(field, &namespace, FIRST..FIRST + objects).await?;
    let after = standby.process.resident()?;
    report.add(Row {
        subject: "memory of a standby, objects come and go",
        figure: format!("{} after {objects}", mebibytes(after)),
        against: format!("{} after {FIRST}", mebibytes(before)),
        ratio: after / before,
        bound: Some(BOUND),
    });
    Ok(())
}

/// Creates and deletes objects, some at once.
async fn pass(field: &Field, namespace: &str, numbers: std::ops::Range<usize>) -> Result<()> {
    let api = Api::<ConfigMapSync>::namespaced(field.client.clone(), namespace);
    let pass = |number| {
        let data = BTreeMap::from([("value".to_owned(), "initial".to_owned())]);
        let spec = ConfigMapSyncSpec { target_namespace: namespace.to_owned(), data };
        let (api, name) = (&api, object_name(number));
        async move {
            api.create(&PostParams::default(), &ConfigMapSync::new(&name, spec)).await?;
            api.delete(&name, &DeleteParams::default()).await.map(drop)
        }
    };
    stream::iter(numbers).map(pass).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    tokio::time::sleep(SETTLE).await;
    Ok(())
}
