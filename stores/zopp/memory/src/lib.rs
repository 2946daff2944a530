//! Keeps the memory of a process with keys out of core dumps and swap.
//!
//! [`protect`] is called once, at the start of a program. It is best effort: a system that does not allow a part of it leaves that part
//! out, and [`Protection`] says so.
//!
//! ```
//! let protection = konverge_zopp_memory::protect();
//! println!("{protection}");
//! ```
//!
//! # Guarantees
//! - On Linux the process is not dumpable: no core file, no pipe to a crash handler, and no other process of the same user can read its
//!   memory (`ptrace(2)`, `/proc/PID/mem`). Elsewhere the limit for core files is 0.
//! - Memory is locked only if the system sets no limit to that. Under a limit, a later allocation would fail and end the process.
//! - A command that replaces this process by `execve(2)` inherits neither, so `zopp run` changes nothing for its command on Linux.
//!
//! # What it does not do
//! It protects from neither root nor a hypervisor, and hibernation writes locked memory to disk.

use std::fmt;

/// The protection that the system allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Protection {
    /// Why core dumps are still possible; `None` if they are off.
    pub dumps: Option<String>,
    /// Whether memory can be swapped out.
    pub swap: Swap,
}

/// Whether memory can be swapped out.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Swap {
    /// Memory is locked.
    Locked,
    /// The limit for locked memory, in bytes, would end the process sooner or later.
    Limited(u64),
    /// The system refused, or has no such call.
    Refused(String),
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.dumps {
            None => write!(f, "core dumps are off; ")?,
            Some(why) => write!(f, "core dumps are possible ({why}); ")?,
        }
        match &self.swap {
            Swap::Locked => write!(f, "memory is locked"),
            Swap::Limited(bytes) => write!(
                f,
                "memory can be swapped out (the limit for locked memory is {bytes} bytes; allow \"unlimited\", or the capability IPC_LOCK, or \
                 turn swap off)"
            ),
            Swap::Refused(why) => write!(f, "memory can be swapped out ({why})"),
        }
    }
}

/// Turns core dumps off and locks the memory of this process, as far as the system allows it.
pub fn protect() -> Protection {
    Protection { dumps: system::refuse_dumps().err().map(|error| error.to_string()), swap: system::lock() }
}

#[cfg(target_os = "linux")]
mod system {
    use rustix::{
        io,
        mm::{MlockAllFlags, mlockall},
        process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit},
        thread::{CapabilitySet, capabilities},
    };

    use super::Swap;

    /// Not by a limit: the kernel does not apply that of core files to a dump that goes into a pipe. The command of `zopp run` is
    /// dumpable again, because `execve(2)` sets that anew.
    pub(super) fn refuse_dumps() -> io::Result<()> {
        set_dumpable_behavior(DumpableBehavior::NotDumpable)
    }

    pub(super) fn lock() -> Swap {
        if let Some(bytes) = limit() {
            return Swap::Limited(bytes);
        }
        // Memory that is only reserved, such as stacks of threads, is locked once it is used.
        match mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT) {
            Ok(()) => Swap::Locked,
            Err(error) => Swap::Refused(error.to_string()),
        }
    }

    /// The limit that would count; `None` if there is none. A lower one that this process may lift is lifted.
    fn limit() -> Option<u64> {
        let is_privileged = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
        let Rlimit { current, maximum } = getrlimit(Resource::Memlock);
        let bytes = current.filter(|_| !is_privileged)?;
        let lifted = maximum.is_none() && setrlimit(Resource::Memlock, Rlimit { current: None, maximum }).is_ok();
        (!lifted).then_some(bytes)
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use rustix::{
        io,
        process::{Resource, Rlimit, getrlimit, setrlimit},
    };

    use super::Swap;

    pub(super) fn refuse_dumps() -> io::Result<()> {
        let maximum = getrlimit(Resource::Core).maximum;
        setrlimit(Resource::Core, Rlimit { current: Some(0), maximum })
    }

    pub(super) fn lock() -> Swap {
        Swap::Refused("this system cannot lock the memory of a whole process".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_says_what_is_left_open_and_what_helps() {
        let sentence = |dumps: Option<&str>, swap| Protection { dumps: dumps.map(str::to_owned), swap }.to_string();
        assert_eq!(sentence(None, Swap::Locked), "core dumps are off; memory is locked");
        let limited = sentence(None, Swap::Limited(65536));
        assert!(limited.contains("65536 bytes") && limited.contains("IPC_LOCK"), "{limited}");
        assert_eq!(
            sentence(Some("denied"), Swap::Refused("no such call".to_owned())),
            "core dumps are possible (denied); memory can be swapped out (no such call)"
        );
    }
}
