//! A crate outside of the workspace, checked against the packages that would be published.
//!
//! The packages stand in the place of the registry, so the check sees the manifests and files of the packages and nothing of the workspace.

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use crate::{
    paths,
    published::{self, Package},
    step::{cargo, program, run},
};

/// Features of the facade that each must compile alone.
const FEATURES: [&str; 9] = ["admission", "cli", "external", "generate", "otlp", "proxy", "remote", "serve", "testing"];

/// Where the crate of the author lies, in the workspace and as a copy in the target folder.
const CRATE: &str = "tests/outside";

/// Packs the published crates, and checks the crate outside with each version of Kubernetes, without features, and with each feature alone. `quick`
/// takes only the newest version, with all features and with none, as each other choice compiles the crates once more.
pub(crate) fn check(quick: bool) -> Result<()> {
    let (manifest, versions) = packed()?;
    let newest = newest(&manifest, &versions)?;
    check_with(cargo([]), &manifest, &all_features(newest), true)?;
    check_with(cargo([]), &manifest, newest, false)?;
    if quick {
        return Ok(());
    }
    for version in versions.iter().filter(|version| *version != newest) {
        check_with(cargo([]), &manifest, &all_features(version), true)?;
    }
    for feature in FEATURES {
        check_with(cargo([]), &manifest, &format!("{newest},{feature}"), false)?;
    }
    Ok(())
}

/// Checks the crate outside, with all features, under the oldest Rust that the published crates state. rustup must have that toolchain.
pub(crate) fn check_oldest_rust() -> Result<()> {
    let oldest = published::oldest_rust()?;
    let (manifest, versions) = packed()?;
    let mut cargo = program(Path::new("cargo"));
    cargo.arg(format!("+{oldest}"));
    eprintln!("Rust {oldest}: `rustup toolchain install {oldest} --profile minimal` brings it.");
    check_with(cargo, &manifest, &all_features(newest(&manifest, &versions)?), true)
}

/// The manifest of the crate outside, which has nothing but the packages, and the versions of Kubernetes that it has features for.
fn packed() -> Result<(PathBuf, Vec<String>)> {
    let place = paths::target().join("outside");
    let packages = pack(&place)?;
    let manifest = install(&place, &packages)?;
    let text = fs::read_to_string(&manifest).with_context(|| manifest.display().to_string())?;
    let versions = versions(&text);
    Ok((manifest, versions))
}

fn newest<'a>(manifest: &Path, versions: &'a [String]) -> Result<&'a str> {
    let newest = versions.last().map(String::as_str);
    newest.with_context(|| format!("{} names no version of Kubernetes", manifest.display()))
}

fn all_features(version: &str) -> String {
    format!("{version},{}", FEATURES.join(","))
}

fn check_with(mut cargo: Command, manifest: &Path, features: &str, all_targets: bool) -> Result<()> {
    cargo.args(["check", "--quiet", "--no-default-features", "--features", features]);
    cargo.arg("--manifest-path").arg(manifest);
    // What the lints have compiled of other people's crates is used again where the features are the same.
    cargo.arg("--target-dir").arg(paths::target());
    if all_targets {
        cargo.arg("--all-targets");
    }
    run(&format!("crate outside with {features}"), cargo, "It has only the published crates: what do they lack?")
}

/// The features that are versions of Kubernetes, oldest first.
fn versions(manifest: &str) -> Vec<String> {
    let named = manifest.lines().filter_map(|line| line.split_once(" = ["));
    let mut versions: Vec<_> = named.map(|(name, _)| name.to_owned()).filter(|name| name.starts_with("v1_")).collect();
    versions.sort();
    versions
}

/// Packs each published crate and unpacks it into the place. Gives names and folders.
fn pack(place: &Path) -> Result<Vec<(String, PathBuf)>> {
    let published = published::packages()?;
    // The check of the crate outside compiles them all at once, which is what cargo would do here one by one.
    let mut package = cargo(["package", "--quiet", "--no-verify", "--allow-dirty"]);
    package.args(published.iter().flat_map(|package| ["--package", &package.name]));
    run("packages of the published crates", package, "Its Cargo.toml lacks what cargo names.")?;

    let folder = place.join("packages");
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => fs::create_dir_all(&folder),
    }
    .with_context(|| folder.display().to_string())?;
    published.into_iter().map(|package| unpack(&folder, package)).collect()
}

/// Unpacks one package into the folder. Gives its name and place.
fn unpack(folder: &Path, Package { name, version, .. }: Package) -> Result<(String, PathBuf)> {
    let file = paths::target().join("package").join(format!("{name}-{version}.crate"));
    let mut tar = program(Path::new("tar"));
    // Files in a package bear a time that is always the same, by which cargo would take a new package for what it has compiled already; `-m`
    // gives them the time of now.
    let status = tar.arg("-xmzf").arg(&file).arg("-C").arg(folder).status().context("cannot start tar")?;
    if !status.success() {
        bail!("cannot unpack {}: {status}", file.display());
    }
    let place = folder.join(format!("{name}-{version}"));
    Ok((name, place))
}

/// Copies the crate beside the packages, and lets them stand for the registry. It begins with the versions of the workspace.
fn install(place: &Path, packages: &[(String, PathBuf)]) -> Result<PathBuf> {
    let (from, to) = (paths::workspace().join(CRATE), place.join("crate"));
    for folder in ["src", "tests"] {
        fs::create_dir_all(to.join(folder)).with_context(|| to.display().to_string())?;
    }
    for file in ["src/lib.rs", "src/main.rs", "tests/definition.rs"] {
        fs::copy(from.join(file), to.join(file)).with_context(|| from.join(file).display().to_string())?;
    }
    let lock = paths::workspace().join("Cargo.lock");
    fs::copy(&lock, to.join("Cargo.lock")).with_context(|| lock.display().to_string())?;
    let mut manifest = fs::read_to_string(from.join("Cargo.toml")).context(CRATE)?;
    manifest.push_str("\n[patch.crates-io]\n");
    for (name, folder) in packages {
        // Writing to a string cannot fail.
        let _ = writeln!(manifest, "{name} = {{ path = '{}' }}", folder.display());
    }
    let path = to.join("Cargo.toml");
    fs::write(&path, manifest).with_context(|| path.display().to_string())?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_the_manifest() {
        let manifest = "[features]\notlp = [\"konverge/otlp\"]\nv1_34 = [\"a\"]\nv1_33 = [\"b\"]\nv1_35 = [\"c\"]\n";
        assert_eq!(versions(manifest), ["v1_33", "v1_34", "v1_35"]);
        assert!(versions("").is_empty());
    }
}
