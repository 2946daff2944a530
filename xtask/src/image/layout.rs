//! An image layout as the Open Container Initiative describes it: blobs by their digest, and an index.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use flate2::Compression;
use oci_spec::image::{
    Arch, ConfigBuilder, Descriptor, DescriptorBuilder, HistoryBuilder, ImageConfigurationBuilder, ImageIndexBuilder,
    ImageManifestBuilder, MediaType, Os, PlatformBuilder, RootFsBuilder, Sha256Digest,
};
use serde::Serialize;

use super::{
    digest::{Digest, Digesting},
    tree::Tree,
};
use crate::commit::Commit;

/// The user and the group of the programs. They own no file.
pub(crate) const USER: &str = "65532:65532";

/// An image of one platform.
pub(crate) struct Image<'a> {
    /// Its name without a tag.
    pub(crate) name: &'a str,
    /// The program that it starts.
    pub(crate) program: &'a str,
    /// One sentence.
    pub(crate) description: &'a str,
    pub(crate) architecture: Arch,
    pub(crate) layers: Vec<&'a Layer>,
}

/// A layer in a layout: an archive, compressed.
pub(crate) struct Layer {
    descriptor: Descriptor,
    /// Digest of the archive before it was compressed, in hexadecimal.
    of_archive: String,
}

/// A layout in a folder.
pub(crate) struct Layout {
    folder: PathBuf,
    version: String,
    commit: Commit,
    /// The images of each name, one for each platform.
    images: BTreeMap<String, Vec<Descriptor>>,
}

impl Layout {
    /// An empty one. Deletes the former content of the folder.
    pub(crate) fn new(folder: &Path, version: &str, commit: &Commit) -> Result<Self> {
        if folder.exists() {
            fs::remove_dir_all(folder).with_context(|| format!("cannot empty {}", folder.display()))?;
        }
        let blobs = folder.join("blobs/sha256");
        fs::create_dir_all(&blobs).with_context(|| format!("cannot make {}", blobs.display()))?;
        let (folder, version) = (folder.to_owned(), version.to_owned());
        Ok(Self { folder, version, commit: commit.clone(), images: BTreeMap::new() })
    }

    /// Adds a layer, which images of this layout can share.
    pub(crate) fn layer(&self, tree: &Tree, compression: Compression) -> Result<Layer> {
        // Its name is known at its end.
        let unnamed = self.folder.join("layer");
        let file = File::create(&unnamed).with_context(|| format!("cannot write {}", unnamed.display()))?;
        let mut file = Digesting::new(file);
        let of_archive = tree
            .archive(self.commit.seconds, compression, &mut file)
            .with_context(|| format!("cannot write {}", unnamed.display()))?;
        let (_, digest) = file.finish();
        let path = self.folder.join(blob(&digest));
        fs::rename(&unnamed, &path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Layer { descriptor: descriptor(MediaType::ImageLayerGzip, &digest)?, of_archive })
    }

    /// Adds an image of one platform.
    pub(crate) fn add(&mut self, image: &Image<'_>) -> Result<()> {
        let labels = self.labels(image);
        let config = ConfigBuilder::default()
            .user(USER)
            .entrypoint(vec![format!("/usr/bin/{}", image.program)])
            .env(vec!["PATH=/usr/bin".to_owned(), "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt".to_owned()])
            .working_dir("/")
            .labels(labels.clone())
            .build()?;
        let history =
            HistoryBuilder::default().created(self.commit.time.clone()).created_by("cargo xtask image").build()?;
        let root = RootFsBuilder::default()
            .typ("layers")
            .diff_ids(image.layers.iter().map(|layer| format!("sha256:{}", layer.of_archive)).collect::<Vec<_>>())
            .build()?;
        let configuration = ImageConfigurationBuilder::default()
            .created(self.commit.time.clone())
            .architecture(image.architecture.clone())
            .os(Os::Linux)
            .config(config)
            .rootfs(root)
            .history(vec![history; image.layers.len()])
            .build()?;
        let configuration = self.json(MediaType::ImageConfig, &configuration)?;
        let layers = image.layers.iter().map(|layer| layer.descriptor.clone()).collect::<Vec<_>>();
        let manifest = ImageManifestBuilder::default()
            .schema_version(2_u32)
            .media_type(MediaType::ImageManifest)
            .config(configuration)
            .layers(layers)
            .annotations(labels)
            .build()?;
        let mut descriptor = self.json(MediaType::ImageManifest, &manifest)?;
        let platform = PlatformBuilder::default().architecture(image.architecture.clone()).os(Os::Linux).build()?;
        descriptor.set_platform(Some(platform));
        self.images.entry(image.name.to_owned()).or_default().push(descriptor);
        Ok(())
    }

    /// Writes the index, and returns the references of the images.
    pub(crate) fn finish(self) -> Result<Vec<String>> {
        let (mut named, mut references) = (Vec::new(), Vec::new());
        for (name, platforms) in &self.images {
            let index = ImageIndexBuilder::default()
                .schema_version(2_u32)
                .media_type(MediaType::ImageIndex)
                .manifests(platforms.clone())
                .build()?;
            let mut descriptor = self.json(MediaType::ImageIndex, &index)?;
            let reference = format!("{name}:{}", self.version);
            let annotation = ("org.opencontainers.image.ref.name".to_owned(), reference.clone());
            descriptor.set_annotations(Some(HashMap::from([annotation])));
            named.push(descriptor);
            references.push(reference);
        }
        let index = ImageIndexBuilder::default()
            .schema_version(2_u32)
            .media_type(MediaType::ImageIndex)
            .manifests(named)
            .build()?;
        self.file("index.json", &sorted(&index)?)?;
        self.file("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        Ok(references)
    }

    fn labels(&self, image: &Image<'_>) -> HashMap<String, String> {
        let label = |(name, value): (&str, &str)| (format!("org.opencontainers.image.{name}"), value.to_owned());
        [
            ("title", image.name),
            ("description", image.description),
            ("version", &self.version),
            ("revision", &self.commit.hash),
            ("created", &self.commit.time),
            ("licenses", "Apache-2.0"),
        ]
        .map(label)
        .into()
    }

    fn json(&self, media_type: MediaType, value: &impl Serialize) -> Result<Descriptor> {
        let bytes = sorted(value)?;
        let digest = Digest::of(&bytes[..])?;
        self.file(&blob(&digest), &bytes)?;
        descriptor(media_type, &digest)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.folder.join(name);
        fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Where a blob is in the folder.
fn blob(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex)
}

fn descriptor(media_type: MediaType, digest: &Digest) -> Result<Descriptor> {
    let sha256: Sha256Digest = digest.hex.parse()?;
    Ok(DescriptorBuilder::default().media_type(media_type).digest(sha256).size(digest.size).build()?)
}

/// JSON with sorted members: annotations are in a map without an order.
fn sorted(value: &impl Serialize) -> Result<Vec<u8>> {
    let mut value = serde_json::to_value(value)?;
    value.sort_all_objects();
    Ok(serde_json::to_vec(&value)?)
}
