//! How often the operator logs in while all its workers write, with tokens that live much shorter than anywhere else.

use std::time::Duration;

use anyhow::Result;
use tokio::time::{Instant, sleep};

use super::field::{Field, name};
use crate::report::{Report, Row};

/// A token's lease, which renewals extend, and its whole life.
const LEASE: Duration = Duration::from_secs(10);
const LIFE: Duration = Duration::from_secs(20);

/// Six lives of a token.
const MEASURED: Duration = Duration::from_mins(2);

/// Between two changes, so that there is always one that needs a token.
const PACE: Duration = Duration::from_millis(100);

/// A token is replaced when two thirds of its life are over, not at its end.
const BOUND: f64 = 1.5;

pub(crate) async fn measure(field: &mut Field, report: &mut Report) -> Result<()> {
    let [lease, life] = [LEASE, LIFE].map(|time| u32::try_from(time.as_secs()).unwrap_or(u32::MAX));
    field.stage.log_in_by_app_role(lease, life).await?;
    field.start()?.ready().await?;
    field.in_sync().await?;
    let before = logins(field).await?;
    let began = Instant::now();
    let mut changes = 0_u64;
    while began.elapsed() < MEASURED {
        for number in 0..field.bindings {
            field.put(&name(number), &format!("change-{changes}"), true).await?;
            changes += 1;
            sleep(PACE).await;
            if began.elapsed() >= MEASURED {
                break;
            }
        }
    }
    let logins = logins(field).await? - before;
    report.add(Row {
        subject: "push: logins, a life of a token",
        figure: format!("{logins} for {changes} changes"),
        against: format!("{} s, a token lives {} s", MEASURED.as_secs(), LIFE.as_secs()),
        ratio: logins / MEASURED.div_duration_f64(LIFE),
        bound: Some(BOUND),
    });
    Ok(())
}

async fn logins(field: &mut Field) -> Result<f64> {
    field.stage.operator().metric("vault_sync_operator_auth_attempts_total", "").await
}
