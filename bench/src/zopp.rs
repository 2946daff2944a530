//! The secrets manager beside the published server (zopp 0.1.1), on SQLite and on PostgreSQL, with the same client in the same run.
//!
//! Without the published programs in the cache (`cargo xtask zopp` builds them), the figures that are held against them are for information.

mod calls;
mod command_line;
mod hostile;
mod site;
mod watchers;

use anyhow::Result;
use clap::Args;
use konverge_testkit_stores::PublishedZopp;

use crate::report::{Report, Row};
use site::{Database, Site};

/// An idle server may have so much.
const IDLE_BYTES: f64 = 20.0 * 1024.0 * 1024.0;

/// How much zopp's figures are about.
#[derive(Debug, Clone, Args)]
pub(crate) struct ZoppScale {
    /// Seconds of load for each figure about zopp's calls
    #[arg(long, default_value_t = 3.0)]
    load_seconds: f64,
    /// Keys of the environments that are listed
    #[arg(long, value_delimiter = ',', default_values_t = [10, 1_000, 10_000])]
    listed: Vec<usize>,
    /// Connections of the load
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 128])]
    connections: Vec<usize>,
    /// Watchers, twenty on each environment
    #[arg(long, default_value_t = 1_000)]
    watchers: usize,
    /// Seconds of changes for the watchers, twenty a second
    #[arg(long, default_value_t = 15)]
    watched_seconds: usize,
    /// Keys that are imported
    #[arg(long, default_value_t = 1_000)]
    imported: usize,
}

pub(crate) async fn measure(scale: &ZoppScale, report: &mut Report) -> Result<()> {
    let published = PublishedZopp::find()?;
    if published.is_none() {
        eprintln!("zopp: the published programs are not on this machine; `cargo xtask zopp` builds them");
    }
    for database in [Database::Sqlite, Database::Postgres] {
        let ours = Site::ours(database).await?;
        idle(&ours, database, report)?;
        let theirs = match &published {
            Some(published) => Some(Site::theirs(published, database).await?),
            None => None,
        };
        calls::measure(scale, database, &ours, theirs.as_ref(), report).await?;
        command_line::measure(scale.imported, database, &ours, report).await?;
        drop((ours, theirs));
        watchers::measure(scale, database, report).await?;
        hostile::measure(database, report).await?;
    }
    command_line::size(report)
}

fn idle(site: &Site, database: Database, report: &mut Report) -> Result<()> {
    let resident = site.resident()?;
    report.add(Row {
        subject: format!("zopp: resident set of an idle server, {database}").leak(),
        figure: mebibytes(resident),
        against: mebibytes(IDLE_BYTES),
        ratio: resident / IDLE_BYTES,
        bound: Some(1.0),
    });
    Ok(())
}

fn mebibytes(bytes: f64) -> String {
    format!("{:.1} MiB", bytes / 1024.0 / 1024.0)
}
