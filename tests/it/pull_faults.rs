//! Pull with a fault proxy between the operator and the API server, and our server on the other side. After each bad day every Secret
//! is as its environment is (I1), what is not the operator's is as it was (I2), it was never started again, and its writes are few (I10).

mod crashing;
mod leadership;
mod requests;
mod resources;
mod scene;
mod unobserved;
mod watches;
