//! The form of a personal access token. Pure.

/// Base 62, in the order of the server.
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Returns the token with this secret of 30 characters: a prefix, the secret, and its CRC-32 in six digits of base 62.
pub fn personal_access_token(secret: &str) -> String {
    let mut checksum = crc32(secret.as_bytes());
    let mut digits = [b'0'; 6];
    for digit in digits.iter_mut().rev() {
        *digit = DIGITS[(checksum % 62) as usize];
        checksum /= 62;
    }
    format!("nbp_{secret}{}", String::from_utf8_lossy(&digits))
}

/// CRC-32 of IEEE 802.3.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0xEDB8_8320 } else { crc >> 1 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_ends_with_the_checksum_of_its_secret() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
        // Tokens that the real server has accepted and made.
        for token in ["nbp_N50VgKYxGeP5CT8kfOW4EaTh1MdzJz0lMAFo", "nbp_ovQZ4Y9U2T0o0OUBYQo8s8AIeZyP0r0raSFk"] {
            assert_eq!(personal_access_token(&token[4..34]), token);
        }
        assert_eq!(personal_access_token(&"a".repeat(30)).len(), 40);
    }
}
