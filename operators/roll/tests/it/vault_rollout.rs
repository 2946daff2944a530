//! `VaultRollout`: what it has beside a `VaultSyncStatus`. What both do by the same code is shown of the latter. Tests are named after the rows
//! of what the original does wrong (r).

mod asking;
mod rolling;
mod waiting;
