//! SHA-256 of bytes that are written somewhere.

use std::io::{self, Read, Write};

use sha2::{Digest as _, Sha256};

/// A writer that knows the digest of what went through it.
pub(crate) struct Digesting<W> {
    to: W,
    hash: Sha256,
    size: u64,
}

/// The digest of bytes, by which a blob is named, and their number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Digest {
    /// SHA-256 in hexadecimal.
    pub(crate) hex: String,
    /// In bytes.
    pub(crate) size: u64,
}

impl<W: Write> Digesting<W> {
    pub(crate) fn new(to: W) -> Self {
        Self { to, hash: Sha256::new(), size: 0 }
    }

    /// The writer beneath, and the digest of all that was written.
    pub(crate) fn finish(self) -> (W, Digest) {
        let bytes = self.hash.finalize();
        let hex = bytes.iter().fold(String::with_capacity(64), |text, byte| text + &format!("{byte:02x}"));
        (self.to, Digest { hex, size: self.size })
    }
}

impl<W: Write> Write for Digesting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

impl Digest {
    /// The digest of all that can be read.
    pub(crate) fn of(mut content: impl Read) -> io::Result<Self> {
        let mut digesting = Digesting::new(io::sink());
        io::copy(&mut content, &mut digesting)?;
        Ok(digesting.finish().1)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_in_pieces_has_the_digest_of_the_whole() {
        let mut digesting = Digesting::new(Vec::new());
        digesting.write_all(b"a").unwrap();
        digesting.write_all(b"bc").unwrap();
        let (written, digest) = digesting.finish();
        assert_eq!(written, b"abc");
        // The example of FIPS 180-2.
        let hex = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad".to_owned();
        assert_eq!(digest, Digest { hex, size: 3 });
        assert_eq!(Digest::of(&b"abc"[..]).unwrap(), digest);
    }
}
