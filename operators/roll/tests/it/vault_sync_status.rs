//! `VaultSyncStatus`, from what stands in Vault to the pods. Tests are named after the rows of what the original does wrong (r) and of what is
//! accepted (a).

mod asking;
mod between;
mod engines;
mod late;
mod outages;
mod rolling;
mod taking_over;
mod tokens;
pub(crate) mod world;
