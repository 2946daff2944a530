//! Documents behind HTTP.
//!
//! Read in this order: [`Endpoint`], where and how to ask; [`HttpSource`], what an answer means; [`Token`], who asks.

mod answer;
mod client;
mod endpoint;
mod error;
mod long_poll;
mod source;
mod token;

pub(crate) use answer::essence;
pub(crate) use client::client_builder;
pub use client::{ClientError, client};
pub use endpoint::{Endpoint, InvalidEndpoint};
pub use error::HttpError;
pub(crate) use konverge_endpoint::address::shown;
pub use long_poll::LongPoll;
pub use reqwest;
pub use source::{HttpDocument, HttpSource};
pub use token::{Token, TokenError};
