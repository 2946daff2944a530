//! Pictures of the shipped dashboards, drawn from a real run: the operators work, a Prometheus scrapes them and evaluates the shipped alerts, and one
//! Secret cannot be filled for so long that an alert fires. `cargo xtask dashboards` runs it.

mod load;
mod picture;
mod series;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use konverge_core::error::in_one_line;
use konverge_testkit_stores::PrometheusServer;
use serde_json::{Value, json};

use crate::{load::Load, series::Range};

/// The jobs and the zopp server, by the names of their files in the chart.
const PARTS: [&str; 5] = ["pull", "push", "roll", "manage", "server"];

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/charts/konverge/files");

/// How often Prometheus asks. Often enough that a short run has curves.
const SCRAPES: &str = "5s";

/// The alert for the Secret that cannot be filled.
const EXPECTED: &str = "PullSecretsOutOfSync";

/// Draws the shipped dashboards from a real run.
#[derive(Parser)]
struct Cli {
    /// How long the operators work. The alert needs more than 15
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(2..))]
    minutes: u64,
    /// The folder of the pictures
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/images"))]
    into: PathBuf,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Cli { minutes, into } = Cli::parse();
    match Box::pin(draw(Duration::from_mins(minutes), &into)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nError: {}", in_one_line(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

async fn draw(length: Duration, into: &Path) -> Result<()> {
    println!("Starting the servers and the operators.");
    let mut load = Load::begin().await?;
    let prometheus = PrometheusServer::start(&configuration(&load.targets())?).await?;
    println!("Prometheus runs at http://{} for {} minutes.", prometheus.address(), length.as_secs() / 60);
    let range = Range::from_now(length);
    let began = Instant::now();
    while began.elapsed() < length {
        load.step().await?;
    }
    fs::create_dir_all(into).with_context(|| format!("cannot make {}", into.display()))?;
    for part in PARTS {
        let file = format!("{CHART}/dashboards/{part}.json");
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
        let dashboard: Value = serde_json::from_str(&text).with_context(|| format!("{file} is no dashboard"))?;
        let panels = series::panels(prometheus.address(), &dashboard, range).await?;
        ensure!(panels.iter().any(|panel| !panel.curves.is_empty()), "{file}: Prometheus has none of its series");
        let picture = into.join(format!("dashboard-{part}.svg"));
        fs::write(&picture, picture::svg(&dashboard["title"], &panels, range))
            .with_context(|| format!("cannot write {}", picture.display()))?;
        println!("{} shows {} panels.", picture.display(), panels.len());
    }
    let fired = series::fired(prometheus.address(), range).await?;
    for (alert, after) in &fired {
        println!("{alert} fired {} s after the start.", after.as_secs());
    }
    let needed = Duration::from_mins(18);
    let has_fired = fired.iter().any(|(alert, _)| alert == EXPECTED);
    ensure!(has_fired || length < needed, "{EXPECTED} did not fire");
    Ok(())
}

/// The files of Prometheus: its configuration, and the shipped rules.
fn configuration(targets: &[(&'static str, String)]) -> Result<Vec<(&'static str, String)>> {
    let scrapes =
        targets.iter().map(|(job, address)| json!({ "job_name": job, "static_configs": [{ "targets": [address] }] }));
    let names = ["pull.yaml", "push.yaml", "roll.yaml", "manage.yaml", "server.yaml"];
    let configuration = json!({
        "global": { "scrape_interval": SCRAPES, "evaluation_interval": SCRAPES },
        "rule_files": names,
        "scrape_configs": scrapes.collect::<Vec<_>>(),
    });
    let mut files = vec![("prometheus.yaml", configuration.to_string())];
    for name in names {
        let path = format!("{CHART}/alerts/{name}");
        files.push((name, fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?));
    }
    Ok(files)
}
