//! `zopp secret export`.

use std::path::{Path, PathBuf};

use clap::Args;
use konverge_zopp_client::{Client, EnvironmentName, EnvironmentReader, Snapshot, private_file};
use serde::{Serialize, Serializer};
use zeroize::Zeroizing;

use crate::{
    dotenv,
    escape::visible,
    failure::{Failure, failed},
    output::{Answer, Document, Format, JsonValue, Outcome, plain, written},
    scope::{EnvironmentArguments, Place},
    steering::{AllowedKeys, steers_shells_or_programs},
    wiped::Wiped,
};

pub(super) const EXAMPLES: &str = "\
Examples:
  zopp secret export -e dev                    to standard output
  zopp secret export -e dev -o .env            to a file that only you can read
  zopp secret export -e dev -o json            as one JSON object, to standard output
  zopp secret export -e dev -o json --file e   the same to a file

The text is read alike by \"zopp secret import\", shells, node --env-file and python-dotenv. A value
that they would read differently is refused, unless --skip-invalid leaves it out. JSON holds all.

Anybody who may write a secret could run code on your machine if a shell sourced PROMPT_COMMAND,
PATH or the like. Such a key is refused unless --allow-key names it, or --skip-invalid leaves it
out. No list of such names is complete.";

/// `zopp secret export`
#[derive(Debug, Args)]
pub struct ExportArguments {
    #[command(flatten)]
    environment: EnvironmentArguments,
    /// Format, which is text, json, yaml or table; anything else is a file to write, as --file
    #[arg(short, long, value_name = "FORMAT|PATH")]
    output: Option<PathBuf>,
    /// File to write, readable by you only [default: standard output]
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// Leave out values that the dotenv format cannot hold and keys that can make programs run code, and name them
    #[arg(long)]
    skip_invalid: bool,
    /// The keys that are exported although they steer programs.
    #[command(flatten)]
    allowed: AllowedKeys,
}

impl ExportArguments {
    /// Returns the format that `--output` names, if any.
    fn format(&self) -> Option<Format> {
        Format::named(self.output.as_ref()?.as_os_str())
    }

    /// Returns the file to write. A value of `--output` that is no format is one.
    fn file(&self) -> Result<Option<&Path>, Failure> {
        let output = self.output.as_deref().filter(|_| self.format().is_none());
        match (self.file.as_deref(), output) {
            (Some(_), Some(output)) => Err(Failure::usage(format!("{} is not a format", output.display()))
                .next("Beside --file, --output is text, json, yaml or table.")),
            (file, output) => Ok(file.or(output)),
        }
    }
}

/// `secret export --file`
#[derive(Serialize)]
struct ExportedFile {
    file: String,
    count: usize,
}

/// `secret export`: `{"KEY": "value", …}`
struct Exported {
    name: EnvironmentName,
    snapshot: Snapshot,
    /// Whether values that dotenv cannot hold, and keys that steer programs, are left out.
    skip_invalid: bool,
    allowed: AllowedKeys,
}

impl Exported {
    /// Returns the text, and the number of values in it.
    fn dotenv(&self) -> Result<(Zeroizing<String>, usize), Failure> {
        if self.snapshot.values.is_empty() {
            return Err(Failure::new(format!("there are no secrets in {} to export", self.name)));
        }
        let all = self.snapshot.values.iter().map(|(key, value)| (key.as_str(), value.expose()));
        let (steering, mut values): (Vec<_>, Vec<_>) = all.partition(|(key, value)| self.is_refused(key, value));
        let steering: Vec<_> = steering.into_iter().map(|(key, _)| key).collect();
        if self.skip_invalid {
            for key in steering {
                eprintln!("Warning: key {:?} can make programs run code or write files; left out", visible(key));
            }
            values.retain(|(key, value)| is_valid(key, value));
        } else if !steering.is_empty() {
            return Err(self.refusal(&steering));
        }
        let count = values.len();
        let text = dotenv::format(values).map_err(|source| {
            Failure::new(format!("cannot export {}", self.name)).because(source).next(
                "JSON holds all values: zopp secret export --output json. To leave such values out: --skip-invalid.",
            )
        })?;
        Ok((text, count))
    }

