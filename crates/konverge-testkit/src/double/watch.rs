//! A watch that says what the test wants, when it wants.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http_body_util::{BodyExt, StreamBody};
use serde::Serialize;
use serde_json::json;
use tokio::sync::watch;

use super::reply::{ReplyBody, reset, status_object};

/// The events of a watch. The test writes them, and each watch that they answer reads them from the beginning. Clones are the same script.
///
/// Guarantees: the stream stays open until [`end`](Self::end) or [`break_off`](Self::break_off), also when the test's handle is gone.
#[derive(Debug, Clone, Default)]
pub struct WatchScript(Arc<watch::Sender<Vec<Piece>>>);

#[derive(Debug, Clone)]
enum Piece {
    Data(Bytes),
    End,
    Break,
}

impl WatchScript {
    /// `ADDED` with the object.
    pub fn added(&self, object: &impl Serialize) {
        self.event("ADDED", object);
    }

    /// `MODIFIED` with the object.
    pub fn modified(&self, object: &impl Serialize) {
        self.event("MODIFIED", object);
    }

    /// `DELETED` with the object.
    pub fn deleted(&self, object: &impl Serialize) {
        self.event("DELETED", object);
    }

    /// `BOOKMARK`: `script.bookmark("v1", "ConfigMap", "12")`.
    pub fn bookmark(&self, api_version: &str, kind: &str, resource_version: &str) {
        let metadata = json!({ "resourceVersion": resource_version });
        self.event("BOOKMARK", &json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata }));
    }

    /// `ERROR` with code 410: the resource version of the watch is too old.
    pub fn expired(&self) {
        self.event("ERROR", &status_object(410, "Expired", "too old resource version"));
    }

    /// Any event. An object that does not serialise breaks the stream off.
    pub fn event(&self, kind: &str, object: &impl Serialize) {
        #[derive(Serialize)]
        struct Event<'a, T> {
            r#type: &'a str,
            object: &'a T,
        }
        match serde_json::to_vec(&Event { r#type: kind, object }) {
            Ok(mut line) => {
                line.push(b'\n');
                self.raw(line);
            }
            Err(_) => self.break_off(),
        }
    }

    /// Bytes as they are, such as half of an event.
    pub fn raw(&self, bytes: impl Into<Bytes>) {
        self.push(Piece::Data(bytes.into()));
    }

    /// The server ends the stream in good order, as it does every few minutes.
    pub fn end(&self) {
        self.push(Piece::End);
    }

    /// The connection breaks.
    pub fn break_off(&self) {
        self.push(Piece::Break);
    }

    fn push(&self, piece: Piece) {
        self.0.send_modify(|pieces| pieces.push(piece));
    }

    pub(super) fn body(&self) -> ReplyBody {
        // The stream keeps the sender, so that it never ends of itself.
        let start = (self.0.subscribe(), Arc::clone(&self.0), 0);
        let pieces = stream::unfold(start, |(mut receiver, keep, at)| async move {
            let piece = receiver.wait_for(|pieces| pieces.len() > at).await.ok().map(|pieces| pieces[at].clone());
            piece.map(|piece| (piece, (receiver, keep, at + 1)))
        });
        let frames = pieces.take_while(|piece| std::future::ready(!matches!(piece, Piece::End)));
        let frames = frames.map(|piece| match piece {
            Piece::Data(bytes) => Ok(http_body::Frame::data(bytes)),
            Piece::End | Piece::Break => Err(reset().into()),
        });
        StreamBody::new(frames).boxed_unsync()
    }
}
