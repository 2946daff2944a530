//! Building servers from pinned sources, once per machine: the cache, and how Go modules get into it.
//!
//! For the crates of this workspace that add servers of their own; not a part of the stable API.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use sha2::{Digest, Sha256};

use crate::environment;

/// Programs that come from one Go module. The module is embedded in this crate, so a dependent crate needs no other file of ours.
/// It gets no further field, so that it can be written as a literal.
pub struct Module {
    /// Names its folder in the cache.
    pub name: &'static str,
    /// The name of the build and its usual duration, printed before it starts.
    pub announcement: String,
    /// Its `go.mod`.
    pub go_mod: &'static str,
    /// Its `go.sum`.
    pub go_sum: &'static str,
    /// Files of our own beside them, by name.
    pub sources: &'static [(&'static str, &'static str)],
    /// The packages to build.
    pub programs: Vec<Program>,
}

/// The program that Go builds from a package. It gets no further field, so that it can be written as a literal.
pub struct Program {
    /// Its file name.
    pub name: &'static str,
    /// The Go package.
    pub package: String,
    /// For the linker, beyond leaving debug information out.
    pub linker: String,
    /// Build tags, separated by commas.
    pub tags: &'static str,
}

/// The subfolder that a build fills, named as `cargo install` names it.
pub const OUTPUT: &str = "bin";

/// The oldest Go that builds it, as `go.mod` says.
const GO_AT_LEAST: (u32, u32) = (1, 26);

/// While the compiler is silent, this often somebody wants to know whether it still works.
const PROGRESS_EVERY: Duration = Duration::from_secs(15);

