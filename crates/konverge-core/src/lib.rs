//! What every job shares and nobody needs IO for: secret values, keyed digests, error classes, backoff.
