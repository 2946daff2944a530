//! Whether the disks have room for what CI writes: without it, whatever test comes last fails, with an error that tells of anything but the disk.

use std::{
    collections::{BTreeMap, HashSet},
    env, fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use crate::{paths, step::step};

const GIB: u64 = 1 << 30;

/// The target folder after CI in a clean clone.
const BUILD: u64 = 11 * GIB;

/// The most that tests have in the folder for temporary files at one time. Images and archives of unoptimised programs take the most.
const TESTS: u64 = 3 * GIB;

/// A folder that CI writes to.
#[derive(Debug, Clone)]
struct Place {
    path: PathBuf,
    /// The bytes that CI adds.
    needed: u64,
    /// The disk that the folder is on, by its number.
    disk: u64,
    /// The bytes that are free on that disk.
    free: u64,
}

/// Fails unless there is room for a build of everything, as far as it is not there yet, and for what the tests write.
pub(crate) fn check() -> Result<()> {
    step("room on the disk", "Make room, or let CARGO_TARGET_DIR or TMPDIR name a folder on another disk.", || {
        let target = paths::target();
        let build = BUILD.saturating_sub(size(&target, &mut HashSet::new()));
        match lack(&[Place::of(target, build)?, Place::of(env::temp_dir(), TESTS)?]) {
            None => Ok(()),
            Some(lack) => bail!("{lack}"),
        }
    })
}

impl Place {
    fn of(path: PathBuf, needed: u64) -> Result<Self> {
        let read = || -> io::Result<(u64, u64)> {
            let space = rustix::fs::statvfs(&path)?;
            Ok((fs::metadata(&path)?.dev(), space.f_bavail.saturating_mul(space.f_frsize)))
        };
        let (disk, free) = read().with_context(|| format!("cannot tell how much is free in {}", path.display()))?;
        Ok(Self { path, needed, disk, free })
    }
}

/// Says which disk has too little room, if one has. Places on one disk share its room.
fn lack(places: &[Place]) -> Option<String> {
    let mut disks = BTreeMap::<_, Vec<_>>::new();
    for place in places {
        disks.entry(place.disk).or_default().push(place);
    }
    disks.into_values().find_map(|places| {
        let needed = places.iter().map(|place| place.needed).sum::<u64>();
        let free = places.iter().map(|place| place.free).min()?;
        let each = places.iter().map(|place| format!("{} in {}", gib(place.needed), place.path.display()));
        let each = each.collect::<Vec<_>>().join(" and ");
        (free < needed).then(|| format!("{} are free, and CI needs {each}", gib(free)))
    })
}

/// The bytes that a folder takes on the disk. Cargo gives some files two names, which count once. A file that is gone in the meantime counts nothing.
fn size(folder: &Path, counted: &mut HashSet<u64>) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let of_entry = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size(&entry.path(), counted),
        Ok(metadata) if metadata.nlink() == 1 || counted.insert(metadata.ino()) => metadata.blocks() * 512,
        _ => 0,
    };
    entries.flatten().map(of_entry).sum()
}

fn gib(bytes: u64) -> String {
    let tenths = bytes * 10 / GIB;
    format!("{}.{} GiB", tenths / 10, tenths % 10)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_disk_must_have_room_for_all_places_on_it() {
        let place = |path: &str, needed, disk, free| Place { path: path.into(), needed, disk, free };
        let too_little = "2.5 GiB are free, and CI needs 2.0 GiB in /w/target and 1.0 GiB in /tmp".to_owned();
        let enough = 3 * GIB;
        for (places, expected) in [
            ([place("/w/target", 2 * GIB, 1, enough), place("/tmp", GIB, 1, enough)], None),
            ([place("/w/target", 2 * GIB, 1, 5 * GIB / 2), place("/tmp", GIB, 1, 5 * GIB / 2)], Some(too_little)),
            // Each has a disk of its own.
            ([place("/w/target", 2 * GIB, 1, 5 * GIB / 2), place("/tmp", GIB, 2, 5 * GIB / 2)], None),
            (
                [place("/w/target", 2 * GIB, 1, enough), place("/tmp", GIB, 2, GIB / 2)],
                Some("0.5 GiB are free, and CI needs 1.0 GiB in /tmp".to_owned()),
            ),
            ([place("/w/target", 0, 1, GIB), place("/tmp", GIB, 1, GIB)], None),
        ] {
            assert_eq!(lack(&places), expected, "{places:?}");
        }
    }

    #[test]
    fn the_size_of_a_folder_is_that_of_all_files_beneath_and_two_names_count_once() {
        let folder = tempfile::tempdir().unwrap();
        let beneath = folder.path().join("a/b");
        fs::create_dir_all(&beneath).unwrap();
        fs::write(beneath.join("file"), vec![7; 1 << 20]).unwrap();
        fs::hard_link(beneath.join("file"), folder.path().join("other name")).unwrap();
        let size = size(folder.path(), &mut HashSet::new());
        assert!((1 << 20..1 << 21).contains(&size), "{size}");
        let place = Place::of(folder.path().to_owned(), GIB).unwrap();
        assert!(place.free > size, "{place:?}");
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let error = Place::of("/none/such".into(), GIB).unwrap_err();
        assert!(format!("{error:#}").starts_with("cannot tell how much is free in /none/such: No such file"));
    }
}
