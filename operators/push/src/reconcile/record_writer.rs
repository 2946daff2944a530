//! Writing the record and the finalizer of one object, together with its binding.

use std::sync::Arc;

use jiff::Timestamp;

use super::Parts;
use crate::{
    bindings::{Binding, Bindings},
    error::PushError,
    ledger::{Ledger, LedgerError},
    object::{Kind, ObjectRef},
    record::Record,
};

/// Writes records.
#[derive(Clone)]
pub(super) struct RecordWriter {
    parts: Arc<Parts>,
    ledger: Ledger,
}

impl RecordWriter {
    pub(super) fn new(parts: &Arc<Parts>) -> Self {
        Self { ledger: Ledger::new(parts.client.clone()), parts: Arc::clone(parts) }
    }

    /// Writes the record on the object. Returns the binding as it is after the write, or `None` if the object is gone.
    pub(super) async fn write(
        &self,
        key: &ObjectRef,
        binding: &Binding,
        record: &Record,
    ) -> Result<Option<Binding>, PushError> {
        let bindings = &self.parts.bindings;
        let record = &binding.dated(record, Timestamp::now());
        let mut expected = Expected::new(bindings, key, &binding.uid, record);
        let written = self.ledger.write(key, binding, record).await;
        if written.as_ref().is_err_and(LedgerError::is_altered) {
            bindings.on_object(key, &binding.uid, Binding::altered);
        }
        let Some(version) = written? else { return Ok(None) };
        expected.is_written = true;
        if key.kind == Kind::Secret {
            bindings.renamed_version(&key.secret(&key.name), binding.version(), &version);
        }
        let note = |binding: &mut Binding| {
            binding.finalizer |= record.needs_finalizer();
            binding.recorded(record.clone(), version.clone());
        };
        bindings.on_object(key, &binding.uid, note);
        let mut written = binding.clone();
        written.expect(record);
        note(&mut written);
        Ok(Some(written))
    }

    /// Removes the record and the finalizer from the object.
    pub(super) async fn erase(&self, key: &ObjectRef, uid: &str) -> Result<(), PushError> {
        Ok(self.ledger.erase(key, uid).await?)
    }
}

/// A record that is about to be written. A watch may show it before the response arrives. Without a response, and when the run is cancelled
/// before, the binding expects it no more, and a record that a watch shows is another actor's.
struct Expected<'a> {
    bindings: &'a Bindings,
    key: &'a ObjectRef,
    uid: &'a str,
    record: &'a Record,
    is_written: bool,
}

impl<'a> Expected<'a> {
    fn new(bindings: &'a Bindings, key: &'a ObjectRef, uid: &'a str, record: &'a Record) -> Self {
        bindings.on_object(key, uid, |now| now.expect(record));
        Self { bindings, key, uid, record, is_written: false }
    }
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        if !self.is_written {
            self.bindings.on_object(self.key, self.uid, |now| now.expect_no_more(self.record));
        }
    }
}
