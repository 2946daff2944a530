//! The files of a release: archives, the chart, checksums, and a manifest for krew.

use std::{
    fmt::Write,
    fs::{self, File},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use flate2::Compression;
use oci_spec::image::Arch;

use crate::{
    commit::Commit,
    image::{
        VERSION,
        digest::{Digest, Digesting},
        programs::{Build, PROGRAMS},
        sbom::Resolved,
        tree::Tree,
    },
    paths,
    step::{cargo, run as run_step, step},
};

/// The plugin of kubectl, which has an archive of its own.
const PLUGIN: &str = "kubectl-konverge";

/// Texts that each archive has beside the programs.
const TEXTS: [&str; 4] = ["CHANGELOG.md", "LICENSE", "README.md", "SECURITY.md"];

/// A file of a release.
struct Written {
    name: String,
    digest: String,
}

/// Builds the programs for each target and writes the files of a release into a folder.
pub(crate) fn run(builds: &[Build], url: Option<&str>, into: &Path) -> Result<()> {
    let commit = Commit::of_work_tree()?;
    for build in builds {
        build.run(&commit)?;
    }
    let pages = into.join("pages");
    let mut write = cargo(["run", "--quiet", "--package", "konverge-cli", "--example", "pages", "--", "--into"]);
    commit.tell(write.arg(&pages));
    run_step("man pages and completions", write, "What failed, and why, is above.")?;
    step("archives", "What is missing is above.", || make(builds, &commit, &pages, url, into).map(drop))?;
    eprintln!("\nThe files are in {}. To check them there: sha256sum --check SHA256SUMS", into.display());
    Ok(())
}

/// The folder of the files unless another is named.
pub(crate) fn folder() -> PathBuf {
    paths::built("dist", "")
}

/// Writes the files for programs that are built, and returns the names and digests.
fn make(builds: &[Build], commit: &Commit, pages: &Path, url: Option<&str>, into: &Path) -> Result<Vec<Written>> {
    fs::create_dir_all(into).with_context(|| format!("cannot make {}", into.display()))?;
    let mut written = Vec::new();
    let mut plugins = Vec::new();
    for build in builds {
        let machine = format!("linux-{}", build.architecture()?);
        let name = format!("konverge-{VERSION}-{machine}.tar.gz");
        let compression = build.compression();
        written.push(archive(&programs(build, commit, pages)?, &name, commit, compression, into)?);
        let plugin =
            archive(&plugin(build)?, &format!("{PLUGIN}-{VERSION}-{machine}.tar.gz"), commit, compression, into)?;
        plugins.push((build.architecture()?, plugin.name.clone(), plugin.digest.clone()));
        written.push(plugin);
    }
    written.push(archive(&chart()?, &format!("konverge-{VERSION}.tgz"), commit, Compression::best(), into)?);
    if let Some(url) = url {
        written.push(file("konverge.yaml", krew(&plugins, url).as_bytes(), into)?);
    }
    let mut sums = String::new();
    for one in &written {
        // Writing to a string cannot fail.
        let _ = writeln!(sums, "{}  {}", one.digest, one.name);
    }
    file("SHA256SUMS", sums.as_bytes(), into)?;
    Ok(written)
}

/// All programs with their bills of materials, man pages and completions, in a folder of the release's name.
fn programs(build: &Build, commit: &Commit, pages: &Path) -> Result<Tree> {
    let resolved = Resolved::read(&build.triple())?;
    let root = format!("konverge-{VERSION}");
    let mut tree = Tree::default();
    for program in &PROGRAMS {
        tree.program(&format!("{root}/bin/{}", program.name), build.built(program.name)?);
        let bill = resolved.bill(program.name, program.package, commit)?;
        tree.file(&format!("{root}/sbom/{}.cdx.json", program.name), bill);
    }
    for text in TEXTS {
        tree.file(&format!("{root}/{text}"), read(&paths::workspace().join(text))?);
    }
    for (kind, place) in [("man", "man/man1"), ("completions", "completions")] {
        for (name, content) in files(&pages.join(kind))? {
            tree.file(&format!("{root}/{place}/{name}"), content);
        }
    }
    Ok(tree)
}

/// The plugin as krew unpacks it.
fn plugin(build: &Build) -> Result<Tree> {
    let mut tree = Tree::default();
    tree.program(PLUGIN, build.built(PLUGIN)?);
    tree.file("LICENSE", read(&paths::workspace().join("LICENSE"))?);
    Ok(tree)
}

/// The chart as `helm package` makes it.
fn chart() -> Result<Tree> {
    let mut tree = Tree::default();
    for (name, content) in files(&paths::workspace().join("deploy/charts/konverge"))? {
        tree.file(&format!("konverge/{name}"), content);
    }
    Ok(tree)
}

/// The manifest of the plugin for the index of krew.
fn krew(plugins: &[(Arch, String, String)], url: &str) -> String {
    let mut text = format!(
        "apiVersion: krew.googlecontainertools.github.com/v1alpha2\nkind: Plugin\nmetadata:\n  name: konverge\nspec:\n  version: v{VERSION}\n  \
         shortDescription: Show how synced and rolled objects stand\n  description: |\n    Shows the state of objects that the operators of \
         Konverge work on: Secrets that\n    are filled from zopp or written to Vault, and workloads that restart when a\n    Secret changes. \
         It tells the cause of a failure, and the next step.\n  platforms:\n"
    );
    for (architecture, name, digest) in plugins {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "    - selector:\n        matchLabels:\n          os: linux\n          arch: {architecture}\n      uri: {}/{name}\n      sha256: \
             {digest}\n      bin: {PLUGIN}\n",
            url.trim_end_matches('/')
        );
    }
    text
}

