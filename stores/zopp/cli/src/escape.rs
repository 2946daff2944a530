//! Texts from elsewhere, such as names, as a terminal may show them.

/// Returns the text with its control characters written as escapes.
pub fn visible(text: &str) -> String {
    let mut visible = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() || turns_text(character) {
            visible.extend(character.escape_default());
        } else {
            visible.push(character);
        }
    }
    visible
}

/// Characters that change the direction of the text around them, by which a name can look like another one.
fn turns_text(character: char) -> bool {
    matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_controls_no_terminal_and_looks_like_no_other() {
        assert_eq!(visible("a\nb\u{1b}[2J\u{202e}dne"), "a\\nb\\u{1b}[2J\\u{202e}dne");
        assert_eq!(visible("Größe"), "Größe");
    }
}
