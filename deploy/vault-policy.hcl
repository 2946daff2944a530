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

path "auth/token/lookup-self" {
  capabilities = ["read"]
}

path "auth/token/renew-self" {
  capabilities = ["update"]
}

path "auth/token/revoke-self" {
  capabilities = ["update"]
}

path "secret/data/*" {
  capabilities = ["create", "read", "update", "delete"]
}

path "secret/destroy/*" {
  capabilities = ["update"]
}

path "secret/metadata/*" {
  capabilities = ["read", "update", "patch", "delete", "list"]
}
