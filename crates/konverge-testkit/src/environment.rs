//! The variables by which a run is told what to use, and where what takes minutes to make is kept.
//!
//! `xtask` compiles this file too, so that there is one rule and not two that drift apart; hence nothing here needs another crate.

use std::{env, path::PathBuf};

/// Names a kubeconfig of a cluster to use instead of starting one.
pub(crate) const KUBECONFIG_VARIABLE: &str = "KONVERGE_TEST_KUBECONFIG";

/// Names the run that what is made in a named cluster belongs to, where several processes are one run.
pub(crate) const RUN_VARIABLE: &str = "KONVERGE_TEST_RUN";

/// The variable's value; an empty one is as good as none.
pub(crate) fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// The cache shared by all clones: `$KONVERGE_CACHE`, else `$XDG_CACHE_HOME/konverge`, else `~/.cache/konverge`.
pub(crate) fn cache() -> Option<PathBuf> {
    variable("KONVERGE_CACHE")
        .or_else(|| variable("XDG_CACHE_HOME").map(|path| path.join("konverge")))
        .or_else(|| variable("HOME").map(|path| path.join(".cache/konverge")))
}
