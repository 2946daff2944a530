//! A hundredth of all groups gets other names in the dashboard, directly after the lists were read: how soon they are corrected, and by how many
//! calls.

use anyhow::{Context, Result};
use konverge_openzro::Collection;
use konverge_testkit::eventually;
use tokio::time::Instant;

use super::{
    field::{Field, LIMIT, is_list},
    float, row,
};
use crate::report::Report;

/// The list is read an interval after the last one was read, and the calls come after it.
const BOUND: f64 = 1.05;

pub(crate) async fn measure(field: &Field, count: u16, report: &mut Report) -> Result<()> {
    let count = usize::from(count / 100).max(1);
    let all = field.dashboard.list(&Collection::Groups).await?;
    let is_ours = |name: &str| name.starts_with("group-");
    let ours: Vec<_> =
        all.iter().filter(|group| group.raw()["name"].as_str().is_some_and(is_ours)).take(count).collect();
    anyhow::ensure!(ours.len() == count, "there are only {} groups", ours.len());
    let before = field.group_names().await?;
    field.listed().await?;
    let from = field.front.count();
    let began = Instant::now();
    for (number, group) in ours.iter().enumerate() {
        let place = Collection::Groups.place(group.id());
        field
            .dashboard
            .modify(&place, |body| drop(body.insert("name".to_owned(), format!("drifted {number}").into())))
            .await?;
    }
    let is_back = async || (field.group_names().await.ok()? == before).then_some(());
    eventually(2 * field.interval + LIMIT, is_back).await.context("the drift is not corrected")?;
    let calls: Vec<_> = field.front.since(from).into_iter().filter(|seen| !is_list(seen)).collect();
    let last = calls.iter().filter_map(|seen| seen.answered).max().context("nothing was corrected")?;
    let took = last.duration_since(began).as_secs_f64();
    let interval = field.interval.as_secs_f64();
    let (figure, against) = (format!("{took:.2} s"), format!("an interval of {interval} s, {count} groups"));
    report.add(row(&field.target, "drift, until the last is corrected", figure, against, took / interval, Some(BOUND)));
    let (figure, against) = (calls.len().to_string(), format!("{count} groups"));
    let ratio = float(calls.len()) / float(count);
    report.add(row(&field.target, "calls of a correction", figure, against, ratio, Some(2.0)));
    Ok(())
}
