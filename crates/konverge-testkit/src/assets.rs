//! Where the programs of the control plane come from.

use std::{
    env,
    path::{Path, PathBuf},
};

use crate::build::{self, BuildError, Module, Program};

/// Names a folder with `etcd`, `kube-apiserver` and `kubectl`, as other operator test kits use it.
pub const ASSETS_VARIABLE: &str = "KUBEBUILDER_ASSETS";

/// Names the minor version of Kubernetes that is built, such as `1.34`. Without it, the newest one is.
pub const KUBERNETES_VARIABLE: &str = "KONVERGE_TEST_KUBERNETES";

/// A version of Kubernetes that can be built.
struct Release {
    /// The version in `go.mod`; the linker puts it where `/version` reads it.
    version: &'static str,
    minor: &'static str,
    go_mod: &'static str,
    go_sum: &'static str,
}

/// The newest first, and the two minor versions before it.
const RELEASES: &[Release; 3] = &[
    Release {
        version: "v1.36.3",
        minor: "1.36",
        go_mod: include_str!("../control-plane/go.mod"),
        go_sum: include_str!("../control-plane/go.sum"),
    },
    Release {
        version: "v1.35.4",
        minor: "1.35",
        go_mod: include_str!("../control-plane/1.35/go.mod"),
        go_sum: include_str!("../control-plane/1.35/go.sum"),
    },
    Release {
        version: "v1.34.4",
        minor: "1.34",
        go_mod: include_str!("../control-plane/1.34/go.mod"),
        go_sum: include_str!("../control-plane/1.34/go.sum"),
    },
];

/// The supported minor versions before the newest one.
pub const SUPPORTED_BEFORE: [&str; 2] = [RELEASES[1].minor, RELEASES[2].minor];

/// The programs of a control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Binary {
    /// The store.
    Etcd,
    /// The API.
    ApiServer,
    /// Garbage collection, `ReplicaSet`s, service accounts' tokens.
    ControllerManager,
    /// The command line.
    Kubectl,
}

impl Binary {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Etcd, Self::ApiServer, Self::ControllerManager, Self::Kubectl];

    /// Its file name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Kubectl => "kubectl",
        }
    }
}

/// No control plane can be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AssetsError {
    /// The folder that the variable names lacks a program.
    #[error(
        "{ASSETS_VARIABLE} names {}, and there is no {name} in it; unset the variable to have the control plane built, or \
         point it to a complete set",
        folder.display()
    )]
    Missing {
        /// The folder.
        folder: PathBuf,
        /// The program.
        name: &'static str,
    },
    /// The variable names a version that cannot be built.
    #[error(
        "{KUBERNETES_VARIABLE} names Kubernetes {asked}; write one of 1.36, 1.35 and 1.34, or unset it for the newest"
    )]
    UnknownKubernetes {
        /// The value.
        asked: String,
    },
    /// It is not in the cache and cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
}

/// A folder with the programs.
#[derive(Debug, Clone)]
pub struct Assets {
    folder: PathBuf,
}

impl Assets {
    /// The folder that `KUBEBUILDER_ASSETS` names if it is set, else the cache. Programs in `needed` that the cache lacks are built, which
    /// takes minutes; others are not. Blocks while it builds.
    pub fn find(needed: &[Binary]) -> Result<Self, AssetsError> {
        if let Some(folder) = env::var_os(ASSETS_VARIABLE).filter(|value| !value.is_empty()) {
            return Self::in_folder(Path::new(&folder), needed);
        }
        let names: Vec<_> = needed.iter().map(|binary| binary.name()).collect();
        let asked = env::var(KUBERNETES_VARIABLE).unwrap_or_default();
        Ok(Self { folder: build::ensure_programs(&module(release(&asked)?), &names)? })
    }

    fn in_folder(folder: &Path, needed: &[Binary]) -> Result<Self, AssetsError> {
        let missing = needed.iter().find(|binary| !folder.join(binary.name()).is_file());
        match missing {
            Some(binary) => Err(AssetsError::Missing { folder: folder.to_owned(), name: binary.name() }),
            None => Ok(Self { folder: folder.to_owned() }),
        }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The program's path.
    pub fn path(&self, binary: Binary) -> PathBuf {
        self.folder.join(binary.name())
    }
}

/// The release of a minor version. An empty text is the newest one.
fn release(asked: &str) -> Result<&'static Release, AssetsError> {
    let found = RELEASES.iter().find(|release| asked.is_empty() || release.minor == asked);
    found.ok_or_else(|| AssetsError::UnknownKubernetes { asked: asked.to_owned() })
}

fn module(release: &Release) -> Module {
    let full = release.version;
    let (major, minor) = release.minor.split_once('.').unwrap_or_default();
    let version = "k8s.io/component-base/version";
    let linker = format!("-X {version}.gitVersion={full} -X {version}.gitMajor={major} -X {version}.gitMinor={minor}");
    let program = |binary: Binary| Program {
        name: binary.name(),
        package: match binary {
            Binary::Etcd => "go.etcd.io/etcd/server/v3".to_owned(),
            kubernetes => format!("k8s.io/kubernetes/cmd/{}", kubernetes.name()),
        },
        linker: linker.clone(),
        tags: "",
    };
    Module {
        name: "control-plane",
        announcement: format!(
            "building etcd and Kubernetes {full} from Go modules, because no registry has them as binaries. This happens once \
             per machine and takes some minutes."
        ),
        go_mod: release.go_mod,
        go_sum: release.go_sum,
        sources: &[],
        programs: Binary::ALL.map(program).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_linker_is_told_the_version_that_the_module_pins() {
        for release in RELEASES {
            assert!(release.go_mod.contains(&format!("k8s.io/kubernetes {}", release.version)), "{}", release.version);
            assert!(release.version.starts_with(&format!("v{}.", release.minor)), "{}", release.version);
            assert!(module(release).programs[0].linker.contains(release.version));
        }
    }

    #[test]
    fn a_minor_version_is_chosen_and_an_unknown_one_refused_with_those_that_there_are() {
        assert_eq!(release("").ok().unwrap().minor, "1.36");
        assert_eq!(release("1.34").ok().unwrap().version, "v1.34.4");
        let error = release("1.12").err().unwrap().to_string();
        assert!(RELEASES.iter().all(|release| error.contains(release.minor)) && error.contains("1.12"), "{error}");
    }

    #[test]
    fn an_incomplete_folder_is_named_with_what_it_lacks() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("etcd"), "").unwrap();
        let error = Assets::in_folder(folder.path(), &[Binary::Etcd, Binary::ApiServer]).unwrap_err().to_string();
        assert!(error.contains("kube-apiserver") && error.contains(&*folder.path().to_string_lossy()), "{error}");
        assert!(Assets::in_folder(folder.path(), &[Binary::Etcd]).is_ok());
    }
}
