//! `VaultRollout`: what it has beside a `VaultSyncStatus`. The tests of `VaultSyncStatus` cover the code that both share. Tests are named after the rows
//! of what the original does wrong (r).

mod asking;
mod failing;
mod missing;
mod rolling;
mod waiting;