fn archive(tree: &Tree, name: &str, commit: &Commit, compression: Compression, into: &Path) -> Result<Written> {
    let path = into.join(name);
    let cannot = || format!("cannot write {}", path.display());
    let mut file = Digesting::new(File::create(&path).with_context(cannot)?);
    tree.archive(commit.seconds, compression, &mut file).with_context(cannot)?;
    Ok(Written { name: name.to_owned(), digest: file.finish().1.hex })
}

fn file(name: &str, content: &[u8], into: &Path) -> Result<Written> {
    let path = into.join(name);
    fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(Written { name: name.to_owned(), digest: Digest::of(content)?.hex })
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// All files beneath a folder, by their path in it.
fn files(root: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let (mut found, mut folders) = (Vec::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push((path.strip_prefix(root)?.display().to_string(), read(&path)?));
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::written_program::write_program;

    #[test]
    fn the_files_of_a_release_are_whole_and_their_checksums_right() {
        let folder = tempfile::tempdir().unwrap();
        let (pages, into) = (folder.path().join("pages"), folder.path().join("dist"));
        let writer = paths::built("debug", "examples/pages");
        assert!(writer.is_file(), "there is no {}; build it: cargo build --workspace --examples", writer.display());
        assert!(Command::new(&writer).arg("--into").arg(&pages).status().unwrap().success());
        let build = Build { target: None, profile: "dev".to_owned() };
        let commit = Commit { hash: "1a2b3c4d".to_owned(), seconds: 7, time: "1970-01-01T00:00:07Z".to_owned() };
        let written =
            make(std::slice::from_ref(&build), &commit, &pages, Some("https://example.com/v1/"), &into).unwrap();
        let checked = Command::new("sha256sum").args(["--check", "--strict", "SHA256SUMS"]).current_dir(&into).output();
        assert!(checked.as_ref().unwrap().status.success(), "{checked:?}");

        let root = format!("konverge-{VERSION}");
        let unpacked = folder.path().join("unpacked");
        fs::create_dir(&unpacked).unwrap();
        let mut started = Vec::new();
        for one in written.iter().filter(|one| !one.name.ends_with("yaml")) {
            let archive = File::open(into.join(&one.name)).unwrap();
            let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(archive));
            for entry in archive.entries().unwrap() {
                let mut entry = entry.unwrap();
                let path = entry.path().unwrap().into_owned();
                let is_file = entry.header().entry_type().is_file();
                let Some(program) = PROGRAMS.iter().find(|program| is_file && path.ends_with(program.name)) else {
                    entry.unpack_in(&unpacked).unwrap();
                    continue;
                };
                assert_eq!(entry.header().mode().unwrap(), 0o555, "{}", path.display());
                // One at a time: together they take much of a disk.
                let file = folder.path().join("program");
                write_program(&file, entry).unwrap();
                let output = Command::new(&file).arg("--version").output().unwrap();
                assert!(output.status.success() && output.stdout.starts_with(program.name.as_bytes()), "{output:?}");
                fs::remove_file(&file).unwrap();
                started.push(path.display().to_string());
            }
        }
        let mut all: Vec<_> = PROGRAMS.iter().map(|program| format!("{root}/bin/{}", program.name)).collect();
        all.push(PLUGIN.to_owned());
        assert_eq!(started, all);
        for program in &PROGRAMS {
            if program.name == "zopp-k8s" {
                continue; // zopp becomes it, and zopp's pages name its verbs.
            }
            let page = unpacked.join(&root).join(format!("man/man1/{}.1", program.name));
            let page = fs::read_to_string(page).unwrap();
            assert!(page.contains(".SH NAME") && page.contains(".SH OPTIONS"), "{}", program.name);
            for completion in [format!("{}.bash", program.name), format!("_{}", program.name)] {
                assert!(unpacked.join(&root).join("completions").join(&completion).is_file(), "{completion}");
            }
        }
        let completions = unpacked.join(&root).join("completions/kubectl-konverge.bash");
        assert!(fs::read_to_string(completions).unwrap().contains("doctor"));
        for text in
            ["konverge/Chart.yaml", "konverge/templates/rbac.yaml", "konverge/files/crds/vaultpushes.yaml", "LICENSE"]
        {
            assert!(unpacked.join(text).is_file(), "{text}");
        }
        let manifest = fs::read_to_string(into.join("konverge.yaml")).unwrap();
        let plugin = written.iter().find(|one| one.name.starts_with(PLUGIN)).unwrap();
        let expected = format!("uri: https://example.com/v1/{}\n      sha256: {}\n", plugin.name, plugin.digest);
        assert!(manifest.contains(&expected), "{manifest}");
    }
}
