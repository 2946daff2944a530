//! Remembering in a file.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{Entries, Memory, MemoryError, Remembered};
use crate::FingerprintKey;

/// The layout of the file; another one is refused, not guessed at.
const VERSION: u32 = 1;

/// Remembers in a file that only its owner may read, since the key is in it too. A write replaces the file at once, so that a crash
/// leaves the old one or the new one. One process uses it at a time.
pub struct FileMemory {
    path: PathBuf,
    key: Option<FingerprintKey>,
}

#[derive(Serialize, Deserialize)]
struct Content {
    version: u32,
    key: String,
    entries: Entries,
}

impl Drop for Content {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.key);
    }
}

impl FileMemory {
    /// The file need not exist, its folder must.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), key: None }
    }

    fn failed(&self, act: &'static str) -> impl Fn(io::Error) -> MemoryError + use<> {
        let place = self.path.display().to_string();
        move |source| MemoryError::File { act, place: place.clone(), source }
    }

    fn parse(&self, text: &[u8]) -> Result<Remembered, MemoryError> {
        let unreadable =
            |why: &str| MemoryError::Unreadable { place: self.path.display().to_string(), why: why.to_owned() };
        // The parser's own message may quote the content, and the key is content.
        let mut content: Content =
            serde_json::from_slice(text).map_err(|_| unreadable("it is not the expected JSON"))?;
        if content.version != VERSION {
            return Err(unreadable("it has another version"));
        }
        let bytes = hex::decode(&content.key).map(Zeroizing::new);
        let key = bytes.ok().and_then(|bytes| FingerprintKey::from_slice(&bytes));
        let key = key.ok_or_else(|| unreadable("its key is not 32 bytes in hexadecimal digits"))?;
        Ok(Remembered { key, entries: std::mem::take(&mut content.entries) })
    }
}

impl Memory for FileMemory {
    fn load(&mut self) -> BoxFuture<'_, Result<Remembered, MemoryError>> {
        Box::pin(async {
            let remembered = match tokio::fs::read(&self.path).await.map(Zeroizing::new) {
                Ok(text) => self.parse(&text)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    Remembered { key: FingerprintKey::random()?, entries: Entries::new() }
                }
                Err(error) => return Err(self.failed("read")(error)),
            };
            self.key = Some(remembered.key.clone());
            Ok(remembered)
        })
    }

    fn save<'a>(&'a mut self, entries: &'a Entries) -> BoxFuture<'a, Result<(), MemoryError>> {
        Box::pin(async {
            let key = match &self.key {
                Some(key) => key.clone(),
                None => self.load().await?.key,
            };
            let failed = self.failed("write");
            let content = Content { version: VERSION, key: hex::encode(key.expose()), entries: entries.clone() };
            let path = self.path.clone();
            let written = tokio::task::spawn_blocking(move || replace(&path, &content)).await;
            written.map_err(io::Error::other).and_then(|written| written).map_err(failed)
        })
    }
}

/// Temporary files of `tempfile` are made with mode 0600, and keep it when they take the place of the file.
fn replace(path: &Path, content: &Content) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let text = Zeroizing::new(serde_json::to_vec(content)?);
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(&text)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    // The new name itself is on disk only with the folder.
    std::fs::File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use konverge_core::error::{Classify, ErrorClass};

    use super::*;

    #[tokio::test]
    async fn what_was_saved_is_there_for_the_next_process_and_for_nobody_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("remembered.json");
        let mut first = FileMemory::new(&path);
        let before = first.load().await.unwrap();
        assert!(before.entries.is_empty());
        let entries = Entries::from([("a".to_owned(), "1".to_owned())]);
        first.save(&entries).await.unwrap();
        let after = FileMemory::new(&path).load().await.unwrap();
        assert_eq!(after.entries, entries);
        assert_eq!(after.key.fingerprint(&[b"x"]), before.key.fingerprint(&[b"x"]));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside the file");
    }

    #[tokio::test]
    async fn a_file_that_is_something_else_is_named_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("remembered.json");
        for content in
            ["", "[]", r#"{"version":2,"key":"","entries":{}}"#, r#"{"version":1,"key":"abcd","entries":{}}"#]
        {
            std::fs::write(&path, content).unwrap();
            let error = FileMemory::new(&path).load().await.err().unwrap();
            assert!(matches!(error, MemoryError::Unreadable { .. }), "{error}");
            assert_eq!(error.class(), ErrorClass::Permanent);
            assert!(error.to_string().contains(&*path.to_string_lossy()), "{error}");
            assert!(!error.to_string().contains("abcd"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
        }
    }

    #[tokio::test]
    async fn a_folder_that_is_not_there_is_an_error() {
        let mut memory = FileMemory::new("/nowhere/at/all");
        memory.load().await.unwrap();
        let error = memory.save(&Entries::new()).await.unwrap_err();
        assert!(error.to_string().starts_with("cannot write /nowhere/at/all: "), "{error}");
    }
}
