//! Which program is started.

use std::{env, path::PathBuf};

use konverge_testkit::build::{self, Module, Program};

use super::VaultServerError;

/// Name a Vault or an OpenBao server program to use instead of building one; the first that is set counts.
const VAULT_VARIABLE: &str = "VAULT_BIN";
const BAO_VARIABLE: &str = "BAO_BIN";

/// The program, and the directory with the data that must outlive it.
pub(super) struct Server {
    pub(super) path: PathBuf,
    /// The storage's name in the configuration; it takes a folder as `path`.
    pub(super) persistent: &'static str,
}

const VAULT: &str = "vault";

const BAO: &str = "bao";

/// The version of OpenBao that `go.mod` pins by its commit: the newest that the module proxy has.
const BAO_VERSION: &str = "2.4.0";

/// The program that a variable names, else ours, which is built if it is not in the cache. Blocks while it builds.
pub(super) fn find() -> Result<Server, VaultServerError> {
    // OpenBao has given plain files up, and our Vault is built without the store that both of them have.
    for (variable, persistent) in [(VAULT_VARIABLE, "file"), (BAO_VARIABLE, "raft")] {
        match env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from) {
            Some(path) if path.is_file() => return Ok(Server { path, persistent }),
            Some(path) => return Err(VaultServerError::Missing { variable, path }),
            None => {}
        }
    }
    Ok(Server { path: build::ensure(&vault())?.join(VAULT), persistent: "file" })
}

/// OpenBao's own program, built if it is not in the cache. Blocks while it builds.
pub(super) fn open_bao() -> Result<PathBuf, VaultServerError> {
    Ok(build::ensure(&bao())?.join(BAO))
}

fn vault() -> Module {
    Module {
        name: VAULT,
        announcement:
            "building a Vault server from Go modules. This happens once per machine and takes about five minutes; \
                       VAULT_BIN or BAO_BIN names a program to use instead."
                .to_owned(),
        go_mod: include_str!("../../vault/go.mod"),
        go_sum: include_str!("../../vault/go.sum"),
        sources: &[("main.go", include_str!("../../vault/main.go"))],
        programs: vec![Program { name: VAULT, package: ".".to_owned(), linker: String::new(), tags: "" }],
    }
}

fn bao() -> Module {
    let linker = format!("-X github.com/openbao/openbao/version.fullVersion={BAO_VERSION}");
    Module {
        name: "openbao",
        announcement: format!(
            "building OpenBao {BAO_VERSION} from Go modules. This happens once per machine and takes about ten minutes; \
             nothing but `cargo xtask openbao` needs it, and there BAO_BIN names a program to use instead."
        ),
        go_mod: include_str!("../../openbao/go.mod"),
        go_sum: include_str!("../../openbao/go.sum"),
        sources: &[],
        programs: vec![Program { name: BAO, package: "github.com/openbao/openbao".to_owned(), linker, tags: "" }],
    }
}
