//! `konverge new`.

use std::{
    collections::BTreeMap,
    fmt::Write,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use clap::Args;
use konverge::generate::files::FilesError;

use crate::{
    deploy::{self, DeployError},
    files,
    names::{BadName, check_group, check_kind, check_name},
    substitution::Names,
};

/// The operator that is to be made.
#[derive(Debug, Clone, Args)]
// clap names a group of arguments after the type, and the command `new` has one of that name already.
#[group(skip)]
pub struct New {
    /// Its name: of the crate, the program, the service account and the lease
    pub name: String,
    /// The kind of its custom resource, in `CamelCase`
    #[arg(long, default_value = "Greeting")]
    pub kind: String,
    /// The API group of its custom resource: a domain of yours
    #[arg(long, default_value = "example.io")]
    pub group: String,
    /// A checkout of Konverge [default: the one this program was built in]
    #[arg(long, value_name = "PATH")]
    pub konverge: Option<PathBuf>,
    /// Folder to make it in; must not exist [default: NAME here]
    #[arg(long, value_name = "FOLDER")]
    pub path: Option<PathBuf>,
}

/// No operator was made.
#[derive(Debug, thiserror::Error)]
pub enum NewError {
    /// A name is not good.
    #[error(transparent)]
    Name(#[from] BadName),
    /// Something is there.
    #[error("{path} exists and is left alone; name another folder with --path", path = .0.display())]
    Exists(PathBuf),
    /// The path of the checkout has no Konverge in it.
    #[error(
        "{path} is no checkout of Konverge: it has no crates/konverge/Cargo.toml; give one with --konverge",
        path = .0.display()
    )]
    NoKonverge(PathBuf),
    /// The manifests cannot be generated.
    #[error(transparent)]
    Deploy(#[from] DeployError),
    /// The manifests cannot be written.
    #[error(transparent)]
    Generated(FilesError),
    /// The file system refused.
    #[error("cannot write {path}: {source}", path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

impl New {
    /// Makes the crate, and tells what to do next or why it was not made.
    pub fn run(&self) -> ExitCode {
        match self.write(self.path.as_deref().unwrap_or(Path::new(&self.name))) {
            Ok(told) => {
                print!("{told}");
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
        }
    }

    /// Makes the crate in `folder`, which must not exist, and tells what to do next.
    pub fn write(&self, folder: &Path) -> Result<String, NewError> {
        check_name(&self.name)?;
        check_kind(&self.kind)?;
        check_group(&self.group)?;
        if folder.symlink_metadata().is_ok() {
            return Err(NewError::Exists(folder.to_owned()));
        }
        let checkout = self.checkout()?;
        let shown = checkout.display().to_string();
        let names = Names::new(&self.name, &self.kind, &self.group, &shown);
        let files = files::of_crate(&names, &checkout);
        let generated = deploy::generated(&names, &self.name)?;
        let written = write(folder, &files)
            .and_then(|()| generated.write(&folder.join("deploy")).map_err(NewError::Generated))
            .and_then(|()| lock(folder, &checkout));
        if written.is_err() {
            // It was not there before, so nothing of anybody is lost, and the next attempt finds its place free.
            let _ = fs::remove_dir_all(folder);
        }
        written?;
        format(folder);
        Ok(self.next(folder, &shown))
    }

    fn checkout(&self) -> Result<PathBuf, NewError> {
        let own = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let path = self.konverge.clone().unwrap_or_else(own);
        match path.canonicalize() {
            Ok(whole) if whole.join("crates/konverge/Cargo.toml").is_file() => Ok(whole),
            _ => Err(NewError::NoKonverge(path)),
        }
    }

    fn next(&self, folder: &Path, checkout: &str) -> String {
        let mut told = format!("made {}, an operator for {} of {}\n\n", folder.display(), self.kind, self.group);
        for line in [
            &format!("  cd {}", folder.display()),
            "  cargo test               # on a real API server; the first build takes some minutes",
            "",
            "To try it by hand, start a cluster in a second terminal, and run here the `export KUBECONFIG=…` that it prints:",
            "",
            &format!(
                "  cargo run --manifest-path {checkout}/Cargo.toml --package konverge-testkit --features cli,v1_36 -- up"
            ),
            "",
            "  cargo run -- generate | kubectl apply -f - && cargo run",
            "",
            "README.md describes the files.",
        ] {
            // Writing to a string cannot fail.
            let _ = writeln!(told, "{line}");
        }
        told
    }
}

fn write(folder: &Path, files: &BTreeMap<&str, String>) -> Result<(), NewError> {
    for (path, text) in files {
        let path = folder.join(path);
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent)
            .and_then(|()| fs::write(&path, text))
            .map_err(|source| NewError::Write { path, source })?;
    }
    Ok(())
}

/// Begins with the very versions that Konverge is tested with; cargo strikes out those that are not used.
fn lock(folder: &Path, checkout: &Path) -> Result<(), NewError> {
    let (from, to) = (checkout.join("Cargo.lock"), folder.join("Cargo.lock"));
    match fs::copy(from, &to) {
        Ok(_) => Ok(()),
        // Then cargo chooses.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(NewError::Write { path: to, source }),
    }
}

/// Other names make other line lengths and another order. Without rustfmt the code is as good, only less pretty.
fn format(folder: &Path) {
    let mut format = Command::new("cargo");
    format.arg("fmt").current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let _ = format.status();
}
