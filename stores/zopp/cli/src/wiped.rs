//! A buffer for text that may hold values: wiped when it is dropped and whenever it is outgrown.

use std::{
    fmt,
    io::{self, Write},
};

use zeroize::Zeroizing;

/// Room at the start; most answers fit.
const ROOM: usize = 4096;

/// Bytes that leave no copy behind, however they come in.
pub struct Wiped {
    /// Not a vector: one that grows by itself gives its old memory back as it is.
    room: Zeroizing<Box<[u8]>>,
    /// How much of the room is taken.
    length: usize,
}

impl Default for Wiped {
    fn default() -> Self {
        Self { room: room(ROOM), length: 0 }
    }
}

impl Wiped {
    /// Appends.
    pub fn push(&mut self, bytes: &[u8]) {
        drop(self.make_room(bytes.len()));
        self.room[self.length..][..bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    /// The appended text.
    pub fn bytes(&self) -> &[u8] {
        &self.room[..self.length]
    }

    /// Moves to a larger room if that is needed. Returns the outgrown one, which is wiped when it is dropped.
    fn make_room(&mut self, more: usize) -> Option<Zeroizing<Box<[u8]>>> {
        let needed = self.length + more;
        if needed <= self.room.len() {
            return None;
        }
        let mut larger = room(needed.max(2 * self.room.len()));
        larger[..self.length].copy_from_slice(self.bytes());
        Some(std::mem::replace(&mut self.room, larger))
    }
}

fn room(size: usize) -> Zeroizing<Box<[u8]>> {
    Zeroizing::new(vec![0; size].into_boxed_slice())
}

impl fmt::Write for Wiped {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

impl Write for Wiped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_outgrown_is_at_hand_for_wiping() {
        let mut buffer = Wiped::default();
        buffer.push(&[1; ROOM]);
        assert!(buffer.make_room(0).is_none());
        let before = buffer.room.as_ptr();
        let outgrown = buffer.make_room(1).unwrap();
        assert_eq!((outgrown.as_ptr(), outgrown.as_ref()), (before, [1; ROOM].as_slice()));
        assert_eq!(buffer.bytes(), [1; ROOM]);
    }

    #[test]
    fn pieces_of_any_size_are_kept_in_order() {
        let (mut buffer, mut expected) = (Wiped::default(), Vec::new());
        for number in 0..=u8::MAX {
            let piece = vec![number; 3 * usize::from(number)];
            buffer.push(&piece);
            expected.extend_from_slice(&piece);
            assert_eq!(buffer.bytes(), expected);
        }
    }

    #[test]
    fn json_is_written_into_it() {
        let mut buffer = Wiped::default();
        let value = "\"\u{1}".repeat(ROOM);
        serde_json::to_writer_pretty(&mut buffer, &value).unwrap();
        assert_eq!(buffer.bytes(), serde_json::to_vec_pretty(&value).unwrap());
    }
}
