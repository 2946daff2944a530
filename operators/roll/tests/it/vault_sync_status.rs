//! `VaultSyncStatus`, from what stands in Vault to the pods. Tests are named after the rows of what the original does wrong (r) and of what is
//! accepted (a).

mod asking;
mod outages;
mod rolling;
mod taking_over;
mod world;
