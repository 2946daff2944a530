//! Throughput and latency of reading, setting and listing, at several numbers of connections.
//!
//! The load is the same client in this process for both servers; each connection sends a request when the one before is answered. The servers take
//! turns, so that whatever else the machine does falls on both.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use konverge_zopp_client::{Client, EnvironmentName};
use konverge_zopp_proto::GetSecretRequest;

use super::{
    ZoppScale,
    site::{Database, Site, key, list, value},
};
use crate::{
    report::{Report, Row},
    samples::percentile,
};

/// Values of the environment in which single ones are read and set.
const VALUES: usize = 100;
/// The keys of the long list, and the greatest time of our list as a part of theirs.
const LONG_LIST: usize = 1_000;
const LONG_LIST_BOUND: f64 = 0.1;
/// The turns in which both servers get the load.
const TURNS: u32 = 2;

/// The calls.
#[derive(Clone)]
enum Load {
    Get,
    Set,
    List(usize),
}

impl Load {
    fn label(&self) -> String {
        match self {
            Self::Get => "GetSecret".to_owned(),
            Self::Set => "UpsertSecret".to_owned(),
            Self::List(keys) => format!("ListSecrets of {keys}"),
        }
    }

    fn environment(&self) -> EnvironmentName {
        let name = match self {
            Self::Get | Self::Set => "single".to_owned(),
            Self::List(keys) => list_name(*keys),
        };
        EnvironmentName::new("acme", "backend", name)
    }

    async fn call(&self, client: &Client, name: &EnvironmentName, number: usize) -> Result<()> {
        let key = key(number % VALUES);
        match self {
            Self::Get => {
                let EnvironmentName { workspace, project, environment } = name.clone();
                let request = GetSecretRequest {
                    workspace_name: workspace,
                    project_name: project,
                    environment_name: environment,
                    key,
                };
                client.get_secret(request).await.context("cannot read")?;
            }
            Self::Set => {
                client.upsert_secret(value(name, &key)).await.context("cannot set")?;
            }
            Self::List(_) => {
                client.list_secrets(list(name.clone())).await.context("cannot list")?;
            }
        }
        Ok(())
    }
}

/// Answers, the seconds they took in all, and the milliseconds of each.
#[derive(Default)]
struct Measured {
    seconds: f64,
    latencies: Vec<f64>,
}

impl Measured {
    #[expect(clippy::cast_precision_loss, reason = "a count of requests is far below 2^52")]
    fn per_second(&self) -> f64 {
        self.latencies.len() as f64 / self.seconds
    }
}

pub(crate) async fn measure(
    scale: &ZoppScale,
    database: Database,
    ours: &Site,
    theirs: Option<&Site>,
    report: &mut Report,
) -> Result<()> {
    for site in [Some(ours), theirs].into_iter().flatten() {
        site.environment("single", VALUES).await?;
        for &keys in &scale.listed {
            site.environment(&list_name(keys), keys).await?;
        }
    }
    let loads = [Load::Get, Load::Set].into_iter().chain(scale.listed.iter().map(|&keys| Load::List(keys)));
    let turn = Duration::from_secs_f64(scale.load_seconds / f64::from(TURNS));
    for load in loads {
        for &connections in &scale.connections {
            eprintln!("zopp: {} over {connections} connections, {database}", load.label());
            let (mut our, mut their) = (Measured::default(), theirs.map(|_| Measured::default()));
            for _ in 0..TURNS {
                run(ours, &load, connections, turn, &mut our).await?;
                let (Some(site), Some(measured)) = (theirs, &mut their) else { continue };
                if let Err(error) = run(site, &load, connections, turn, measured).await {
                    eprintln!("zopp: the published server fails under this load: {error:#}");
                    their = None;
                }
            }
            rows(&load, connections, database, &our, their.as_ref(), report);
        }
    }
    Ok(())
}

fn list_name(keys: usize) -> String {
    format!("list-{keys}")
}

/// Adds a turn of load.
async fn run(site: &Site, load: &Load, connections: usize, turn: Duration, measured: &mut Measured) -> Result<()> {
    let name = load.environment();
    let clients = (0..connections).map(|_| site.client()).collect::<Result<Vec<_>>>()?;
    // Connects, and learns keys and places.
    futures::future::try_join_all(clients.iter().map(|client| load.call(client, &name, 0))).await?;
    let next = AtomicUsize::new(0);
    let began = Instant::now();
    let workers = clients.iter().map(|client| async {
        let mut latencies = Vec::new();
        while began.elapsed() < turn {
            let sent = Instant::now();
            load.call(client, &name, next.fetch_add(1, Ordering::Relaxed)).await?;
            latencies.push(sent.elapsed().as_secs_f64() * 1000.0);
        }
        Ok::<_, anyhow::Error>(latencies)
    });
    let latencies = futures::future::try_join_all(workers).await?;
    measured.seconds += began.elapsed().as_secs_f64();
    measured.latencies.extend(latencies.into_iter().flatten());
    Ok(())
}

fn rows(
    load: &Load,
    connections: usize,
    database: Database,
    our: &Measured,
    their: Option<&Measured>,
    report: &mut Report,
) {
    let subject = |what: &str| -> &'static str {
        format!("zopp: {}, {connections} connections, {database}, {what}", load.label()).leak()
    };
    let (rate, slowest) = (our.per_second(), percentile(&our.latencies, 99));
    let (figure_rate, figure_slowest) = (format!("{rate:.0}/s"), format!("{slowest:.1} ms"));
    let Some(their) = their else {
        for (what, figure) in [("throughput", figure_rate), ("p99", figure_slowest)] {
            let against = "0.1.1 is not here, or fails".to_owned();
            report.add(Row { subject: subject(what), figure, against, ratio: 0.0, bound: None });
        }
        return;
    };
    let (their_rate, their_slowest) = (their.per_second(), percentile(&their.latencies, 99));
    let is_long_list = matches!(load, Load::List(LONG_LIST));
    report.add(Row {
        subject: subject("throughput"),
        figure: figure_rate,
        against: format!("{their_rate:.0}/s of 0.1.1"),
        ratio: their_rate / rate,
        bound: Some(if is_long_list { LONG_LIST_BOUND } else { 1.0 }),
    });
    report.add(Row {
        subject: subject("p99"),
        figure: figure_slowest,
        against: format!("{their_slowest:.1} ms of 0.1.1"),
        ratio: slowest / their_slowest,
        bound: Some(1.0),
    });
}
