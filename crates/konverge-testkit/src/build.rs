//! Building the control plane from pinned Go modules, once per machine.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use sha2::{Digest, Sha256};

use crate::{assets::Binary, environment};

/// The module travels inside this crate, so that whoever depends on it needs no other file of ours.
const GO_MOD: &str = include_str!("../control-plane/go.mod");
const GO_SUM: &str = include_str!("../control-plane/go.sum");

/// The Kubernetes version in `go.mod`; the linker puts it where `/version` reads it.
const KUBERNETES: (&str, &str, &str) = ("v1.36.3", "1", "36");

/// The oldest Go that builds it, as `go.mod` says.
const GO_AT_LEAST: (u32, u32) = (1, 26);

/// While the compiler is silent, this often somebody wants to know whether it still works.
const PROGRESS_EVERY: Duration = Duration::from_secs(15);

/// The control plane cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// There is no Go.
    #[error(
        "the test control plane is built with Go, and there is no `go` on the PATH ({source}); install Go {}.{} or newer, or set \
         KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver",
        GO_AT_LEAST.0,
        GO_AT_LEAST.1
    )]
    NoGo {
        /// What the system said.
        source: io::Error,
    },
    /// The Go that is there is too old.
    #[error(
        "the test control plane needs Go {}.{} or newer, and this is {found}; install a newer one, or set \
         KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver",
        GO_AT_LEAST.0,
        GO_AT_LEAST.1
    )]
    OldGo {
        /// What `go env GOVERSION` says.
        found: String,
    },
    /// There is no place for the cache.
    #[error("no place for the cache: set KONVERGE_CACHE or HOME")]
    NoCache,
    /// A file could not be written.
    #[error("cannot write {}: {source}; is there space, and may you write there? KONVERGE_CACHE names another place", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The build failed.
    #[error(
        "building {name} failed ({status}); what Go said is above. Are the Go modules reachable, and is there space?"
    )]
    Failed {
        /// The program.
        name: &'static str,
        /// How Go ended.
        status: String,
    },
}

/// The folder with the programs; builds them if they are not in the cache. Two processes that ask at once build once.
///
/// What is in the cache is keyed by the module's files and the Go version, so another clone finds it again.
pub(crate) fn ensure() -> Result<PathBuf, BuildError> {
    let go = go_version()?;
    let root = environment::cache().ok_or(BuildError::NoCache)?.join("control-plane");
    let folder = root.join(key(&go));
    if is_complete(&folder) {
        return Ok(folder);
    }
    fs::create_dir_all(&root).map_err(|source| BuildError::Write { path: root.clone(), source })?;
    let lock_path = folder.with_extension("lock");
    let write = |source| BuildError::Write { path: lock_path.clone(), source };
    let lock = File::create(&lock_path).map_err(write)?;
    if lock.try_lock().is_err() {
        eprintln!("konverge: another process is building the control plane; waiting for it");
        lock.lock().map_err(write)?;
    }
    if !is_complete(&folder) {
        build(&root, &folder)?;
    }
    Ok(folder)
}

fn build(root: &Path, folder: &Path) -> Result<(), BuildError> {
    eprintln!(
        "konverge: building etcd and Kubernetes {} from Go modules, because no registry has them as binaries. This happens once \
         per machine and takes five to ten minutes.",
        KUBERNETES.0
    );
    let write = |path: &Path| {
        let path = path.to_owned();
        |source| BuildError::Write { path, source }
    };
    // Beside its place, so that the last step is a rename and a half-built folder is never taken for a whole one.
    let workspace = tempfile::Builder::new().prefix(".building-").tempdir_in(root).map_err(write(root))?;
    for (name, content) in [("go.mod", GO_MOD), ("go.sum", GO_SUM)] {
        let path = workspace.path().join(name);
        fs::write(&path, content).map_err(write(&path))?;
    }
    let output = workspace.path().join("bin");
    for binary in Binary::ALL {
        compile(workspace.path(), &output, binary)?;
    }
    fs::rename(&output, folder).map_err(write(folder))
}

