//! Files of an image, and the archive that a layer is.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use anyhow::{Context, Result};
use flate2::{Compression, GzBuilder};
use sha2::{Digest, Sha256};
use tar::{EntryType, Header};

/// Files and folders by their path without the first slash. Their order is that of the archive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tree(BTreeMap<String, Entry>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    Folder {
        mode: u32,
    },
    File {
        mode: u32,
        content: Vec<u8>,
    },
    /// A symbolic link.
    Link {
        target: String,
    },
}

/// A layer: its archive, compressed.
#[derive(Debug, Clone)]
pub(crate) struct Layer {
    pub(crate) compressed: Vec<u8>,
    /// Digest of the archive before it was compressed, in hexadecimal.
    pub(crate) of_archive: String,
}

impl Tree {
    /// Adds a file that everybody may read, with the folders above it.
    pub(crate) fn file(&mut self, path: &str, content: impl Into<Vec<u8>>) {
        self.add(path, Entry::File { mode: 0o444, content: content.into() });
    }

    /// Adds a program that everybody may run.
    pub(crate) fn program(&mut self, path: &str, content: Vec<u8>) {
        self.add(path, Entry::File { mode: 0o555, content });
    }

    /// Adds a symbolic link.
    pub(crate) fn link(&mut self, path: &str, target: &str) {
        self.add(path, Entry::Link { target: target.to_owned() });
    }

    /// Adds a folder.
    pub(crate) fn folder(&mut self, path: &str, mode: u32) {
        self.add(path, Entry::Folder { mode });
    }

    fn add(&mut self, path: &str, entry: Entry) {
        let mut above = path;
        while let Some((folder, _)) = above.rsplit_once('/') {
            self.0.entry(folder.to_owned()).or_insert(Entry::Folder { mode: 0o755 });
            above = folder;
        }
        self.0.insert(path.to_owned(), entry);
    }

    /// The layer. Everything belongs to root and has the same time, so equal trees are equal layers.
    pub(crate) fn layer(&self, seconds: u64, compression: Compression) -> Result<Layer> {
        let mut archive = tar::Builder::new(Vec::new());
        for (path, entry) in &self.0 {
            let mut header = Header::new_gnu();
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(seconds);
            let (kind, mode, content, path) = match entry {
                Entry::Folder { mode } => (EntryType::Directory, *mode, &[][..], format!("{path}/")),
                Entry::File { mode, content } => (EntryType::Regular, *mode, &content[..], path.clone()),
                Entry::Link { .. } => (EntryType::Symlink, 0o777, &[][..], path.clone()),
            };
            header.set_entry_type(kind);
            header.set_mode(mode);
            header.set_size(u64::try_from(content.len())?);
            match entry {
                Entry::Link { target } => archive.append_link(&mut header, path, target)?,
                Entry::Folder { .. } | Entry::File { .. } => archive.append_data(&mut header, path, content)?,
            }
        }
        let archive = archive.into_inner()?;
        // Without a name and a time of its own.
        let mut compressed = GzBuilder::new().write(Vec::new(), compression);
        compressed.write_all(&archive)?;
        Ok(Layer { compressed: compressed.finish()?, of_archive: digest(&archive) })
    }

    /// Writes the files into a folder.
    pub(crate) fn write(&self, root: &Path) -> Result<()> {
        for (path, entry) in &self.0 {
            let path = root.join(path);
            let set_mode = |mode: &u32| fs::set_permissions(&path, fs::Permissions::from_mode(*mode));
            let written = match entry {
                Entry::Folder { mode } => fs::create_dir_all(&path).and_then(|()| set_mode(mode)),
                Entry::File { mode, content } => fs::write(&path, content).and_then(|()| set_mode(mode)),
                Entry::Link { target } => symlink(target, &path),
            };
            written.with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }
}

/// SHA-256 in hexadecimal.
pub(crate) fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::with_capacity(64), |text, byte| text + &format!("{byte:02x}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    #[test]
    fn equal_trees_are_equal_layers_whatever_the_order_they_were_made_in() {
        let (mut one, mut other) = (Tree::default(), Tree::default());
        one.file("etc/passwd", "x");
        one.program("usr/bin/a", vec![1]);
        other.program("usr/bin/a", vec![1]);
        other.file("etc/passwd", "x");
        let (one, other) = (one.layer(7, Compression::best()).unwrap(), other.layer(7, Compression::best()).unwrap());
        assert_eq!((&one.compressed, &one.of_archive), (&other.compressed, &other.of_archive));
        assert_eq!(one.of_archive.len(), 64);
    }

    #[test]
    fn an_archive_holds_what_the_tree_holds_as_root_and_of_one_time() {
        let mut tree = Tree::default();
        tree.folder("tmp", 0o1777);
        tree.program("usr/bin/a", b"program".to_vec());
        let layer = tree.layer(7, Compression::best()).unwrap();
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(&layer.compressed[..]));
        let entries: Vec<_> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let header = entry.header();
                assert_eq!((header.uid().unwrap(), header.gid().unwrap(), header.mtime().unwrap()), (0, 0, 7));
                (entry.path().unwrap().display().to_string(), header.mode().unwrap(), header.size().unwrap())
            })
            .collect();
        let expected = [("tmp/", 0o1777, 0), ("usr/", 0o755, 0), ("usr/bin/", 0o755, 0), ("usr/bin/a", 0o555, 7)];
        assert_eq!(entries, expected.map(|(path, mode, size)| (path.to_owned(), mode, size)));
    }
}
