//! The prompt at the terminal for a value, which may have several lines.
//!
//! A pasted private key is one value. No line of it may reach the shell, which would run it and keep it in its history. So the prompt
//! turns on bracketed paste. Without that, lines that follow at once belong to the value, and so does everything up to the end of a PEM
//! block. Unread input is discarded at the end.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
};

use konverge_core::SecretValue;
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use zeroize::{Zeroize, Zeroizing};

/// The terminal of the process, even if its input and output are redirected.
const TERMINAL: &str = "/dev/tty";

/// The size of the buffer for a value. The buffer does not grow, because that would leave a copy of the value behind.
const MAX_VALUE: usize = 256 * 1024;

/// The maximum delay before the next line of an unmarked paste, in tenths of a second.
const NEXT_LINE: u8 = 2;

const MARK_PASTES: &[u8] = b"\x1b[?2004h";
const DO_NOT_MARK_PASTES: &[u8] = b"\x1b[?2004l";
const PASTE_BEGINS: &[u8] = b"\x1b[200~";
const PASTE_ENDS: &[u8] = b"\x1b[201~";

/// Prints the question and reads the answer without echo.
///
/// # Errors
/// If there is no terminal, if the person interrupts it, or if the value is too large.
pub fn ask(question: &str) -> io::Result<SecretValue> {
    let mut terminal = HiddenInput::open()?;
    terminal.file.write_all(question.as_bytes())?;
    let mut typed = Typed::new();
    let mut is_line_complete = false;
    loop {
        let mut bytes = Zeroizing::new([0; 256]);
        terminal.wait_at_most(if is_line_complete { Some(NEXT_LINE) } else { None })?;
        let count = terminal.file.read(bytes.as_mut_slice())?;
        if count == 0 {
            break;
        }
        match typed.take(&bytes[..count])? {
            Progress::Open => is_line_complete = false,
            Progress::LineComplete => is_line_complete = true,
            Progress::Complete => break,
        }
    }
    terminal.file.write_all(b"\n")?;
    Ok(typed.into_value())
}

/// A terminal without echo and line buffering. Dropping it restores the state of the terminal and discards unread input.
struct HiddenInput {
    file: File,
    before: Termios,
}

impl HiddenInput {
    fn open() -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(TERMINAL)?;
        let before = tcgetattr(&file)?;
        let mut hidden = Self { file, before };
        hidden.wait_at_most(None)?;
        hidden.file.write_all(MARK_PASTES)?;
        Ok(hidden)
    }

    /// Sets the timeout of a read, in tenths of a second; `None` waits without limit.
    fn wait_at_most(&self, limit: Option<u8>) -> io::Result<()> {
        let mut modes = self.before.clone();
        modes.local_modes -= LocalModes::ECHO | LocalModes::ECHONL | LocalModes::ICANON | LocalModes::ISIG;
        modes.special_codes[SpecialCodeIndex::VMIN] = u8::from(limit.is_none());
        modes.special_codes[SpecialCodeIndex::VTIME] = limit.unwrap_or_default();
        Ok(tcsetattr(&self.file, OptionalActions::Now, &modes)?)
    }
}

impl Drop for HiddenInput {
    fn drop(&mut self) {
        // Best effort: a closed terminal needs neither.
        let _ = self.file.write_all(DO_NOT_MARK_PASTES);
        let _ = tcsetattr(&self.file, OptionalActions::Flush, &self.before);
    }
}

/// The input so far.
struct Typed {
    value: Zeroizing<Vec<u8>>,
    is_in_paste: bool,
    /// Whether nothing was typed since the end of a paste. A newline then ends the value and is not part of it.
    is_after_paste: bool,
}

/// The progress of the input.
#[derive(Debug, PartialEq, Eq)]
enum Progress {
    /// More input follows.
    Open,
    /// A line has ended. More of the value can follow at once.
    LineComplete,
    /// The value has ended.
    Complete,
}

impl Typed {
    fn new() -> Self {
        Self { value: Zeroizing::new(Vec::with_capacity(MAX_VALUE)), is_in_paste: false, is_after_paste: false }
    }

    /// Handles input from the terminal.
    fn take(&mut self, bytes: &[u8]) -> io::Result<Progress> {
        let mut progress = Progress::Open;
        for byte in bytes {
            progress = self.take_byte(*byte)?;
            if progress == Progress::Complete {
                break;
            }
        }
        Ok(progress)
    }

