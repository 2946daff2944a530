//! The allocator of glibc, made to give memory back.
//!
//! glibc gives large blocks to the system as soon as they are free, but raises its notion of "large" with each such block, up to 32 MiB. From then on
//! the heap of each thread keeps what a list or a value of some megabytes took. A server that met many of them once would keep twice their memory,
//! and never give it back where memory is locked.
//!
//! That is also why this is no other allocator, such as mimalloc. Those give memory back by `madvise`, which Linux refuses for locked memory. glibc
//! unmaps a large block, which gives locked memory back as well. Only the start of a program can tell glibc what is large, so the program starts
//! itself once more.

/// The variables by which the start of the program configures glibc.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const SETTINGS: [(&str, &str); 2] = [
    // Blocks of 256 KiB and more are large.
    ("MALLOC_MMAP_THRESHOLD_", "262144"),
    // Threads share two heaps. Each heap keeps what it took for small blocks, and there would be eight for each processor.
    ("MALLOC_ARENA_MAX", "2"),
];

/// Keeps large blocks large and heaps few, by starting this program once more with variables that only the start can set. Called before any thread is
/// started. Does nothing where the variables are set already, or where another allocator is in use.
pub fn return_large_blocks() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    start_again();
}

/// Replaces this process by the same program with the same arguments, and the variables that are missing. If that fails, it goes on as it is.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn start_again() {
    use std::{env, os::unix::process::CommandExt, process::Command};

    let missing: Vec<_> = SETTINGS.into_iter().filter(|(name, _)| env::var_os(name).is_none()).collect();
    if missing.is_empty() {
        return;
    }
    let Ok(program) = env::current_exe() else { return };
    let mut arguments = env::args_os();
    let mut again = Command::new(program);
    if let Some(called) = arguments.next() {
        again.arg0(called);
    }
    let error = again.args(arguments).envs(missing.iter().copied()).exec();
    eprintln!("zopp-server: cannot start anew with {missing:?}: {error}; it may keep more memory than it needs");
}
