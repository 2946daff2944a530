# Generated; change the code instead.
#
# The policy of vault-rollout-operator for a KV engine of version 2 that is mounted at secret/. It shows the versions of all secrets, and no value. For
# another mount write its name.
#
# docs/reference/vault-policies.md has the policies for mode: Content, for one team, and for an engine of version 1.

path "auth/token/lookup-self" {
  capabilities = ["read"]
}

path "auth/token/renew-self" {
  capabilities = ["update"]
}

path "auth/token/revoke-self" {
  capabilities = ["update"]
}

path "secret/metadata/*" {
  capabilities = ["read"]
}
