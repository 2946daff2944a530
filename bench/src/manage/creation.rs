//! Many groups for the first time, from the start of the operator's process until the server has answered for the last of them. A loop creates as many
//! under the same budget just before.
//!
//! The loop has an account of its own on the same server. The operator starts, lists, records each intent on its object, creates, and writes the
//! status. Both keep to twenty requests a second.

use std::num::NonZeroU32;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use konverge_openzro::{Collection, Fields, Limits};
use tokio::time::Instant;

use super::{
    field::{CONCURRENCY, Field, group, groups, is_list, is_ready},
    float, row,
};
use crate::report::Report;

const BOUND: f64 = 1.25;

/// The operator's default budget: requests a second, and as many at once after a pause.
const BUDGET: u32 = 20;

pub(crate) async fn measure(field: &mut Field, count: u16, report: &mut Report) -> Result<()> {
    let limit = looped(field, count).await?;
    field.create_groups(count).await?;
    let (log, from, began) = (field.log().await?, field.front.count(), Instant::now());
    field.start().await?;
    let ready = began.elapsed().as_secs_f64();
    field.many(&groups(), count, is_ready).await?;
    let calls = field.front.since(from);
    let last = calls.iter().filter(|seen| seen.method == "POST").filter_map(|seen| seen.answered).max();
    let last = last.context("nothing was created")?.duration_since(began).as_secs_f64();
    eprintln!("manage: ready after {ready:.2} s, the last group after {last:.2} s; the loop took {limit:.2} s");
    let writes = field.writes(&log).await?;

    let (all, target) = (f64::from(count), field.target.clone());
    let against = format!("{limit:.2} s of the loop, {count} groups, {BUDGET} requests/s");
    let figure = format!("{last:.2} s");
    report.add(row(&target, "creation, until the last group is there", figure, against, last / limit, Some(BOUND)));
    let single = calls.iter().filter(|seen| !is_list(seen)).count();
    let against = format!("{count} groups");
    report.add(row(
        &target,
        "calls of a creation",
        single.to_string(),
        against.clone(),
        float(single) / all,
        Some(1.0),
    ));
    report.add(row(&target, "writes to Kubernetes", writes.to_string(), against, float(writes) / all, Some(2.0)));
    let used = largest_share(&calls.iter().map(|seen| seen.at).collect::<Vec<_>>());
    let against = format!("{BUDGET} requests/s and {BUDGET} at once");
    let figure = format!("{:.0} %", used * 100.0);
    report.add(row(&target, "the budget under load, at most used", figure, against, used, Some(1.0)));
    Ok(())
}

/// Seconds of a loop that creates as many groups in another account.
async fn looped(field: &Field, count: u16) -> Result<f64> {
    let limits = Limits::default().with(|limits| {
        limits.rate = NonZeroU32::new(BUDGET);
        limits.burst = NonZeroU32::new(BUDGET).unwrap_or(NonZeroU32::MIN);
        limits.deadline = super::field::LIMIT;
    });
    let openzro = field.target.account.another().await?.client_at(&field.front.url(), limits)?;
    let began = Instant::now();
    let all = stream::iter(0..count).map(async |number| {
        let fields: Fields = [("name".to_owned(), group(number).into())].into_iter().collect();
        openzro.create(&Collection::Groups, &fields).await.map(drop)
    });
    all.buffer_unordered(CONCURRENCY).try_collect::<()>().await?;
    Ok(began.elapsed().as_secs_f64())
}

/// The largest part of the budget that was used in any span of time: the calls in it, by those that the budget allows. In order of time.
fn largest_share(calls: &[Instant]) -> f64 {
    let mut largest = 0.0_f64;
    for (first, begin) in calls.iter().enumerate() {
        for (last, end) in calls.iter().enumerate().skip(first) {
            // A call that had leave to go a little earlier than the one before it may arrive with it.
            let allowed = f64::from(BUDGET) * (1.05 + end.duration_since(*begin).as_secs_f64());
            largest = largest.max(float(last - first + 1) / allowed);
        }
    }
    largest
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_budget_is_used_up_by_a_burst_and_broken_by_one_more() {
        let begin = Instant::now();
        let at = |milliseconds: u64| begin + Duration::from_millis(milliseconds);
        let burst: Vec<_> = (0..20).map(|_| at(0)).collect();
        let even: Vec<_> = burst.iter().copied().chain((1..200).map(|number| at(number * 50))).collect();
        assert!(largest_share(&burst) > 0.9 && largest_share(&even) <= 1.0);
        let fast: Vec<_> = burst.iter().copied().chain((1..200).map(|number| at(number * 40))).collect();
        assert!(largest_share(&fast) > 1.0);
        assert!(largest_share(&[]) == 0.0);
    }
}
