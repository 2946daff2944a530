//! A write observer that records its calls.

use std::sync::{Arc, Mutex};

use konverge_apply::{ObjectName, WriteObserver, Writing};
use serde_json::Value;

#[derive(Default)]
pub(super) struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    /// The calls so far.
    pub(super) fn taken(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl WriteObserver for Notes {
    fn begin(&self, object: &ObjectName, api_version: &str) -> Box<dyn Writing> {
        self.0.lock().unwrap().push(format!("{api_version} {object}: begin"));
        Box::new(Note(self.0.clone()))
    }
}

struct Note(Arc<Mutex<Vec<String>>>);

impl Writing for Note {
    fn wrote(self: Box<Self>, object: &Value) {
        let version = object["metadata"]["resourceVersion"].as_str().unwrap();
        self.0.lock().unwrap().push(format!("wrote {version}"));
    }

    fn deleted(self: Box<Self>, uid: Option<&str>) {
        self.0.lock().unwrap().push(format!("deleted {uid:?}"));
    }
}
