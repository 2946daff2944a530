//! Where the programs of the control plane come from.

use std::{
    env,
    path::{Path, PathBuf},
};

use crate::build::{self, BuildError};

/// Names a folder with `etcd`, `kube-apiserver` and `kubectl`, as other operator test kits use it.
pub const ASSETS_VARIABLE: &str = "KUBEBUILDER_ASSETS";

/// The programs of a control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// The folder that `KUBEBUILDER_ASSETS` names if it is set, else the cache, which is filled by a build of some minutes if it
    /// is empty. `needed` must be there. Blocks while it builds.
    pub fn find(needed: &[Binary]) -> Result<Self, AssetsError> {
        match env::var_os(ASSETS_VARIABLE).filter(|value| !value.is_empty()) {
            Some(folder) => Self::in_folder(Path::new(&folder), needed),
            None => Ok(Self { folder: build::ensure()? }),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incomplete_folder_is_named_with_what_it_lacks() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("etcd"), "").unwrap();
        let error = Assets::in_folder(folder.path(), &[Binary::Etcd, Binary::ApiServer]).unwrap_err().to_string();
        assert!(error.contains("kube-apiserver") && error.contains(&*folder.path().to_string_lossy()), "{error}");
        assert!(Assets::in_folder(folder.path(), &[Binary::Etcd]).is_ok());
    }
}