/// A server cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// There is no Go.
    #[error(
        "test servers are built with Go, and there is no `go` on the PATH ({source}); install Go {}.{} or newer, or, for a \
         control plane, set KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver",
        GO_AT_LEAST.0,
        GO_AT_LEAST.1
    )]
    NoGo {
        /// The error of the operating system.
        source: io::Error,
    },
    /// The Go that is there is too old.
    #[error(
        "test servers need Go {}.{} or newer, and this is {found}; install a newer one, or, for a control plane, set \
         KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver",
        GO_AT_LEAST.0,
        GO_AT_LEAST.1
    )]
    OldGo {
        /// The output of `go env GOVERSION`.
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
        /// The error of the operating system.
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

/// The folder with all programs of the module; builds those that are not in the cache. Two processes that ask at once build once.
///
/// The cache is keyed by the module's files and the Go version, so another clone finds the same build.
pub fn ensure(module: &Module) -> Result<PathBuf, BuildError> {
    let names: Vec<_> = module.programs.iter().map(|program| program.name).collect();
    ensure_programs(module, &names)
}

/// The same for the programs of these names only. The folder can hold others.
pub fn ensure_programs(module: &Module, names: &[&str]) -> Result<PathBuf, BuildError> {
    ensure_in(&cache()?, module, names)
}

fn ensure_in(cache: &Path, module: &Module, names: &[&str]) -> Result<PathBuf, BuildError> {
    let key = module.key(&go_version()?);
    let mut is_announced = false;
    // One after the other: a process that needs no other program does not wait for the others.
    for program in module.programs.iter().filter(|program| names.contains(&program.name)) {
        let is_complete = |folder: &Path| folder.join(program.name).is_file();
        cached_in(cache, module.name, &key, is_complete, |workspace| {
            if !is_announced {
                eprintln!("konverge: {}", module.announcement);
                is_announced = true;
            }
            build(module, program, workspace)
        })?;
    }
    Ok(folder_in(cache, module.name, &key))
}

fn cache() -> Result<PathBuf, BuildError> {
    environment::cache().ok_or(BuildError::NoCache)
}

/// The folder of the cache that belongs to `name` and `key`, whether or not it exists. `None` without a place for the cache.
pub fn folder(name: &str, key: &str) -> Option<PathBuf> {
    Some(folder_in(&environment::cache()?, name, key))
}

fn folder_in(cache: &Path, name: &str, key: &str) -> PathBuf {
    cache.join(name).join(key)
}

/// The folder of the cache that belongs to `name` and `key`. If it is not complete, `make` gets an empty folder to work in and fills its
/// subfolder [`OUTPUT`], whose files go into the folder. Two processes that ask at once build once.
pub fn cached<E: From<BuildError>>(
    name: &str,
    key: &str,
    is_complete: impl Fn(&Path) -> bool,
    make: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<PathBuf, E> {
    cached_in(&cache()?, name, key, is_complete, make)
}

fn cached_in<E: From<BuildError>>(
    cache: &Path,
    name: &str,
    key: &str,
    is_complete: impl Fn(&Path) -> bool,
    make: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<PathBuf, E> {
    let folder = folder_in(cache, name, key);
    if is_complete(&folder) {
        return Ok(folder);
    }
    let root = folder.parent().unwrap_or(&folder);
    fs::create_dir_all(root).map_err(not_written(root))?;
    let lock_path = root.join(format!("{key}.lock"));
    let lock = File::create(&lock_path).map_err(not_written(&lock_path))?;
    if lock.try_lock().is_err() {
        eprintln!("konverge: another process is building the {name}; waiting for it");
        lock.lock().map_err(not_written(&lock_path))?;
    }
    if !is_complete(&folder) {
        // Beside its place, so that the last step is a rename and a file that is half written is never taken for a whole one.
        let workspace = tempfile::Builder::new().prefix(".building-").tempdir_in(root).map_err(not_written(root))?;
        make(workspace.path())?;
        take_over(&workspace.path().join(OUTPUT), &folder).map_err(not_written(&folder))?;
    }
    Ok(folder)
}

/// Moves the files of a folder into another one, which can hold others.
fn take_over(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::rename(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

fn not_written(path: &Path) -> impl FnOnce(io::Error) -> BuildError {
    let path = path.to_owned();
    |source| BuildError::Write { path, source }
}

fn build(module: &Module, program: &Program, workspace: &Path) -> Result<(), BuildError> {
    let files = [("go.mod", module.go_mod), ("go.sum", module.go_sum)];
    for (name, content) in files.iter().chain(module.sources) {
        let path = workspace.join(name);
        fs::write(&path, content).map_err(not_written(&path))?;
    }
    compile(workspace, &workspace.join(OUTPUT), program)
}

fn compile(workspace: &Path, output: &Path, program: &Program) -> Result<(), BuildError> {
    let name = program.name;
    let linker = format!("-s -w {}", program.linker);
    let began = Instant::now();
    eprintln!("konverge: building {name}");
    let mut command = Command::new("go");
    command
        .args(["build", "-trimpath", "-tags", program.tags, "-ldflags", &linker, "-o"])
        .arg(output.join(name))
        .arg(&program.package);
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

impl Module {
    /// Sixteen hex digits of a hash over all that decides what the programs are.
    fn key(&self, go: &str) -> String {
        let digest = Sha256::new().chain_update(self.go_mod).chain_update(self.go_sum).chain_update(go);
        let digest = self.sources.iter().fold(digest, |digest, (_, content)| digest.chain_update(content)).finalize();
        digest.iter().take(8).fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
    }
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
    fn only_the_programs_that_are_needed_are_built() {
        let program =
            |name| Program { name, package: ".".to_owned(), linker: format!("-X main.name={name}"), tags: "greeting" };
        let module = Module {
            name: "greetings",
            announcement: "building greetings".to_owned(),
            go_mod: "module example.com/greetings\n\ngo 1.26\n",
            go_sum: "",
            sources: &[(
                "main.go",
                "//go:build greeting\n\npackage main\n\nvar name string\n\nfunc main() { println(name) }\n",
            )],
            programs: vec![program("one"), program("two")],
        };
        let cache = tempfile::tempdir().unwrap();
        let built = |folder: &Path| -> Vec<_> {
            let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let mut names: Vec<_> = names.collect();
            names.sort();
            names
        };
        let folder = ensure_in(cache.path(), &module, &["two"]).unwrap();
        assert_eq!(built(&folder), ["two"]);
        let changed = |name: &str| fs::metadata(folder.join(name)).unwrap().modified().unwrap();
        let before = changed("two");
        assert_eq!(ensure_in(cache.path(), &module, &["one", "two"]).unwrap(), folder);
        assert_eq!((built(&folder), changed("two")), (vec!["one".to_owned(), "two".to_owned()], before));
        for name in ["one", "two"] {
            let output = Command::new(folder.join(name)).output().unwrap();
            assert_eq!(String::from_utf8(output.stderr).unwrap().trim(), name);
        }
        // Nothing else is left beside the lock.
        assert_eq!(built(&cache.path().join("greetings")).len(), 2);
    }

    #[test]
    fn the_key_follows_the_module_and_the_go_version() {
        let module = |go_mod| Module {
            name: "test",
            announcement: String::new(),
            go_mod,
            go_sum: "",
            sources: &[],
            programs: Vec::new(),
        };
        let key = module("a").key("go1.26.8");
        assert_eq!(key.len(), 16);
        assert_ne!(key, module("a").key("go1.26.9"));
        assert_ne!(key, module("b").key("go1.26.8"));
        assert_ne!(key, Module { sources: &[("main.go", "package main")], ..module("a") }.key("go1.26.8"));
    }
}
