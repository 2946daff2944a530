//! Documents behind HTTP.
//!
//! Read in this order: [`Endpoint`], where and how to ask; [`HttpSource`], what an answer means; [`Token`], who asks.

mod address;
mod answer;
mod client;
mod endpoint;
mod error;
mod long_poll;
mod retry_after;
mod source;
mod token;

pub(crate) use address::shown;
pub(crate) use answer::essence;
pub(crate) use client::client_builder;
pub use client::{ClientError, client};
pub use endpoint::{Endpoint, InvalidEndpoint};
pub use error::HttpError;
pub use long_poll::LongPoll;
pub use reqwest;
pub use source::{HttpDocument, HttpSource};
pub use token::Token;
