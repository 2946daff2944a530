//! Where the programs of the control plane come from.

use std::{
    env,
    path::{Path, PathBuf},
};

use crate::build::{self, BuildError, Module, Program};

/// Names a folder with `etcd`, `kube-apiserver` and `kubectl`, as other operator test kits use it.
pub const ASSETS_VARIABLE: &str = "KUBEBUILDER_ASSETS";

const GO_MOD: &str = include_str!("../control-plane/go.mod");
const GO_SUM: &str = include_str!("../control-plane/go.sum");

/// The Kubernetes version in `go.mod`; the linker puts it where `/version` reads it.
const KUBERNETES: (&str, &str, &str) = ("v1.36.3", "1", "36");

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
        Ok(Self { folder: build::ensure_programs(&module(), &names)? })
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

fn module() -> Module {
    let (full, major, minor) = KUBERNETES;
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
        go_mod: GO_MOD,
        go_sum: GO_SUM,
        sources: &[],
        programs: Binary::ALL.map(program).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_linker_is_told_the_version_that_the_module_pins() {
        assert!(GO_MOD.contains(&format!("k8s.io/kubernetes {}", KUBERNETES.0)));
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
