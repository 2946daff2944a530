//! `zopp audit export`: one JSON object per line, oldest first; on request each line names the hash of the line before it, so that
//! a line that was changed, removed or inserted later is noticed.

use std::{
    fs::File,
    io::{BufRead, BufReader, BufWriter, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use clap::Args;
use konverge_zopp_client::Client;
use konverge_zopp_proto::ListAuditLogsRequest;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::{EntryObject, FilterArguments, count_request, refusal};
use crate::{
    failure::{Failure, failed},
    output::{Answer, Document, Outcome, plain},
    wiped::Wiped,
};

/// Entries per call: the server's limit.
const PAGE: u64 = 1000;
/// The name in the first line of a chain.
const NOTHING_BEFORE: [u8; 32] = [0; 32];

/// `zopp audit export`
#[derive(Debug, Args)]
pub struct ExportArguments {
    #[command(flatten)]
    filter: FilterArguments,
    /// Add to each line the hash of the line before it
    #[arg(long)]
    hash_chain: bool,
    /// File to write, readable by you only [default: standard output]
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,
}

/// A line.
#[derive(Serialize)]
struct Line {
    #[serde(flatten)]
    entry: EntryObject,
    /// SHA-256 of the line before it (without the newline), in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    previous_hash: Option<String>,
}

/// `audit export -o`, `audit verify`
#[derive(Serialize)]
struct AuditFile {
    file: String,
    count: u64,
    /// SHA-256 of the last line. A copy kept elsewhere reveals a truncated file.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_hash: Option<String>,
}

/// The lines have been printed already.
struct Printed;

impl Answer for Printed {
    fn text(&self, _: &mut Wiped) -> Result<(), Failure> {
        Ok(())
    }

    fn object(&self, _: &mut Document<'_>) -> Result<(), Failure> {
        Ok(())
    }
}

/// Writes lines, and knows the hash of the last one.
struct Lines<W> {
    to: W,
    is_chain: bool,
    last: [u8; 32],
    count: u64,
}

impl<W: Write> Lines<W> {
    fn new(to: W, is_chain: bool) -> Self {
        Self { to, is_chain, last: NOTHING_BEFORE, count: 0 }
    }

    fn push(&mut self, entry: EntryObject) -> std::io::Result<()> {
        let line = Line { entry, previous_hash: self.is_chain.then(|| hex::encode(self.last)) };
        let text = serde_json::to_string(&line)?;
        self.last = Sha256::digest(&text).into();
        self.count += 1;
        self.to.write_all(text.as_bytes())?;
        self.to.write_all(b"\n")
    }
}

pub(super) async fn execute(client: &Client, arguments: ExportArguments) -> Outcome {
    let ExportArguments { filter, hash_chain, output } = arguments;
    let request = filter.resolve()?;
    let Some(path) = output else {
        let mut lines = Lines::new(BufWriter::new(std::io::stdout().lock()), hash_chain);
        write_all(client, request, &mut lines).await?;
        return Ok(Box::new(Printed));
    };
    let unwritable = |source| Failure::new(format!("{} cannot be written", path.display())).because(source);
    let file = File::options().write(true).create_new(true).mode(0o600).open(&path).map_err(unwritable)?;
    let mut lines = Lines::new(BufWriter::new(file), hash_chain);
    write_all(client, request, &mut lines).await?;
    let Lines { to, count, last, .. } = lines;
    to.into_inner().map_err(|error| unwritable(error.into_error()))?.sync_all().map_err(unwritable)?;
    let last_hash = hash_chain.then(|| hex::encode(last));
    let mut text = format!("Exported {count} audit log entries to {}", path.display());
    text.extend(last_hash.as_ref().map(|hash| format!("\nHash of the last line: {hash}")));
    Ok(plain(AuditFile { file: path.display().to_string(), count, last_hash }, text))
}

/// Pages from the oldest entry to the newest. Rows recorded meanwhile are left out, so that pages do not shift.
async fn write_all<W: Write>(
    client: &Client,
    mut request: ListAuditLogsRequest,
    lines: &mut Lines<W>,
) -> Result<(), Failure> {
    let (what, need) = refusal("export", &request.workspace_name, client);
    let broken = |source: std::io::Error| Failure::new("the audit log cannot be written").because(source);
    // The newest entry that there is now tells the server's time, whatever the time here.
    let newest = ListAuditLogsRequest { limit: Some(1), offset: None, ..request.clone() };
    let newest = client.list_audit_logs(newest).await.map_err(failed(what.clone(), need.clone()))?;
    let Some(newest) = newest.entries.into_iter().next() else { return lines.to.flush().map_err(broken) };
    let end = newest.timestamp.parse::<jiff::Timestamp>().ok();
    let end = end.and_then(|time| time.checked_add(jiff::SignedDuration::from_millis(1)).ok());
    request.to_timestamp = end.map(|time| time.to_string()).or(request.to_timestamp);
    let count = client.count_audit_logs(count_request(request.clone())).await;
    let total = count.map_err(failed(what.clone(), need.clone()))?.count;
    let mut left = total;
    while left > 0 {
        let limit = if left.is_multiple_of(PAGE) { PAGE } else { left % PAGE };
        left -= limit;
        let page = ListAuditLogsRequest {
            limit: u32::try_from(limit).ok(),
            offset: Some(u32::try_from(left).map_err(|_| {
                Failure::new("the audit log has too many entries").next("Export a part of it: --from and --to.")
            })?),
            ..request.clone()
        };
        let page = client.list_audit_logs(page).await.map_err(failed(what.clone(), need.clone()))?;
        // A row written late, or one whose time was over: the pages no longer fit together.
        if page.total_count != total {
            return Err(Failure::new(what).because("the log changed meanwhile").next("Export it again."));
        }
        for entry in page.entries.into_iter().rev() {
            lines.push(entry.into()).map_err(broken)?;
        }
    }
    lines.to.flush().map_err(broken)
}

/// Checks that each line names the hash of the line before it.
pub(super) fn verify(path: &Path) -> Outcome {
    let unreadable =
        |source: std::io::Error| Failure::new(format!("{} cannot be read", path.display())).because(source);
    let file = File::open(path).map_err(unreadable)?;
    let (mut expected, mut count) = (NOTHING_BEFORE, 0_u64);
    for line in BufReader::new(file).lines() {
        let line = line.map_err(unreadable)?;
        count += 1;
        if named_hash(&line) != Some(hex::encode(expected)) {
            return Err(Failure::new(format!(
                "{}: line {count} does not follow the line before it; a line was changed, removed or inserted there, or the \
                 export has no hash chain",
                path.display()
            )));
        }
        expected = Sha256::digest(&line).into();
    }
    let last_hash = hex::encode(expected);
    let text = format!("{count} lines follow each other\nHash of the last line: {last_hash}");
    Ok(plain(AuditFile { file: path.display().to_string(), count, last_hash: Some(last_hash) }, text))
}

fn named_hash(line: &str) -> Option<String> {
    let object: serde_json::Value = serde_json::from_str(line).ok()?;
    Some(object.get("previous_hash")?.as_str()?.to_owned())
}
