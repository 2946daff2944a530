//! The allocator of glibc, made to give memory back.
//!
//! glibc gives large blocks to the system as soon as they are free, but raises its notion of "large" with each such block, up to 32 MiB. From then on
//! the heap of each thread keeps what a list or a value of some megabytes took. A server that met many of them once would keep twice their memory,
//! and never give it back where memory is locked.

/// Keeps blocks of 256 KiB and more large, by starting this program once more with a variable that only the start can set. Called before any thread is
/// started. Does nothing where the variable is set already, or where another allocator is in use.
pub fn return_large_blocks() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    start_again("MALLOC_MMAP_THRESHOLD_", "262144");
}

/// Replaces this process by the same program with the same arguments, and one more variable. If that fails, it goes on as it is.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn start_again(name: &str, value: &str) {
    use std::{env, os::unix::process::CommandExt, process::Command};

    if env::var_os(name).is_some() {
        return;
    }
    let Ok(program) = env::current_exe() else { return };
    let mut arguments = env::args_os();
    let mut again = Command::new(program);
    if let Some(called) = arguments.next() {
        again.arg0(called);
    }
    let error = again.args(arguments).env(name, value).exec();
    eprintln!("zopp-server: cannot start anew with {name}={value}: {error}; it may keep more memory than it needs");
}
