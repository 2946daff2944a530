//! JSON that leaves no copy of a value behind.

use std::io;

use konverge_core::SecretValue;
use serde::{Serialize, Serializer};

/// Writes an object of texts in the given order.
pub(crate) fn object(values: &[(&str, &str)]) -> SecretValue {
    struct Object<'a>(&'a [(&'a str, &'a str)]);

    impl Serialize for Object<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_map(self.0.iter().copied())
        }
    }

    write(&Object(values))
}

/// Writes a value whose serialisation cannot fail. A buffer that grew would leave copies behind, so the length is counted first.
pub(crate) fn write(value: &impl Serialize) -> SecretValue {
    let mut length = Length(0);
    // Neither texts nor a writer into memory can fail.
    let _ = serde_json::to_writer(&mut length, value);
    let mut text = Vec::with_capacity(length.0);
    let _ = serde_json::to_writer(&mut text, value);
    SecretValue::new(text)
}

/// Counts what is written.
struct Length(usize);

impl io::Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
