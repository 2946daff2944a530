//! Bad days of the API server and of the way to it. After each the copies are as they should be (I1), what is not the operator's
//! is as it was (I2), the operator was never started again, and its writes are few (I10). `bad_days/*` say which faults they are about.

mod fighting;
mod leadership;
mod requests;
mod stage;
mod unobserved;
mod watches;
