//! The shared libraries of programs that are not static.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

/// The libraries that the dynamic linker loads for a program, and itself. None for a static program.
pub(crate) fn of(program: &Path) -> Result<BTreeSet<PathBuf>> {
    let output = Command::new("ldd").arg(program).output().context("cannot start ldd")?;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if is_static(&out) || is_static(&err) {
        return Ok(BTreeSet::new());
    }
    if !output.status.success() {
        bail!("ldd {} failed: {}", program.display(), err.trim());
    }
    read(&out)
}

fn is_static(said: &str) -> bool {
    said.contains("statically linked") || said.contains("not a dynamic executable")
}

/// The paths in what ldd prints: `libc.so.6 => /lib/libc.so.6 (0x7f)`, or a path alone. The kernel's own has none.
fn read(printed: &str) -> Result<BTreeSet<PathBuf>> {
    let mut libraries = BTreeSet::new();
    for line in printed.lines().map(str::trim) {
        if line.ends_with("not found") {
            bail!("a library is missing: {line}");
        }
        let path = line.rsplit("=> ").next().unwrap_or_default().split(" (").next().unwrap_or_default();
        if path.starts_with('/') {
            libraries.insert(PathBuf::from(path));
        }
    }
    Ok(libraries)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    #[test]
    fn paths_are_libraries_and_the_kernels_own_is_none() {
        let printed = "\tlinux-vdso.so.1 (0x7ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x7f)\n\t/lib64/ld-linux-x86-64.so.2 (0x7f)\n";
        let expected = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from);
        assert_eq!(read(printed).unwrap(), BTreeSet::from(expected));
        assert!(read("\tlibz.so.1 => not found").unwrap_err().to_string().contains("libz.so.1"));
        assert!(is_static("\tstatically linked") && is_static("not a dynamic executable") && !is_static(printed));
    }
}
