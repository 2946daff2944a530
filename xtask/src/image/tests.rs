//! Images of the programs that this machine has built, unpacked and run.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::{
    collections::BTreeMap,
    env,
    fs::File,
    os::unix::fs::{MetadataExt, PermissionsExt},
    process::Command,
};

use serde_json::Value;

use super::{digest::Digest, *};

/// The layout in a folder.
struct Unpacked<'a>(&'a Path);

impl Unpacked<'_> {
    /// The file of a blob, whose content is as the descriptor says.
    fn blob(&self, descriptor: &Value) -> PathBuf {
        let hex = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap().to_owned();
        let path = self.0.join("blobs/sha256").join(&hex);
        let expected = Digest { hex, size: descriptor["size"].as_u64().unwrap() };
        assert_eq!(Digest::of(File::open(&path).unwrap()).unwrap(), expected, "a blob is named by its digest");
        path
    }

    fn json(&self, descriptor: &Value) -> Value {
        serde_json::from_slice(&fs::read(self.blob(descriptor)).unwrap()).unwrap()
    }

    /// The manifests of one platform by the names of the images.
    fn manifests(&self) -> BTreeMap<String, Value> {
        let index: Value = serde_json::from_slice(&fs::read(self.0.join("index.json")).unwrap()).unwrap();
        let mut manifests = BTreeMap::new();
        for named in index["manifests"].as_array().unwrap() {
            let name = named["annotations"]["org.opencontainers.image.ref.name"].as_str().unwrap();
            manifests.insert(name.to_owned(), self.json(&self.json(named)["manifests"][0]));
        }
        manifests
    }

    /// Unpacks the layers of an image as a runtime does. Another process writes the files, so that what is started of them is open nowhere
    /// (`write_program` says why).
    fn unpack(&self, manifest: &Value, root: &Path) {
        fs::create_dir(root).unwrap();
        for layer in manifest["layers"].as_array().unwrap() {
            let mut tar = Command::new("tar");
            tar.args(["--extract", "--gzip", "--preserve-permissions", "--no-same-owner", "--directory"]).arg(root);
            let output = tar.arg("--file").arg(self.blob(layer)).output().unwrap();
            assert!(output.status.success(), "{output:?}");
        }
    }

    /// Compares a root filesystem with the layers of an image, without unpacking them.
    fn is_in(&self, manifest: &Value, root: &Path) {
        let mut paths = BTreeSet::new();
        for layer in manifest["layers"].as_array().unwrap() {
            let layer = flate2::read::GzDecoder::new(File::open(self.blob(layer)).unwrap());
            for entry in tar::Archive::new(layer).entries().unwrap() {
                let entry = entry.unwrap();
                let path = root.join(entry.path().unwrap());
                let (there, expected) = (fs::metadata(&path).unwrap(), entry.header());
                assert_eq!(there.mode() & 0o7777, expected.mode().unwrap(), "{}", path.display());
                assert_eq!(there.is_file(), expected.entry_type().is_file(), "{}", path.display());
                if there.is_file() {
                    let content = Digest::of(File::open(&path).unwrap()).unwrap();
                    assert_eq!(content, Digest::of(entry).unwrap(), "{}", path.display());
                }
                paths.insert(path);
            }
        }
        assert_eq!(number_of_entries(root), paths.len(), "{} has what the image has not", root.display());
    }
}

/// The files and the folders beneath a folder.
fn number_of_entries(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| 1 + if path.is_dir() { number_of_entries(&path) } else { 0 }).sum()
}

/// A build that this machine can run.
struct Runnable {
    build: Build,
    /// The emulator of the architecture, if it is not this machine's.
    emulator: Option<PathBuf>,
}

/// The build for this machine, and the static ones for which this machine has the programs and can run them.
fn runnable() -> Vec<Runnable> {
    let profile = || "dev".to_owned();
    let mut found = vec![Runnable { build: Build { target: None, profile: profile() }, emulator: None }];
    for architecture in ["x86_64", "aarch64"] {
        let build = Build { target: Some(format!("{architecture}-unknown-linux-musl")), profile: profile() };
        let name = format!("qemu-{architecture}-static");
        let path = env::var_os("PATH").unwrap();
        let emulator = env::split_paths(&path).map(|folder| folder.join(&name)).find(|emulator| emulator.exists());
        let is_ours = architecture == env::consts::ARCH;
        if !PROGRAMS.iter().all(|program| build.program(program.name).exists()) {
            eprintln!(
                "{} is left out: its programs were not built by `cargo xtask image --profile dev`",
                build.triple()
            );
        } else if !is_ours && emulator.is_none() {
            eprintln!("{} is left out: there is no {name} (Debian: qemu-user-static)", build.triple());
        } else {
            found.push(Runnable { build, emulator: emulator.filter(|_| !is_ours) });
        }
    }
    found
}

impl Runnable {
    /// Runs a program of an unpacked image without leaving this machine's root: a dynamic one by the linker and the libraries of the image.
    fn version(&self, root: &Path, program: &str) -> String {
        let path = root.join(program.trim_start_matches('/'));
        let libraries = libraries::of(&path).unwrap();
        let of_image = |library: &Path| root.join(library.strip_prefix("/").unwrap());
        let linker = libraries.iter().find(|library| library.display().to_string().contains("/ld-"));
        let mut command = match (&self.emulator, linker) {
            (Some(emulator), _) => {
                let mut command = Command::new(emulator);
                command.arg(&path);
                command
            }
            (None, None) => Command::new(&path),
            (None, Some(linker)) => {
                let folders: BTreeSet<_> =
                    libraries.iter().map(|library| of_image(library.parent().unwrap())).collect();
                let folders: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
                let mut command = Command::new(of_image(linker));
                command.args(["--inhibit-cache", "--library-path", &folders.join(":")]).arg(&path);
                command
            }
        };
        let output = command.env_clear().arg("--version").output().unwrap();
        assert!(output.status.success(), "{program} for {}: {output:?}", self.build.triple());
        String::from_utf8(output.stdout).unwrap()
    }
}

