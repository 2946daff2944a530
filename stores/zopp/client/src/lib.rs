//! A zopp client: connection, identity, authenticated calls, decrypted environments.
