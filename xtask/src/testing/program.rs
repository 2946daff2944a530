//! The test programs that cargo builds, and how each is started.

use std::{
    collections::BTreeMap,
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::{metadata, step::cargo};

/// Something that runs tests, takes the arguments of libtest, and reports as libtest does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    /// The arguments by which `cargo test` runs it, such as `-p konverge-push --test it`.
    pub(crate) name: String,
    start: Start,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Start {
    /// A program that cargo built.
    Built { executable: PathBuf, package: Package },
    /// Cargo and rustdoc: they compile the examples in the docs, and run them.
    Docs,
}

/// A package of the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    manifest_path: PathBuf,
}

/// The packages of the workspace.
#[derive(Deserialize)]
struct Packages {
    packages: Vec<Package>,
}

/// A message of cargo about a build.
#[derive(Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
enum Message {
    CompilerArtifact(Artifact),
    #[serde(other)]
    Other,
}

/// The result of building one target of a package.
#[derive(Deserialize)]
struct Artifact {
    package_id: String,
    target: Target,
    profile: Profile,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Builds the test programs that these arguments of `cargo test` choose.
pub(crate) fn built(chosen: &[&str]) -> Result<Vec<Program>> {
    let packages: Packages = metadata::read(&["--no-deps"])?;
    let mut build = cargo(["test", "--no-run", "--message-format", "json-render-diagnostics"]);
    let output = build.args(chosen).stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    if !output.status.success() {
        bail!("the tests do not compile; the first error is above");
    }
    of_messages(&output.stdout, packages.packages)
}

/// The test programs in the messages of a build, by their names.
fn of_messages(messages: &[u8], packages: Vec<Package>) -> Result<Vec<Program>> {
    let packages: BTreeMap<_, _> = packages.into_iter().map(|package| (package.id.clone(), package)).collect();
    let mut programs = Vec::new();
    for message in serde_json::Deserializer::from_slice(messages).into_iter() {
        let Message::CompilerArtifact(artifact) = message.context("cannot read cargo's messages")? else { continue };
        let (Some(executable), true) = (artifact.executable, artifact.profile.test) else { continue };
        let package = packages.get(&artifact.package_id).cloned();
        let package = package.with_context(|| format!("{} is no package of the workspace", artifact.package_id))?;
        let name = format!("-p {} {}", package.name, artifact.target.argument());
        programs.push(Program { name, start: Start::Built { executable, package } });
    }
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(programs)
}

impl Target {
    /// The argument by which cargo chooses this target among those of the package.
    fn argument(&self) -> String {
        match self.kind.first().map(String::as_str) {
            Some(kind @ ("bin" | "test" | "example" | "bench")) => format!("--{kind} {}", self.name),
            // A library of any kind; a package has one.
            _ => "--lib".to_owned(),
        }
    }
}

impl Program {
    /// The examples in the docs of all packages.
    pub(crate) fn docs() -> Self {
        Self { name: "--workspace --doc".to_owned(), start: Start::Docs }
    }

    /// A program that only has a name.
    #[cfg(test)]
    pub(crate) fn named(name: &str) -> Self {
        Self { name: name.to_owned(), start: Start::Docs }
    }

    /// The command that starts it as `cargo test` does. The arguments of libtest follow.
    pub(crate) fn command(&self) -> Command {
        let (executable, package) = match &self.start {
            Start::Built { executable, package } => (executable, package),
            Start::Docs => return cargo(["test", "--workspace", "--doc", "--no-fail-fast", "--"]),
        };
        let mut command = Command::new(executable);
        let folder = package.manifest_path.parent().unwrap_or(Path::new("."));
        // Cargo has set these for our own package. The path of shared libraries, which it has set too, is that of every package.
        for (variable, _) in env::vars_os() {
            let ours = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
            if variable.to_str().is_some_and(ours) {
                command.env_remove(variable);
            }
        }
        command
            .current_dir(folder)
            .env("CARGO_MANIFEST_DIR", folder)
            .env("CARGO_MANIFEST_PATH", &package.manifest_path)
            .env("CARGO_PKG_NAME", &package.name)
            .env("CARGO_PKG_VERSION", &package.version);
        command
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use serde_json::json;

    use super::*;

    fn package(name: &str) -> Package {
        Package {
            id: format!("path+file:///w/{name}#0.1.0"),
            name: name.to_owned(),
            version: "0.1.0".to_owned(),
            manifest_path: format!("/w/{name}/Cargo.toml").into(),
        }
    }

    fn artifact(package: &str, kind: &str, target: &str, is_test: bool, executable: Option<&str>) -> String {
        json!({
            "reason": "compiler-artifact",
            "package_id": format!("path+file:///w/{package}#0.1.0"),
            "target": { "kind": [kind], "crate_types": [kind], "name": target },
            "profile": { "opt_level": "0", "test": is_test },
            "executable": executable,
        })
        .to_string()
    }

    #[test]
    fn each_test_program_is_named_as_cargo_chooses_it() {
        let messages = [
            json!({ "reason": "build-script-executed", "package_id": "registry#ring@1.0.0" }).to_string(),
            artifact("push", "test", "it", true, Some("/t/it-1")),
            artifact("push", "lib", "push", false, None),
            artifact("push", "lib", "push", true, Some("/t/push-1")),
            artifact("push", "bin", "pusher", false, Some("/t/pusher")),
            artifact("push", "bin", "pusher", true, Some("/t/pusher-1")),
            artifact("macros", "proc-macro", "macros", true, Some("/t/macros-1")),
            artifact("push", "example", "generate", true, Some("/t/generate-1")),
            artifact("push", "bench", "speed", true, Some("/t/speed-1")),
            json!({ "reason": "build-finished", "success": true }).to_string(),
        ];
        let programs = of_messages(messages.join("\n").as_bytes(), vec![package("push"), package("macros")]).unwrap();
        let names: Vec<_> = programs.iter().map(|program| program.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "-p macros --lib",
                "-p push --bench speed",
                "-p push --bin pusher",
                "-p push --example generate",
                "-p push --lib",
                "-p push --test it"
            ]
        );
    }

    #[test]
    fn a_program_runs_in_the_folder_of_its_package_and_knows_the_package() {
        let message = artifact("push", "test", "it", true, Some("/t/it-1"));
        let programs = of_messages(message.as_bytes(), vec![package("push")]).unwrap();
        let command = programs[0].command();
        assert_eq!(command.get_program(), "/t/it-1");
        assert_eq!(command.get_current_dir(), Some(Path::new("/w/push")));
        let variable = |name: &str| command.get_envs().find(|(found, _)| *found == name).and_then(|(_, value)| value);
        assert_eq!(variable("CARGO_MANIFEST_DIR"), Some("/w/push".as_ref()));
        assert_eq!(variable("CARGO_PKG_NAME"), Some("push".as_ref()));
    }

    #[test]
    fn a_program_of_a_package_that_is_not_known_is_an_error() {
        let message = artifact("push", "test", "it", true, Some("/t/it-1"));
        assert!(of_messages(message.as_bytes(), vec![package("roll")]).is_err());
    }
}
