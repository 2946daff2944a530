//! The memory for a large account: the operator's resident set beside many foreign groups and their peers.
//!
//! No peer can join here. So the proxy answers for the list of groups, as the server shows it, with peers added.

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use konverge_openzro::{Collection, Fields};
use konverge_testkit::eventually;
use konverge_testkit_stores::Fault;
use serde_json::{Value, json};

use super::{
    field::{CONCURRENCY, Field, LIMIT, groups, is_ready},
    row,
};
use crate::{memory::mebibytes, report::Report};

/// Seconds of an interval, so that some lists are over soon.
pub(crate) const INTERVAL: u16 = 2;

/// Objects of the cluster.
const OBJECTS: u16 = 10;

/// Lists of the large account before the operator is weighed.
const LISTS: usize = 5;

/// The peers of a foreign group.
const PEERS_OF_GROUP: usize = 10;

const MEMORY: f64 = 40.0 * 1024.0 * 1024.0;

pub(crate) async fn measure(field: &mut Field, foreign: usize, report: &mut Report) -> Result<()> {
    let dashboard = field.dashboard.clone();
    let made = stream::iter(0..foreign).map(async |number| {
        let fields: Fields = [("name".to_owned(), format!("foreign-{number}").into())].into_iter().collect();
        dashboard.create(&Collection::Groups, &fields).await.map(drop)
    });
    made.buffer_unordered(CONCURRENCY).try_collect::<()>().await?;
    field.create_groups(OBJECTS).await?;
    field.start().await?;
    field.many(&groups(), OBJECTS, is_ready).await?;

    let peers = foreign * 5 / 2;
    let peer = |number: usize| json!({ "id": format!("d2{number:018}"), "name": format!("laptop-{number}.openzro.selfhosted") });
    let listed = field.dashboard.list(&Collection::Groups).await?;
    let shown = listed.iter().enumerate().map(|(number, group)| {
        let mut group = Value::Object(group.raw().clone());
        let name = group["name"].as_str().unwrap_or_default();
        let members: Vec<Value> = match name {
            "All" => (0..peers).map(peer).collect(),
            name if name.starts_with("foreign-") => {
                (0..PEERS_OF_GROUP).map(|next| peer((number + next) % peers.max(1))).collect()
            }
            _ => Vec::new(),
        };
        group["peers_count"] = members.len().into();
        group["peers"] = members.into();
        group
    });
    let body = shown.collect::<Value>().to_string();
    let size = body.len();
    field.front.plan(move |seen| {
        let headers = vec![("content-type", "application/json".to_owned())];
        let is_list = seen.method == "GET" && seen.path == "/api/groups";
        is_list.then(|| Fault::Answer { status: 200, headers, body: body.clone() })
    });
    let from = field.front.count();
    let enough = async || {
        let lists = field.front.since(from);
        (lists.iter().filter(|seen| seen.path == "/api/groups").count() > LISTS).then_some(())
    };
    eventually(LIMIT, enough).await.context("the list is not read")?;
    let resident = field.stage.operator().process().resident()?;
    eprintln!("manage: the list of groups has {size} bytes");
    let against = format!("40 MiB, {foreign} foreign groups, {peers} peers");
    let target = field.target.clone();
    report.add(row(
        &target,
        "resident set in a large account",
        mebibytes(resident),
        against,
        resident / MEMORY,
        Some(1.0),
    ));
    Ok(())
}