fn compile(workspace: &Path, output: &Path, binary: Binary) -> Result<(), BuildError> {
    let name = binary.name();
    let package = match binary {
        Binary::Etcd => "go.etcd.io/etcd/server/v3".to_owned(),
        kubernetes => format!("k8s.io/kubernetes/cmd/{}", kubernetes.name()),
    };
    let version = "k8s.io/component-base/version";
    let (full, major, minor) = KUBERNETES;
    let linker =
        format!("-s -w -X {version}.gitVersion={full} -X {version}.gitMajor={major} -X {version}.gitMinor={minor}");
    let began = Instant::now();
    eprintln!("konverge: building {name}");
    let mut command = Command::new("go");
    command.args(["build", "-trimpath", "-ldflags", &linker, "-o"]).arg(output.join(name)).arg(package);
    // The module is complete: nothing may change it, and a newer toolchain is not fetched behind our back.
    command.env("GOFLAGS", "-mod=readonly").env("GOTOOLCHAIN", "local").env("CGO_ENABLED", "0").env("GOWORK", "off");
    let mut child =
        command.current_dir(workspace).stdin(Stdio::null()).spawn().map_err(|source| BuildError::NoGo { source })?;
    let mut told = began;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) => std::thread::sleep(Duration::from_millis(200)),
            Err(error) => return Err(BuildError::Failed { name, status: error.to_string() }),
        }
        if told.elapsed() >= PROGRESS_EVERY {
            told = Instant::now();
            eprintln!("konverge: building {name}, {} s so far", began.elapsed().as_secs());
        }
    };
    if !status.success() {
        return Err(BuildError::Failed { name, status: status.to_string() });
    }
    eprintln!("konverge: built {name} in {} s", began.elapsed().as_secs());
    let _ = io::stderr().flush();
    Ok(())
}

fn is_complete(folder: &Path) -> bool {
    Binary::ALL.iter().all(|binary| folder.join(binary.name()).is_file())
}

fn go_version() -> Result<String, BuildError> {
    let output = Command::new("go").args(["env", "GOVERSION"]).env("GOTOOLCHAIN", "local").output();
    let output = output.map_err(|source| BuildError::NoGo { source })?;
    let found = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if is_new_enough(&found) { Ok(found) } else { Err(BuildError::OldGo { found }) }
}

/// Whether a version such as `go1.26.8` is at least [`GO_AT_LEAST`].
fn is_new_enough(version: &str) -> bool {
    let mut numbers = version.trim_start_matches("go").split('.').map(|part| {
        let digits = part.find(|character: char| !character.is_ascii_digit()).unwrap_or(part.len());
        part[..digits].parse::<u32>().unwrap_or_default()
    });
    (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default()) >= GO_AT_LEAST
}

/// Sixteen hex digits of a hash over all that decides what the programs are.
fn key(go: &str) -> String {
    let digest = Sha256::new().chain_update(GO_MOD).chain_update(GO_SUM).chain_update(go).finalize();
    digest.iter().take(8).fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_versions() {
        for (version, expected) in [
            ("go1.26.8", true),
            ("go1.27rc1", true),
            ("go2.0", true),
            ("go1.25.9", false),
            ("", false),
            ("devel", false),
        ] {
            assert_eq!(is_new_enough(version), expected, "{version}");
        }
    }

    #[test]
    fn the_linker_is_told_the_version_that_the_module_pins() {
        assert!(GO_MOD.contains(&format!("k8s.io/kubernetes {}", KUBERNETES.0)));
        assert!(GO_MOD.contains(&format!("go {}.{}", GO_AT_LEAST.0, GO_AT_LEAST.1)));
    }

    #[test]
    fn the_key_follows_the_go_version() {
        assert_ne!(key("go1.26.8"), key("go1.26.9"));
        assert_eq!(key("go1.26.8").len(), 16);
    }
}
