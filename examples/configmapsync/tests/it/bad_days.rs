//! Bad days of the API server and of the way to it. After each the copies are as they should be, what is not the operator's is as
//! it was, the operator was never started again, and its writes are few.

mod fighting;
mod leadership;
mod requests;
mod stage;
mod unobserved;
mod watches;
