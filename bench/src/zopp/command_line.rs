//! The command line as whole processes: reading one value beside the bare calls that it takes, and importing many values.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use konverge_zopp_client::{EnvironmentName, EnvironmentReader};

use super::site::{Database, Site, key};
use crate::{
    report::{Report, Row},
    samples::median,
};

/// Values that are read, one process for each.
const READS: usize = 20;
/// A process may take `FACTOR` times the time of its calls, and `EXTRA_MILLISECONDS` more.
const FACTOR: f64 = 1.3;
const EXTRA_MILLISECONDS: f64 = 10.0;
const BINARY_BYTES: f64 = 15.0 * 1024.0 * 1024.0;

pub(crate) async fn measure(imported: usize, database: Database, site: &Site, report: &mut Report) -> Result<()> {
    import(imported, database, site, report).await?;
    read(database, site, report).await
}

/// The program as it is built, with its symbols or without.
pub(crate) fn size(report: &mut Report) -> Result<()> {
    let size = std::fs::metadata(konverge_e2e::binary("zopp")?)?.len();
    #[expect(clippy::cast_precision_loss, reason = "a program is far smaller than 2^52 bytes")]
    let size = size as f64;
    report.add(Row {
        subject: "zopp: size of the command line",
        figure: super::mebibytes(size),
        against: super::mebibytes(BINARY_BYTES),
        ratio: size / BINARY_BYTES,
        bound: Some(1.0),
    });
    Ok(())
}

async fn import(count: usize, database: Database, site: &Site, report: &mut Report) -> Result<()> {
    site.user.create_environment("acme/backend/imported").await?;
    let file = site.path("import.env");
    let lines: Vec<String> = (0..count).map(|number| format!("{}=value-{number}", key(number))).collect();
    std::fs::write(&file, lines.join("\n"))?;
    let path = file.to_str().context("a path of a temporary folder is text")?;
    let began = Instant::now();
    site.user.zopp(["secret", "import", "-w", "acme", "-p", "backend", "-e", "imported", "-i", path]).await?;
    let seconds = began.elapsed().as_secs_f64();
    let limit = match database {
        Database::Sqlite => Duration::from_secs(1),
        Database::Postgres => Duration::from_secs(2),
    };
    report.add(Row {
        subject: format!("zopp: import of {count} keys, {database}").leak(),
        figure: format!("{seconds:.2} s"),
        against: format!("{} s", limit.as_secs()),
        ratio: seconds / limit.as_secs_f64(),
        bound: Some(1.0),
    });
    Ok(())
}

async fn read(database: Database, site: &Site, report: &mut Report) -> Result<()> {
    let (mut whole, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..READS {
        let began = Instant::now();
        site.user.zopp(["secret", "get", &key(0), "-w", "acme", "-p", "backend", "-e", "imported"]).await?;
        whole.push(began.elapsed().as_secs_f64() * 1000.0);
        // The same calls on a new connection, in this process.
        let began = Instant::now();
        let name = EnvironmentName::new("acme", "backend", "imported");
        EnvironmentReader::new(site.client()?, name).get(&key(0)).await?;
        bare.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    let (whole, bare) = (median(&whole), median(&bare));
    let limit = FACTOR * bare + EXTRA_MILLISECONDS;
    report.add(Row {
        subject: format!("zopp: secret get as a process, {database}").leak(),
        figure: format!("{whole:.1} ms"),
        against: format!("{limit:.1} ms: {FACTOR} times {bare:.1} ms of bare calls, and {EXTRA_MILLISECONDS:.0} ms"),
        ratio: whole / limit,
        bound: Some(1.0),
    });
    Ok(())
}