    fn take_byte(&mut self, byte: u8) -> io::Result<Progress> {
        const END_OF_TEXT: u8 = 0x03;
        const END_OF_TRANSMISSION: u8 = 0x04;
        const BACKSPACE: u8 = 0x08;
        const ERASE_LINE: u8 = 0x15;
        const DELETE: u8 = 0x7f;
        match byte {
            END_OF_TEXT if !self.is_in_paste => return Err(io::ErrorKind::Interrupted.into()),
            END_OF_TRANSMISSION if !self.is_in_paste => return Ok(Progress::Complete),
            BACKSPACE | DELETE if !self.is_in_paste => self.erase_character(),
            ERASE_LINE if !self.is_in_paste => self.value.zeroize(),
            _ if self.value.len() == MAX_VALUE => {
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is too large to be typed or pasted"));
            }
            b'\r' | b'\n' => {
                if !std::mem::take(&mut self.is_after_paste) {
                    self.value.push(b'\n');
                }
                return Ok(if self.is_in_paste || self.is_in_pem_block() {
                    Progress::Open
                } else {
                    Progress::LineComplete
                });
            }
            _ => self.value.push(byte),
        }
        self.is_after_paste = false;
        self.take_mark();
        Ok(Progress::Open)
    }

    fn erase_character(&mut self) {
        while self.value.pop().is_some_and(|byte| byte & 0b1100_0000 == 0b1000_0000) {}
    }

    fn take_mark(&mut self) {
        for (mark, begins) in [(PASTE_BEGINS, true), (PASTE_ENDS, false)] {
            if self.value.ends_with(mark) {
                let length = self.value.len() - mark.len();
                self.value.truncate(length);
                self.is_in_paste = begins;
                self.is_after_paste = !begins;
            }
        }
    }

    /// Returns `true` if the last PEM block has no end yet.
    fn is_in_pem_block(&self) -> bool {
        let position = |mark: &[u8]| self.value.windows(mark.len()).rposition(|window| window == mark);
        self.value.starts_with(b"-----BEGIN ") && position(b"-----BEGIN ") > position(b"-----END ")
    }

    /// Returns the value, without the newline that ends a single line.
    fn into_value(mut self) -> SecretValue {
        let end = self.value.iter().position(|byte| *byte == b'\n');
        if end.is_some_and(|end| end + 1 == self.value.len()) {
            self.value.pop();
        }
        SecretValue::new(std::mem::take(&mut *self.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(text: &[u8]) -> (Vec<u8>, Progress) {
        let mut typed = Typed::new();
        let progress = typed.take(text).unwrap();
        (typed.into_value().expose().to_vec(), progress)
    }

    #[test]
    fn a_line_is_the_value_without_its_end() {
        for (text, value, progress) in [
            (b"two words\r".as_slice(), b"two words".as_slice(), Progress::LineComplete),
            (b"two words", b"two words", Progress::Open),
            (b"\r", b"", Progress::LineComplete),
            (b"ab\x7f\x7f\x7fc\n", b"c", Progress::LineComplete),
            ("aü\x08b\n".as_bytes(), b"ab", Progress::LineComplete),
            (b"wrong\x15right\n", b"right", Progress::LineComplete),
            (b"end\x04not read", b"end", Progress::Complete),
        ] {
            assert_eq!(typed(text), (value.to_vec(), progress), "{text:?}");
        }
        assert_eq!(Typed::new().take(b"a\x03").unwrap_err().kind(), io::ErrorKind::Interrupted);
    }

    #[test]
    fn a_marked_paste_is_taken_as_it_is() {
        for (text, value, progress) in [
            (b"\x1b[200~one\rtwo\r\x1b[201~\r".as_slice(), b"one\ntwo\n".as_slice(), Progress::LineComplete),
            (b"\x1b[200~a\x7f\x04\x1b[201~\r", b"a\x7f\x04", Progress::LineComplete),
            (b"\x1b[200~one\r\x1b[201~\r", b"one", Progress::LineComplete),
            (b"\x1b[200~one\rtwo\x1b[201~\r", b"one\ntwo", Progress::LineComplete),
        ] {
            assert_eq!(typed(text), (value.to_vec(), progress), "{text:?}");
        }
    }

    #[test]
    fn a_pem_block_goes_to_its_end() {
        let block = b"-----BEGIN KEY-----\nabc\n-----END KEY-----\n";
        for (end, byte) in block.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
            let is_last = end + 1 == block.len();
            let expected = if is_last { Progress::LineComplete } else { Progress::Open };
            assert_eq!((*byte, typed(&block[..=end]).1), (b'\n', expected), "{end}");
        }
        assert_eq!(typed(block).0, block, "several lines are a file, which ends with a newline");
        assert_eq!(typed(&[block.as_slice(), block].concat()).1, Progress::LineComplete);
    }

    #[test]
    fn what_is_too_large_is_refused() {
        let mut typed = Typed::new();
        typed.take(&vec![b'a'; MAX_VALUE]).unwrap();
        assert_eq!(typed.take(b"a").unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert!(typed.value.capacity() == MAX_VALUE, "the buffer does not move");
    }
}
