//! A wrong token: how many calls it costs, whatever the number of objects, and whether each object says why.

use std::time::Duration;

use anyhow::Result;
use konverge_core::outage::LONGEST_PAUSE;
use tokio::time::sleep;

use super::{
    field::{Field, groups},
    float, row,
};
use crate::report::Report;

/// A pause is drawn from a tenth of the longest one to all of it.
const MEAN_PAUSE: f64 = 2.2;

/// One call for each pause. So few pauses have another mean than many.
const BOUND: f64 = 1.3;

/// How long is listened.
const WHILE: Duration = Duration::from_mins(1);

pub(crate) async fn measure(field: &mut Field, objects: u16, report: &mut Report) -> Result<()> {
    field.write_token("nobody's")?;
    field.create_groups(objects).await?;
    field.start().await?;
    let says_why = |object: &kube::api::DynamicObject| {
        let conditions = object.data["status"]["conditions"].as_array();
        let ready = conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready");
        ready.is_some_and(|ready| {
            let is_told = ["TokenRefused", "OpenZroPaused"].iter().any(|reason| ready["reason"] == *reason);
            is_told && ready["status"] == "False" && ready["message"].as_str().is_some_and(|why| why.contains("token"))
        })
    };
    field.many(&groups(), objects, says_why).await?;
    // The pauses have their full length by now.
    sleep(4 * LONGEST_PAUSE).await;
    let from = field.front.count();
    sleep(WHILE).await;
    let probes = field.front.count() - from;
    let pauses = WHILE.as_secs_f64() / MEAN_PAUSE;
    let against = format!("{} s of pauses of {MEAN_PAUSE} s in the mean, {objects} objects", WHILE.as_secs());
    let target = field.target.clone();
    let ratio = float(probes) / pauses;
    report.add(row(&target, "calls with a wrong token, a pause", probes.to_string(), against, ratio, Some(BOUND)));
    let told = field.api(&groups()).list(&kube::api::ListParams::default()).await?.items;
    let silent = told.iter().filter(|object| !says_why(object)).count();
    let against = format!("{objects} objects");
    report.add(row(&target, "objects that do not say why", silent.to_string(), against, float(silent), Some(0.0)));
    Ok(())
}
