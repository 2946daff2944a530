//! The requests to the proxy, and their outcome.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::StatusCode;

use super::{decide::Decision, plan::Phase};
use crate::api_request::{ApiRequest, Verb};

/// One request.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct JournalEntry {
    /// The request. The name of a creation is read from its body.
    pub request: ApiRequest,
    /// Path and query.
    pub uri: String,
    /// Its number among those that ask for a change, in the order of their arrival, from 1.
    pub mutation: Option<usize>,
    /// How far it came.
    pub reached: Reached,
    /// The status code of the API server.
    pub code: Option<u16>,
    /// The status code that the client received; `None` before the response begins, and if the client got none.
    pub client_code: Option<u16>,
    /// Watch events that were told.
    pub events: usize,
    /// The faults that hit it, in the terms of the plan: `rule 2, after: drop`.
    pub faults: Vec<String>,
}

/// How far a request came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Reached {
    /// The API server does not know of it.
    Proxy,
    /// It was forwarded, and the API server has not answered.
    Server,
    /// The API server has answered.
    Answered,
    /// The client was told, at least in part.
    Client,
}

impl JournalEntry {
    /// Whether it changed what is stored, or might have, had there been a difference.
    pub fn is_committed(&self) -> bool {
        self.mutation.is_some() && self.code.is_some_and(|code| (200..300).contains(&code))
    }

    /// Whether it made an object.
    pub fn created(&self) -> bool {
        self.is_committed() && self.code == Some(StatusCode::CREATED.as_u16())
    }

    /// Whether it deleted something, or made its deletion begin.
    pub fn deleted(&self) -> bool {
        self.is_committed() && matches!(self.request.verb, Verb::Delete | Verb::DeleteCollection)
    }
}

/// All requests so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Journal(Arc<Mutex<Book>>);

#[derive(Debug, Default)]
struct Book {
    entries: Vec<JournalEntry>,
    mutations: usize,
}

/// The place of one request in the journal.
#[derive(Debug, Clone)]
pub(super) struct Place {
    journal: Journal,
    index: usize,
}

impl Journal {
    pub(super) fn begin(&self, request: ApiRequest, uri: String) -> Place {
        let mut book = self.lock();
        let mutating = request.is_mutating();
        book.mutations += usize::from(mutating);
        let mutation = mutating.then_some(book.mutations);
        book.entries.push(JournalEntry {
            request,
            uri,
            mutation,
            reached: Reached::Proxy,
            code: None,
            client_code: None,
            events: 0,
            faults: Vec::new(),
        });
        Place { journal: self.clone(), index: book.entries.len() - 1 }
    }

    pub(super) fn entries(&self) -> Vec<JournalEntry> {
        self.lock().entries.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    pub(super) fn forwarded(&self) {
        self.change(|entry| entry.reached = Reached::Server);
    }

    pub(super) fn answered(&self, code: StatusCode) {
        self.change(|entry| {
            entry.reached = Reached::Answered;
            entry.code = Some(code.as_u16());
        });
    }

    pub(super) fn responded(&self, code: StatusCode) {
        self.change(|entry| {
            entry.reached = Reached::Client;
            entry.client_code = Some(code.as_u16());
        });
    }

    pub(super) fn event_sent(&self) {
        self.change(|entry| entry.events += 1);
    }

    pub(super) fn fault_injected(&self, phase: Phase, decision: &Decision) {
        let fault = format!("rule {}, {phase}: {}", decision.rule, decision.action);
        self.change(|entry| entry.faults.push(fault));
    }

    fn change(&self, change: impl FnOnce(&mut JournalEntry)) {
        if let Some(entry) = self.journal.lock().entries.get_mut(self.index) {
            change(entry);
        }
    }
}
