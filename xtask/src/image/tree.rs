//! Files of an image or a release, and the archive of them.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Write,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use flate2::{Compression, GzBuilder};
use tar::{EntryType, Header};

use super::digest::Digesting;

/// Files and folders by their path without the first slash. Their order is that of the archive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tree(BTreeMap<String, Entry>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    Folder {
        mode: u32,
    },
    File {
        content: Vec<u8>,
    },
    /// A program is as large as all other files together, so it stays on the disk until it is copied from there.
    Program {
        source: PathBuf,
    },
    /// A symbolic link.
    Link {
        target: String,
    },
}

/// Of a file that everybody may read.
const READABLE: u32 = 0o444;

/// Of a program that everybody may run.
const RUNNABLE: u32 = 0o555;

impl Tree {
    /// Adds a file that everybody may read, with the folders above it.
    pub(crate) fn file(&mut self, path: &str, content: impl Into<Vec<u8>>) {
        self.add(path, Entry::File { content: content.into() });
    }

    /// Adds a program that everybody may run, or a library of it: a copy of `source`.
    pub(crate) fn program(&mut self, path: &str, source: PathBuf) {
        self.add(path, Entry::Program { source });
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

    /// Writes the archive, compressed, and returns its digest before it was compressed, in hexadecimal. Everything belongs to root and has the same
    /// time, so equal trees are equal archives.
    pub(crate) fn archive(&self, seconds: u64, compression: Compression, into: impl Write) -> Result<String> {
        // Without a name and a time of its own.
        let compressed = GzBuilder::new().write(into, compression);
        let mut archive = tar::Builder::new(Digesting::new(compressed));
        for (path, entry) in &self.0 {
            let mut header = Header::new_gnu();
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(seconds);
            header.set_size(0);
            match entry {
                Entry::Folder { mode } => {
                    header.set_entry_type(EntryType::Directory);
                    header.set_mode(*mode);
                    archive.append_data(&mut header, format!("{path}/"), &[][..])?;
                }
                Entry::File { content } => {
                    header.set_mode(READABLE);
                    header.set_size(u64::try_from(content.len())?);
                    archive.append_data(&mut header, path, &content[..])?;
                }
                Entry::Program { source } => {
                    let cannot = || format!("cannot add {}", source.display());
                    let program = File::open(source).with_context(cannot)?;
                    header.set_mode(RUNNABLE);
                    header.set_size(program.metadata().with_context(cannot)?.len());
                    archive.append_data(&mut header, path, program).with_context(cannot)?;
                }
                Entry::Link { target } => {
                    header.set_entry_type(EntryType::Symlink);
                    header.set_mode(0o777);
                    archive.append_link(&mut header, path, target)?;
                }
            }
        }
        let (compressed, digest) = archive.into_inner()?.finish();
        compressed.finish()?;
        Ok(digest.hex)
    }

    /// Writes the files into a folder.
    pub(crate) fn write(&self, root: &Path) -> Result<()> {
        for (path, entry) in &self.0 {
            let path = root.join(path);
            let set_mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode));
            let written = match entry {
                Entry::Folder { mode } => fs::create_dir_all(&path).and_then(|()| set_mode(*mode)),
                Entry::File { content } => fs::write(&path, content).and_then(|()| set_mode(READABLE)),
                Entry::Program { source } => fs::copy(source, &path).and_then(|_| set_mode(RUNNABLE)),
                Entry::Link { target } => symlink(target, &path),
            };
            written.with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::image::digest::Digest;

    /// A folder with a program.
    fn program() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("built");
        fs::write(&program, "program").unwrap();
        (folder, program)
    }

    #[test]
    fn equal_trees_are_equal_archives_whatever_the_order_they_were_made_in() {
        let (_folder, program) = program();
        let (mut one, mut other) = (Tree::default(), Tree::default());
        one.file("etc/passwd", "x");
        one.program("usr/bin/a", program.clone());
        other.program("usr/bin/a", program);
        other.file("etc/passwd", "x");
        let archive = |tree: &Tree| {
            let mut bytes = Vec::new();
            let digest = tree.archive(7, Compression::best(), &mut bytes).unwrap();
            (bytes, digest)
        };
        assert_eq!(archive(&one), archive(&other));
    }

    #[test]
    fn an_archive_holds_what_the_tree_holds_as_root_and_of_one_time() {
        let (_folder, program) = program();
        let mut tree = Tree::default();
        tree.folder("tmp", 0o1777);
        tree.program("usr/bin/a", program);
        tree.link("manager", "usr/bin/a");
        let mut bytes = Vec::new();
        let digest = tree.archive(7, Compression::best(), &mut bytes).unwrap();
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut unpacked).unwrap();
        assert_eq!(digest, Digest::of(&unpacked[..]).unwrap().hex);
        let entries: Vec<_> = tar::Archive::new(&unpacked[..])
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let header = entry.header();
                assert_eq!((header.uid().unwrap(), header.gid().unwrap(), header.mtime().unwrap()), (0, 0, 7));
                (entry.path().unwrap().display().to_string(), header.mode().unwrap(), header.size().unwrap())
            })
            .collect();
        let expected = [
            ("manager", 0o777, 0),
            ("tmp/", 0o1777, 0),
            ("usr/", 0o755, 0),
            ("usr/bin/", 0o755, 0),
            ("usr/bin/a", 0o555, 7),
        ];
        assert_eq!(entries, expected.map(|(path, mode, size)| (path.to_owned(), mode, size)));
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let mut tree = Tree::default();
        tree.program("usr/bin/a", "/none/such".into());
        let error = tree.archive(7, Compression::none(), std::io::sink()).unwrap_err();
        assert!(format!("{error:#}").starts_with("cannot add /none/such: No such file"), "{error:#}");
    }
}