    /// Returns `true` if the key would let its writer run code where the text is sourced.
    fn is_refused(&self, key: &str, value: &[u8]) -> bool {
        steers_shells_or_programs(key, value) && !self.allowed.contains(key)
    }

    fn refusal(&self, keys: &[&str]) -> Failure {
        Failure::new(format!("cannot export {}", self.name))
            .because(format!("'{}' can make programs run code or write files", keys.join("', '")))
            .next(format!(
                "If its writers may do that: --allow-key {}. To leave such keys out: --skip-invalid. As data: --output json.",
                keys.join(",")
            ))
    }
}

/// Returns `true` if dotenv can hold the value. Warns about one that it cannot hold.
fn is_valid(key: &str, value: &[u8]) -> bool {
    let checked = dotenv::check(key, value);
    if let Err(error) = &checked {
        eprintln!("Warning: {}; left out", visible(&error.to_string()));
    }
    checked.is_ok()
}

impl Answer for Exported {
    fn text(&self, text: &mut Wiped) -> Result<(), Failure> {
        let (dotenv, _) = self.dotenv()?;
        text.push(dotenv.as_bytes());
        text.push(b"\n");
        Ok(())
    }

    fn holds_values(&self) -> bool {
        true
    }

    fn object(&self, document: &mut Document<'_>) -> Result<(), Failure> {
        document.put(&Values(&self.snapshot))
    }
}

/// All values, keyed by name.
struct Values<'a>(&'a Snapshot);

impl Serialize for Values<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.values.iter().map(|(key, value)| (key, JsonValue(value.expose()))))
    }
}

pub(super) async fn execute(client: &Client, arguments: ExportArguments) -> Outcome {
    let file = arguments.file()?.map(Path::to_owned);
    let format = arguments.format().unwrap_or_default();
    let ExportArguments { environment, skip_invalid, allowed, .. } = arguments;
    let name = environment.resolve_for_values()?;
    let snapshot = snapshot(client, &name).await?;
    let exported = Exported { name, snapshot, skip_invalid, allowed };
    match file {
        None => Ok(Box::new(exported)),
        Some(file) => write(&file, &exported, format),
    }
}

/// All values of an environment; an error that names those which cannot be decrypted.
pub async fn snapshot(client: &Client, name: &EnvironmentName) -> Result<Snapshot, Failure> {
    let what = format!("cannot read the secrets of {name}");
    let need = Place::Environment(name.clone()).need("read", client);
    let reader = EnvironmentReader::new(client.clone(), name.clone());
    let snapshot = reader.fetch().await.map_err(failed(what.clone(), need))?;
    if snapshot.failed.is_empty() {
        return Ok(snapshot);
    }
    let reasons: Vec<_> = snapshot.failed.iter().map(|(key, reason)| format!("'{key}': {reason}")).collect();
    Err(Failure::new(what).because(reasons.join("; ")).next("Set these again, or delete them."))
}

fn write(file: &Path, exported: &Exported, format: Format) -> Outcome {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(missing) = folder.filter(|folder| !folder.is_dir()) {
        return Err(Failure::new(format!("cannot write {}: {} is no folder", file.display(), missing.display()))
            .next("Make the folder first, or name another file."));
    }
    let (count, written) = match format {
        // Without a newline at its end, as the published command line writes it.
        Format::Text | Format::Table => {
            let (text, count) = exported.dotenv()?;
            (count, private_file::replace(file, text.as_bytes()))
        }
        Format::Json | Format::Yaml => {
            (exported.snapshot.values.len(), private_file::replace(file, written(exported, format)?.bytes()))
        }
    };
    written.map_err(|source| Failure::new(format!("cannot write {}", file.display())).because(source))?;
    let file = file.display().to_string();
    let text = format!("Exported {count} secrets to {file}");
    Ok(plain(ExportedFile { file, count }, text))
}