#[test]
fn each_image_holds_its_programs_which_run_and_nothing_that_others_could_start() {
    for runnable in runnable() {
        images_are_whole(&runnable);
    }
}

fn images_are_whole(runnable: &Runnable) {
    let build = &runnable.build;
    let architecture = build.architecture().unwrap();
    let commit = Commit { hash: "1a2b3c4d".to_owned(), seconds: 7, time: "1970-01-01T00:00:07Z".to_owned() };
    let folder = tempfile::tempdir().unwrap();
    let references = make(std::slice::from_ref(build), &commit, folder.path()).unwrap();
    assert_eq!(references.len(), 1 + ALONE.len());
    let layout_folder = folder.path().join("layout");
    let layout = Unpacked(&layout_folder);
    let manifests = layout.manifests();
    assert_eq!(manifests.keys().cloned().collect::<Vec<_>>(), references);
    let rootfs = folder.path().join(format!("rootfs-{architecture}"));
    layout.is_in(&manifests[&format!("{ALL}:{VERSION}")], &rootfs);
    // Unoptimised programs take much of a disk, so there is one copy of them beside the layout at a time.
    fs::remove_dir_all(rootfs).unwrap();
    for (reference, manifest) in manifests {
        let name = reference.strip_suffix(&format!(":{VERSION}")).unwrap();
        let configuration = layout.json(&manifest["config"]);
        let config = &configuration["config"];
        assert_eq!((&config["User"], configuration["os"].as_str()), (&Value::from(layout::USER), Some("linux")));
        assert_eq!(configuration["architecture"], architecture.to_string());
        assert_eq!(config["Entrypoint"][0], format!("/usr/bin/{name}"));
        assert_eq!(config["Labels"]["org.opencontainers.image.revision"], "1a2b3c4d");
        assert_eq!(
            configuration["rootfs"]["diff_ids"].as_array().unwrap().len(),
            manifest["layers"].as_array().unwrap().len()
        );

        let root = folder.path().join(name);
        layout.unpack(&manifest, &root);
        let mut held: Vec<_> = fs::read_dir(root.join("usr/bin"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        held.sort();
        let all: Vec<_> = PROGRAMS.iter().map(|program| program.name).collect();
        assert_eq!(held, if name == ALL { all } else { vec![name] }, "{reference}");
        for program in held {
            assert!(
                runnable.version(&root, &format!("usr/bin/{program}")).starts_with(&format!("{program} ")),
                "{program}"
            );
            let mode = fs::metadata(root.join("usr/bin").join(&program)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o555, "{program}");
            let bill: Value =
                serde_json::from_slice(&fs::read(root.join(format!("usr/share/sbom/{program}.cdx.json"))).unwrap())
                    .unwrap();
            assert!(bill["components"].as_array().unwrap().iter().any(|one| one["name"] == "clap"), "{program}");
        }
        // The command of the original's Deployment.
        let former = FORMER_PATHS.iter().find(|(program, _)| *program == name);
        assert_eq!(root.join("manager").exists(), former.is_some(), "{reference}");
        if let Some((program, path)) = former {
            assert!(runnable.version(&root, path).starts_with(&format!("{program} ")), "{program}");
        }
        assert!(!root.join("bin").exists(), "no shell");
        let trusted = fs::read_to_string(root.join("etc/ssl/certs/ca-certificates.crt")).unwrap();
        assert!(trusted.matches("BEGIN CERTIFICATE").count() > 50);
        fs::remove_dir_all(root).unwrap();
    }
}

#[test]
fn the_same_programs_are_the_same_images() {
    let build = Build { target: None, profile: "dev".to_owned() };
    let commit = Commit { hash: "1a2b3c4d".to_owned(), seconds: 7, time: "1970-01-01T00:00:07Z".to_owned() };
    let index = || {
        let folder = tempfile::tempdir().unwrap();
        let mut layout = Layout::new(&folder.path().join("layout"), VERSION, &commit).unwrap();
        let base = layout.layer(&base().unwrap(), build.compression()).unwrap();
        let architecture = build.architecture().unwrap();
        layout.add(&Image { name: "a", program: "a", description: "A", architecture, layers: vec![&base] }).unwrap();
        layout.finish().unwrap();
        fs::read(folder.path().join("layout/index.json")).unwrap()
    };
    assert_eq!(index(), index());
}

#[test]
fn the_containerfile_and_the_page_of_releases_name_every_program() {
    let root = paths::workspace();
    let containerfile = fs::read_to_string(root.join("deploy/image/Containerfile")).unwrap();
    let all = containerfile.split("programs=\"").nth(2).and_then(|rest| rest.split('"').next()).unwrap();
    assert_eq!(all.split(' ').collect::<Vec<_>>(), PROGRAMS.map(|program| program.name));
    let toolchain = fs::read_to_string(root.join("rust-toolchain.toml")).unwrap();
    let version = containerfile.split("FROM rust:").nth(1).and_then(|rest| rest.split('-').next()).unwrap();
    assert!(toolchain.contains(&format!("channel = \"{version}")), "{version} is not the toolchain of the workspace");
    let page = fs::read_to_string(root.join("docs/releases.md")).unwrap();
    let row = page.lines().find(|line| line.ends_with("| the one | the one |")).unwrap();
    for name in ALONE {
        assert!(row.contains(&format!("`{name}`")), "{name} is missing in {row}");
    }
}
