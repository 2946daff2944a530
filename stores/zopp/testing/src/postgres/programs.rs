//! Where this machine has the programs of a PostgreSQL server.
//!
//! `xtask` compiles this file too, so that setup looks where tests look; hence nothing here needs another crate.

use std::{env, fs, path::PathBuf};

/// Names the folder of `postgres` and `initdb`, where they are in no usual place.
pub(crate) const POSTGRES_BIN_VARIABLE: &str = "KONVERGE_POSTGRES_BIN";
/// How to get them.
pub(crate) const INSTALL: &str = "apt-get install -y --no-install-recommends postgresql";
/// Where Debian's packages put each version, and where other systems put the one they have.
const DEBIAN: &str = "/usr/lib/postgresql";
const USUAL: [&str; 4] = ["/usr/bin", "/usr/local/bin", "/usr/local/pgsql/bin", "/opt/homebrew/bin"];

/// The folder of the programs, or a text that says what to do.
pub(crate) fn find() -> Result<PathBuf, String> {
    let named = env::var_os(POSTGRES_BIN_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    let mut versions: Vec<PathBuf> = fs::read_dir(DEBIAN)
        .map(|entries| entries.filter_map(Result::ok).map(|entry| entry.path().join("bin")).collect())
        .unwrap_or_default();
    versions.sort();
    let places = named.into_iter().chain(versions.into_iter().rev()).chain(USUAL.map(PathBuf::from));
    let has_programs = |place: &PathBuf| ["postgres", "initdb"].iter().all(|name| place.join(name).is_file());
    places.into_iter().find(has_programs).ok_or_else(|| {
        format!(
            "no PostgreSQL server on this machine, which the tests of zopp-server need: install it (Debian, as root: {INSTALL}), \
             or name the folder of postgres and initdb in {POSTGRES_BIN_VARIABLE}"
        )
    })
}
