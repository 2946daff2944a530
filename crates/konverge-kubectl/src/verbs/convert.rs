//! The object of the newer version that takes the place of an older one.

use super::asking;
use crate::{Cluster, Examined, Failure, arguments::Form, output::print, target::One};

pub(super) async fn run(jobs: &[Box<dyn Examined>], one: &One, cluster: &Cluster, form: Form) -> Result<bool, Failure> {
    let object = cluster.get(one).await?;
    let mut refused = None;
    for (job, _) in asking(jobs, cluster, one, &object)? {
        match job.convert(&one.kind, &object) {
            Ok(conversion) => {
                // The steps are for the person, and the object is for a pipe.
                if form == Form::Text {
                    conversion.steps.iter().for_each(|step| eprintln!("# {step}"));
                }
                print(form, &conversion, || serde_json::to_string_pretty(&conversion.object).unwrap_or_default())?;
                return Ok(true);
            }
            Err(failure) => drop(refused.get_or_insert(failure)),
        }
    }
    Err(refused.unwrap_or_else(|| Failure::Failed(format!("{one} cannot be converted"))))
}
