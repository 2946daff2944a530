//! Words as a shell reads them.

/// A word that a shell takes for exactly this text.
pub fn quoted(text: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+:@%,=".contains(letter);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_shell_reads_what_was_written() {
        assert_eq!(quoted("/tmp/konverge-aB3/kubeconfig"), "/tmp/konverge-aB3/kubeconfig");
        for text in ["", "/tmp/a b/c", "it's", "$HOME `x` \"y\" \\", "~"] {
            let script = format!("printf %s {}; alias say={}", quoted(text), quoted(&quoted(text)));
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), text);
            assert!(output.status.success(), "{script}");
        }
    }
}
