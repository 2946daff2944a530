//! Images without a container daemon: a root filesystem, and an image layout that skopeo, podman and docker load.

pub(crate) mod digest;
mod layout;
mod libraries;
pub(crate) mod programs;
pub(crate) mod sbom;
pub(crate) mod tree;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use self::{
    layout::{Image, Layer, Layout},
    programs::{Build, PROGRAMS},
    sbom::Resolved,
    tree::Tree,
};
use crate::{commit::Commit, paths, step::step};

/// The name of the image with all programs.
const ALL: &str = "konverge";

/// The image of each drop-in program, by the name of the program. Tools of people have none of their own.
const ALONE: [&str; 5] =
    ["openzro-operator", "vault-rollout-operator", "vault-sync-operator", "zopp-operator", "zopp-server"];

/// Drop-in programs whose originals are at another path of their image. Deployments of the originals name it as their command, so it leads to the program.
const FORMER_PATHS: [(&str, &str); 2] = [("openzro-operator", "manager"), ("vault-sync-operator", "manager")];

/// The version of the workspace, which is that of the images.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Builds the programs for each target and makes the images of them in `into`: `layout`, and `rootfs-ARCHITECTURE` with all programs.
pub(crate) fn run(builds: &[Build], into: &Path) -> Result<()> {
    let commit = Commit::of_work_tree()?;
    for build in builds {
        build.run(&commit)?;
    }
    let mut references = Vec::new();
    step("images", "What is missing is above.", || {
        references = make(builds, &commit, into)?;
        Ok(())
    })?;
    let layout = into.join("layout");
    eprintln!("\nThe images are in {}: {}", layout.display(), references.join(", "));
    eprintln!("  skopeo copy oci:{}:{ALL}:{VERSION} docker://REGISTRY/{ALL}:{VERSION}", layout.display());
    Ok(())
}

/// The folder that images are made in unless another is named.
pub(crate) fn folder() -> PathBuf {
    paths::target().join("image")
}

/// Makes images of programs that are built, and returns their references.
fn make(builds: &[Build], commit: &Commit, into: &Path) -> Result<Vec<String>> {
    let mut layout = Layout::new(&into.join("layout"), VERSION, commit)?;
    for build in builds {
        let parts = Parts::of(build, commit, &layout)?;
        let architecture = build.architecture()?;
        let image = |name, program, description, layers| Image {
            name,
            program,
            description,
            architecture: architecture.clone(),
            layers,
        };
        let base = &parts.base.layer;
        let all = parts.programs.iter().map(|(_, part)| &part.layer);
        let layers = [base].into_iter().chain(all).collect();
        layout.add(&image(ALL, ALL, "Secrets from zopp, to Vault, and rollouts when they change", layers))?;
        for program in PROGRAMS.iter().filter(|program| ALONE.contains(&program.name)) {
            let own = parts.programs.iter().chain(&parts.former).filter(|(name, _)| *name == program.name);
            let layers = [base].into_iter().chain(own.map(|(_, part)| &part.layer)).collect();
            layout.add(&image(program.name, program.name, program.about, layers))?;
        }
        let root = into.join(format!("rootfs-{architecture}"));
        if root.exists() {
            fs::remove_dir_all(&root).with_context(|| format!("cannot empty {}", root.display()))?;
        }
        for part in [&parts.base].into_iter().chain(parts.programs.iter().map(|(_, part)| part)) {
            part.tree.write(&root)?;
        }
    }
    layout.finish()
}

/// The parts that images share: what all need, and each program.
struct Parts {
    base: Part,
    programs: Vec<(&'static str, Part)>,
    /// The links from the [paths of the originals](FORMER_PATHS), by program.
    former: Vec<(&'static str, Part)>,
}

/// Files, and the layer of them.
struct Part {
    tree: Tree,
    layer: Layer,
}

impl Parts {
    fn of(build: &Build, commit: &Commit, layout: &Layout) -> Result<Self> {
        let part = |tree: Tree| -> Result<Part> {
            let layer = layout.layer(&tree, build.compression())?;
            Ok(Part { tree, layer })
        };
        let resolved = Resolved::read(&build.triple())?;
        let mut base = base()?;
        let mut needed = BTreeSet::new();
        for program in &PROGRAMS {
            needed.extend(libraries::of(&build.built(program.name)?)?);
        }
        for library in needed {
            let path = library.display().to_string();
            base.program(path.trim_start_matches('/'), library);
        }
        let mut programs = Vec::new();
        for program in &PROGRAMS {
            let mut tree = Tree::default();
            tree.program(&format!("usr/bin/{}", program.name), build.built(program.name)?);
            let bill = resolved.bill(program.name, program.package, commit)?;
            tree.file(&format!("usr/share/sbom/{}.cdx.json", program.name), bill);
            programs.push((program.name, part(tree)?));
        }
        let mut former = Vec::new();
        for (program, path) in FORMER_PATHS {
            let mut tree = Tree::default();
            tree.link(path, &format!("usr/bin/{program}"));
            former.push((program, part(tree)?));
        }
        Ok(Self { base: part(base)?, programs, former })
    }
}

/// Returns the files of every image: a user, the authorities of the web, and the licence. No shell and no package manager.
fn base() -> Result<Tree> {
    let mut tree = Tree::default();
    tree.file("etc/passwd", "nonroot:x:65532:65532:nonroot:/:/usr/bin/false\n");
    tree.file("etc/group", "nonroot:x:65532:\n");
    tree.file("etc/nsswitch.conf", "hosts: files dns\n");
    tree.file("etc/ssl/certs/ca-certificates.crt", authorities());
    tree.file("usr/share/doc/konverge/LICENSE", fs::read(paths::workspace().join("LICENSE")).context("LICENSE")?);
    // A volume can be mounted here where the root filesystem is read-only.
    tree.folder("tmp", 0o1777);
    Ok(tree)
}

/// The authorities that Mozilla trusts, in PEM, in the version of the lock file.
fn authorities() -> String {
    let mut text = String::new();
    for certificate in webpki_root_certs::TLS_SERVER_ROOT_CERTS {
        let encoded = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, certificate);
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        for line in encoded.as_bytes().chunks(64) {
            text.push_str(&String::from_utf8_lossy(line));
            text.push('\n');
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}

#[cfg(test)]
mod tests;
