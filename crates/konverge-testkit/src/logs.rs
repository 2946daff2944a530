//! Logs of a run outlive it when a test failed.

use std::{
    fs, io, panic,
    path::{Path, PathBuf},
    sync::{Mutex, Once, PoisonError},
};

/// Folders whose logs are worth keeping.
static LIVE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// From now on a panic anywhere in the process copies the folder's logs away and says where to. A test fails by panicking, and
/// servers that many tests share are not dropped by the one that failed.
pub(crate) fn keep_on_panic(folder: &Path) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            before(info);
            for folder in live().iter() {
                match keep(folder) {
                    Ok(kept) => eprintln!("the logs of the servers are in {}", kept.display()),
                    Err(error) => eprintln!("cannot keep the logs of {}: {error}", folder.display()),
                }
            }
        }));
    });
    live().push(folder.to_owned());
}

/// The run ended well, or its logs are kept already.
pub(crate) fn release(folder: &Path) {
    live().retain(|live| live != folder);
}

fn live() -> std::sync::MutexGuard<'static, Vec<PathBuf>> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn keep(folder: &Path) -> io::Result<PathBuf> {
    let kept = std::env::temp_dir().join("konverge-logs").join(folder.file_name().unwrap_or_default());
    fs::create_dir_all(&kept)?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "log")
            && let Some(name) = path.file_name()
        {
            fs::copy(&path, kept.join(name))?;
        }
    }
    Ok(kept)
}

/// The end of a log, for an error message: its last lines.
pub(crate) fn tail(path: &Path) -> String {
    const LINES: usize = 12;
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}
