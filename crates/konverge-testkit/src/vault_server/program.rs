//! Which program is started.

use std::path::PathBuf;

use super::VaultServerError;
use crate::{
    build::{self, Module, Program},
    environment,
};

/// Name a Vault or an OpenBao server program to use instead of building one; the first that is set counts.
const VARIABLES: [&str; 2] = ["VAULT_BIN", "BAO_BIN"];

const PROGRAM: &str = "vault";

/// The program that a variable names, else ours, which is built if it is not in the cache. Blocks while it builds.
pub(super) fn find() -> Result<PathBuf, VaultServerError> {
    let named = VARIABLES.iter().find_map(|&name| environment::variable(name).map(|path| (name, path)));
    match named {
        Some((_, path)) if path.is_file() => Ok(path),
        Some((variable, path)) => Err(VaultServerError::Missing { variable, path }),
        None => Ok(build::ensure(&module())?.join(PROGRAM)),
    }
}

fn module() -> Module {
    Module {
        name: "vault",
        announcement:
            "building a Vault server from Go modules. This happens once per machine and takes about five minutes; \
                       VAULT_BIN or BAO_BIN names a program to use instead."
                .to_owned(),
        go_mod: include_str!("../../vault/go.mod"),
        go_sum: include_str!("../../vault/go.sum"),
        sources: &[("main.go", include_str!("../../vault/main.go"))],
        programs: vec![Program { name: PROGRAM, package: ".".to_owned(), linker: String::new() }],
    }
}
