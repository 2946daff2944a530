//! Writes the policies for Vault that are shipped into a folder: that of push and that of roll. With `--check` it writes nothing, and fails if a file
//! differs. `cargo xtask generate` runs it.

#[path = "../reference/policies.rs"]
#[expect(dead_code, reason = "the page is for the docs")]
mod policies;

use std::error::Error;

use clap::Parser;
use konverge_gen::{Files, files::Destination};

const OF_PUSH: &str = "\
# Generated; change the code instead.
#
# The policy of vault-sync-operator for a KV engine of version 2 that is mounted at secret/, with every deletion policy. For another mount write its
# name. With --cluster-name=one the engine is mounted at clusters/one/secret/.
#
# data: compares before it writes, writes with check-and-set, and deletes softly.
# metadata: marks the owner of a path, removes the mark, and finds content that no object requests; delete is for the deletion policy metadata alone.
# destroy: for the deletion policy destroy.
# auth/token: looks up, renews and revokes its own token. Vault's policy default allows the same.
#
# docs/reference/vault-policies.md has narrower policies: for one team, one deletion policy, and an engine of version 1.

";

const OF_ROLL: &str = "\
# Generated; change the code instead.
#
# The policy of vault-rollout-operator for a KV engine of version 2 that is mounted at secret/. It shows the versions of all secrets, and no value. For
# another mount write its name.
#
# docs/reference/vault-policies.md has the policies for mode: Content, for one team, and for an engine of version 1.

";

fn main() -> Result<(), Box<dyn Error>> {
    let destination = Destination::parse();
    let mut files = Files::default();
    files.text("vault-policy.hcl", format!("{OF_PUSH}{}", policies::of_push_everywhere()));
    files.text("vault-policy-rollout.hcl", format!("{OF_ROLL}{}", policies::of_roll_everywhere()));
    Ok(destination.put(&files)?)
}
