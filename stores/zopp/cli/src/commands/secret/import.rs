//! `zopp secret import`.

use std::{fs::File, io, path::PathBuf};

use clap::Args;
use konverge_core::SecretValue;
use konverge_zopp_client::{
    Client, EnvironmentWriter,
    writer::{Changes, KeyChange},
};
use serde::Serialize;

use crate::{
    dotenv::{self, Dialect, Entry},
    failure::{Failure, failed},
    output::{Outcome, plain},
    progress::Progress,
    scope::{EnvironmentArguments, Place},
    value,
};

pub(super) const EXAMPLES: &str = "\
Examples:
  zopp secret import -e dev -i .env
  zopp secret export -e dev | zopp secret import -e staging

If a line cannot be read, nothing is imported, unless --skip-invalid leaves it out. Values are
taken as most of shells, node --env-file and python-dotenv take them. A warning names a line with
\"#\" in a bare value, which node takes for a comment. \"--dialect dotenvy\" follows the published
zopp, where $NAME stands for an earlier line of the file.";

/// One change of so many keys stays well below what a server takes at once.
const MOST_KEYS: usize = 1000;
/// The same for the bytes of all keys and values.
const MOST_BYTES: usize = 3 * 1024 * 1024;

/// `zopp secret import`
#[derive(Debug, Args)]
pub struct ImportArguments {
    #[command(flatten)]
    environment: EnvironmentArguments,
    /// File to read [default: standard input]
    #[arg(short, long, value_name = "PATH")]
    input: Option<PathBuf>,
    /// Leave out lines that cannot be read, with the lines of the same value, and name them
    #[arg(long)]
    skip_invalid: bool,
    /// The rules that the file follows
    #[arg(long, value_enum, default_value_t)]
    dialect: Dialect,
}

/// `secret import`
#[derive(Serialize)]
struct Imported {
    imported: usize,
    /// Lines that were not understood.
    skipped_lines: Vec<usize>,
}

pub(super) async fn execute(client: &Client, arguments: ImportArguments) -> Outcome {
    let ImportArguments { environment, input, skip_invalid, dialect } = arguments;
    let name = environment.resolve()?;
    let (source, content) = read(input)?;
    let text = std::str::from_utf8(content.expose())
        .map_err(|error| Failure::new(format!("{source} is not UTF-8 text from byte {} on", error.valid_up_to())))?;
    let parsed = dotenv::parse(text, dialect);
    if skip_invalid {
        for problem in &parsed.problems {
            eprintln!("Warning: {source}: {problem}; skipped");
        }
    } else if !parsed.problems.is_empty() {
        let problems: Vec<_> = parsed.problems.iter().map(ToString::to_string).collect();
        return Err(Failure::new(format!("nothing was imported from {source}"))
            .because(problems.join("; "))
            .next("Correct the line, or leave out such lines: --skip-invalid."));
    }
    for doubt in &parsed.doubts {
        eprintln!("Warning: {source}: {doubt}");
    }
    if parsed.entries.is_empty() {
        return Err(
            Failure::new(format!("{source} holds no secrets in dotenv format")).next("Write lines like KEY=value.")
        );
    }

    let what = format!("cannot import into {name}");
    let need = Place::Environment(name.clone()).need("write", client);
    let total = parsed.entries.len();
    let mut progress = Progress::new("Importing", total);
    let writer = EnvironmentWriter::new(client.clone(), name);
    let mut done = 0;
    for (lines, changes) in batches(parsed.entries) {
        progress.at(done);
        let what = if done == 0 { what.clone() } else { format!("{what}, after {done} of {total} lines") };
        writer.write(&changes).await.map_err(failed(what, need.clone()))?;
        done += lines;
    }
    drop(progress);
    let skipped_lines = parsed.problems.iter().flat_map(|problem| problem.line..=problem.last_line).collect();
    Ok(plain(Imported { imported: total, skipped_lines }, format!("Imported {total} secrets")))
}

/// The entries in few changes, each of which takes effect as a whole, with the number of lines in each. The last line for a key counts.
fn batches(entries: Vec<Entry>) -> Vec<(usize, Changes)> {
    let mut batches = Vec::new();
    let (mut lines, mut bytes, mut changes) = (0, 0, Changes::new());
    for Entry { key, value } in entries {
        let size = key.len() + value.len();
        if lines == MOST_KEYS || (lines > 0 && bytes + size > MOST_BYTES) {
            batches.push((std::mem::take(&mut lines), std::mem::take(&mut changes)));
            bytes = 0;
        }
        lines += 1;
        bytes += size;
        changes.insert(key, KeyChange::Set(value));
    }
    batches.push((lines, changes));
    batches
}

fn read(input: Option<PathBuf>) -> Result<(String, SecretValue), Failure> {
    let (source, content) = match input {
        None => ("standard input".to_owned(), value::read(io::stdin().lock())),
        Some(file) => (file.display().to_string(), File::open(&file).and_then(value::read)),
    };
    match content {
        Ok(content) => Ok((source, content)),
        Err(error) => Err(Failure::new(format!("cannot read {source}")).because(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &str, bytes: usize) -> Entry {
        Entry { key: key.into(), value: SecretValue::new(vec![b'x'; bytes]) }
    }

    #[test]
    fn batches_are_bounded_in_keys_and_bytes() {
        let sizes = |entries: Vec<Entry>| batches(entries).into_iter().map(|(lines, _)| lines).collect::<Vec<_>>();
        assert_eq!(sizes((0..=2 * MOST_KEYS).map(|n| entry(&n.to_string(), 1)).collect()), [MOST_KEYS, MOST_KEYS, 1]);
        assert_eq!(sizes(vec![entry("A", MOST_BYTES), entry("B", 1), entry("C", 1)]), [1, 2]);
        assert_eq!(sizes(vec![entry("A", 2 * MOST_BYTES)]), [1], "the server decides about one large value");
    }

    #[test]
    fn the_last_line_for_a_key_counts() {
        let (lines, changes) = batches(vec![entry("A", 1), entry("A", 2)]).remove(0);
        assert_eq!((lines, changes.len()), (2, 1));
        assert!(matches!(&changes["A"], KeyChange::Set(value) if value.len() == 2));
    }
}
