//! Webhooks that the API server calls before it stores or returns an object.
pub mod review;
pub mod verdict;
mod patch;
pub use review::{Operation, Review, Undecodable};
pub use verdict::Verdict;
