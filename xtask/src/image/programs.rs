//! The programs of a release, and how they are built.

use std::{env, path::PathBuf, process::Command};

use anyhow::{Context, Result, bail};
use flate2::Compression;
use oci_spec::image::Arch;

use crate::{
    commit::Commit,
    environment, paths,
    step::{cargo, run},
    tools,
};

/// A program that is released.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// The package that makes it.
    pub(crate) package: &'static str,
    /// One sentence.
    pub(crate) about: &'static str,
}

/// Every program of a release.
pub(crate) const PROGRAMS: [Program; 9] = [
    Program { name: "konverge", package: "konverge-cli", about: "All jobs of Konverge in one process" },
    Program {
        name: "kubectl-konverge",
        package: "konverge-kubectl-plugin",
        about: "The plugin of kubectl for the operators of Konverge",
    },
    Program {
        name: "openzro-operator",
        package: "konverge-openzro-operator",
        about: "Keeps openZro as custom resources of Kubernetes say",
    },
    Program {
        name: "vault-rollout-operator",
        package: "konverge-vault-rollout-operator",
        about: "Restarts workloads once when a Secret, a ConfigMap or a secret in Vault changes",
    },
    Program {
        name: "vault-sync-operator",
        package: "konverge-vault-sync-operator",
        about: "Writes Kubernetes Secrets to Vault and OpenBao",
    },
    Program { name: "zopp", package: "konverge-zopp-cli", about: "The command line of zopp" },
    Program {
        name: "zopp-k8s",
        package: "konverge-zopp-k8s",
        about: "The command line of zopp with the verbs for Kubernetes",
    },
    Program {
        name: "zopp-operator",
        package: "konverge-zopp-operator",
        about: "Fills annotated Kubernetes Secrets from zopp",
    },
    Program {
        name: "zopp-server",
        package: "konverge-zopp-server",
        about: "Stores secrets that only their owners can read",
    },
];

/// A build: for which machine, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Build {
    /// A target of Rust, or `None` for the machine that builds, with the C library that it has.
    pub(crate) target: Option<String>,
    /// A profile of cargo.
    pub(crate) profile: String,
}

/// The builds for these targets; for none it is this machine's architecture with musl.
pub(crate) fn builds(targets: &[String], profile: &str) -> Vec<Build> {
    let default = [format!("{}-unknown-linux-musl", env::consts::ARCH)];
    let targets = if targets.is_empty() { &default[..] } else { targets };
    let of = |target: &String| Build {
        target: Some(target.clone()).filter(|target| target != "host"),
        profile: profile.to_owned(),
    };
    targets.iter().map(of).collect()
}

impl Build {
    /// The target's name, also that of this machine.
    pub(crate) fn triple(&self) -> String {
        self.target.clone().unwrap_or_else(|| format!("{}-unknown-linux-gnu", env::consts::ARCH))
    }

    /// The architecture as images name it.
    pub(crate) fn architecture(&self) -> Result<Arch> {
        Ok(match self.triple().split('-').next() {
            Some("x86_64") => Arch::Amd64,
            Some("aarch64") => Arch::ARM64,
            other => bail!("no image is made for the architecture {}", other.unwrap_or_default()),
        })
    }

    /// How layers are compressed: a release as small as can be, and others not at all, since nobody downloads them.
    pub(crate) fn compression(&self) -> Compression {
        if self.profile == "release" { Compression::best() } else { Compression::none() }
    }

    /// Builds all programs.
    pub(crate) fn run(&self, commit: &Commit) -> Result<()> {
        let mut build = cargo(["build", "--locked", "--profile", &self.profile]);
        for program in &PROGRAMS {
            build.args(["--package", program.package, "--bin", program.name]);
        }
        if let Some(target) = &self.target {
            build.args(["--target", target]);
            static_c(&mut build, target)?;
            // Two clones give the same bytes.
            let mut flags = remapped();
            if self.profile == "release" {
                // Cargo keeps the symbols of a package that has its own level of optimisation, whatever the profile says.
                flags.push("-Cstrip=symbols".to_owned());
            }
            build.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
        }
        commit.tell(&mut build);
        let next = "A target needs `rustup target add TARGET`. C for this machine's architecture needs musl-gcc (Debian: musl-tools), or the compiler that CC_TARGET names.";
        run(&format!("build of the programs for {}", self.triple()), build, next)
    }

    /// Where a program of it is, once it is built.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        let folder = if self.profile == "dev" { "debug" } else { &self.profile };
        match &self.target {
            None => paths::built(folder, name),
            Some(target) => paths::built(&format!("{target}/{folder}"), name),
        }
    }

    /// A program of it, which is built.
    pub(crate) fn built(&self, name: &str) -> Result<PathBuf> {
        let path = self.program(name);
        if !path.is_file() {
            bail!("there is no {}; build it: cargo build --workspace --bins", path.display());
        }
        Ok(path)
    }
}

/// Chooses the compiler of C and the linker, unless `CC_TARGET` names a compiler. For this machine's architecture it is the one of the machine. For another
/// one it is that of Zig, with the linker of Rust.
fn static_c(build: &mut Command, target: &str) -> Result<()> {
    let name = target.replace('-', "_");
    let compiler = format!("CC_{name}");
    if env::var_os(&compiler).is_some() {
        return Ok(());
    }
    let architecture = target.split('-').next().unwrap_or_default();
    if architecture == env::consts::ARCH {
        build.env(compiler, "musl-gcc");
        return Ok(());
    }
    // By name: a path may have a blank, which separates arguments here.
    let path = env::var_os("PATH").unwrap_or_default();
    let path = [tools::zig()?].into_iter().chain(env::split_paths(&path));
    build.env("PATH", env::join_paths(path).context("PATH cannot be extended")?);
    build.env(compiler, format!("zig cc -target {architecture}-linux-musl"));
    build.env(format!("AR_{name}"), "zig ar");
    // Zig does not know Rust's name of the target, which would be among the usual flags, and without a level of optimisation it adds checks that
    // need its own runtime.
    build.env("CRATE_CC_NO_DEFAULTS", "1");
    for flags in [format!("CFLAGS_{name}"), "HOST_CFLAGS".to_owned()] {
        build.env(flags, "-O3 -fPIC -ffunction-sections -fdata-sections -fno-sanitize=all");
    }
    build.env(format!("CARGO_TARGET_{}_LINKER", name.to_uppercase()), "rust-lld");
    Ok(())
}

fn remapped() -> Vec<String> {
    let cargo_home =
        environment::variable("CARGO_HOME").or_else(|| Some(environment::variable("HOME")?.join(".cargo")));
    let of = |path: PathBuf, to: &str| format!("--remap-path-prefix={}={to}", path.display());
    [Some(of(paths::workspace(), "/src")), cargo_home.map(|home| of(home, "/cargo"))].into_iter().flatten().collect()
}
