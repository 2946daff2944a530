# What vault-sync-operator needs of a KV engine of version 2 that is mounted at secret/. A test works with exactly this. For another
# mount write its name; with --cluster-name=one write clusters/one/secret/, where that engine has to be mounted.
#
# What one cluster or team may not touch should not be allowed here, whatever --allow-path says: write secret/data/team-a/* and the
# same for the other routes.

# Compares before it writes, writes with check-and-set, and deletes softly.
path "secret/data/*" {
  capabilities = ["create", "read", "update", "delete"]
}

# Notes whose a path is, and takes the note away. Without this it works and cannot tell its own from what others wrote. delete is
# needed for the deletion policy metadata alone.
path "secret/metadata/*" {
  capabilities = ["read", "update", "patch", "delete"]
}

# For the deletion policy destroy.
path "secret/destroy/*" {
  capabilities = ["update"]
}

# Its own token: how long it lasts, a longer life, and its end. The policy default allows the same.
path "auth/token/lookup-self" {
  capabilities = ["read"]
}

path "auth/token/renew-self" {
  capabilities = ["update"]
}

path "auth/token/revoke-self" {
  capabilities = ["update"]
}

# An engine of version 1, mounted at old/, has one route:
#
# path "old/*" {
#   capabilities = ["create", "read", "update", "delete"]
# }
