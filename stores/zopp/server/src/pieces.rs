//! Long lists, encoded piece by piece while they are sent: such an answer is in memory as rows, and never also as a whole message.
//!
//! The entries of a list are taken out of its message. The rest of the message is sent first, with the length of the whole; the entries
//! follow, as Protocol Buffers allow it of a repeated field. Each entry is dropped once it is encoded.

use std::{
    any::Any,
    fmt, mem,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::{BufMut, Bytes, BytesMut};
use konverge_zopp_proto::{SecretList, secrets};
use prost::{Message, length_delimiter_len};

/// A message of fewer bytes is sent as a whole.
const LONG: usize = 64 * 1024;
/// Entries are added to a piece until it has so many bytes.
const PIECE: usize = 32 * 1024;
/// The bytes before a message, in which gRPC tells its length, and those of them that are the length.
const LENGTH: std::ops::Range<usize> = 1..5;

/// The entries of a list, in the order in which they are sent.
pub(crate) struct Pieces {
    length: usize,
    rest: Box<dyn Iterator<Item = Bytes> + Send>,
}

/// How they get from the call to the body of its answer: as an extension, which must be cloneable, of the response.
#[derive(Clone)]
pub(crate) struct Handed(Arc<Mutex<Option<Pieces>>>);

impl Pieces {
    /// Takes the entries out of a list, if it is a long one.
    pub(crate) fn take<M: Message + 'static>(message: &mut M) -> Option<Self> {
        if message.encoded_len() < LONG {
            return None;
        }
        let message: &mut dyn Any = message;
        if let Some(list) = message.downcast_mut::<SecretList>() {
            return Some(Self::of(1, mem::take(&mut list.secrets)));
        }
        if let Some(environment) = message.downcast_mut::<secrets::ReadEnvironmentResponse>() {
            return Some(Self::of(7, mem::take(&mut environment.secrets)));
        }
        let history = message.downcast_mut::<secrets::ReadSecretHistoryResponse>()?;
        Some(Self::of(4, mem::take(&mut history.versions)))
    }

    /// The entries of the repeated field of that number, which is below 16.
    fn of<E: Message + 'static>(field: u8, entries: Vec<E>) -> Self {
        let length = entries.iter().map(encoded_length).sum();
        let mut entries = entries.into_iter();
        let rest = std::iter::from_fn(move || {
            let mut piece = BytesMut::new();
            while piece.len() < PIECE
                && let Some(entry) = entries.next()
            {
                piece.reserve(encoded_length(&entry));
                // The number of the field, and that its length follows.
                piece.put_u8(field << 3 | 2);
                #[expect(clippy::expect_used, reason = "a buffer that grows has room for everything")]
                entry.encode_length_delimited(&mut piece).expect("there is room for the entry");
            }
            (!piece.is_empty()).then(|| piece.freeze())
        });
        Self { length, rest: Box::new(rest) }
    }

    /// The bytes of all entries.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// The frame of the rest of the message, with the length of the whole message.
    pub(crate) fn announce(&self, frame: Bytes) -> Bytes {
        let mut frame = BytesMut::from(frame);
        let whole = frame.len().saturating_sub(LENGTH.end) + self.length;
        if let (Some(told), Ok(whole)) = (frame.get_mut(LENGTH), u32::try_from(whole)) {
            told.copy_from_slice(&whole.to_be_bytes());
        }
        frame.freeze()
    }

    /// Hands them to the body of the answer.
    pub(crate) fn hand_over(self) -> Handed {
        Handed(Arc::new(Mutex::new(Some(self))))
    }
}

impl Iterator for Pieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        self.rest.next()
    }
}

impl Handed {
    /// The entries, for the first that asks.
    pub(crate) fn accept(&self) -> Option<Pieces> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl fmt::Debug for Pieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pieces").field("length", &self.length).finish_non_exhaustive()
    }
}

/// With its number and its length before it.
fn encoded_length(entry: &impl Message) -> usize {
    let length = entry.encoded_len();
    1 + length_delimiter_len(length) + length
}

#[cfg(test)]
mod tests {
    use konverge_zopp_proto::Secret;
    use proptest::prelude::*;

    use super::*;

    /// Returns the frames that a client receives, and the message that they make up.
    fn sent<M: Message + Default + 'static>(mut message: M) -> (Vec<Bytes>, M) {
        let pieces = Pieces::take(&mut message).expect("it is long");
        let mut head = vec![0];
        head.extend(u32::try_from(message.encoded_len()).unwrap().to_be_bytes());
        head.extend(message.encode_to_vec());
        let mut frames = vec![pieces.announce(head.into())];
        frames.extend(pieces);
        let all = frames.concat();
        let told = u32::from_be_bytes(all[1..5].try_into().unwrap());
        assert_eq!(told as usize, all.len() - 5, "the length of the whole");
        (frames, M::decode(&all[5..]).unwrap())
    }

    fn secret(number: usize, bytes: usize) -> Secret {
        Secret { key: format!("K{number}"), nonce: vec![1; 24], ciphertext: vec![2; bytes] }
    }

    #[test]
    fn a_short_list_stays_whole() {
        let mut list = SecretList { secrets: (0..100).map(|number| secret(number, 20)).collect(), version: 7 };
        assert!(Pieces::take(&mut list).is_none());
        assert_eq!(list.secrets.len(), 100);
        let mut keys = konverge_zopp_proto::WorkspaceKeys { kek_wrapped: vec![0; 2 * LONG], ..Default::default() };
        assert!(Pieces::take(&mut keys).is_none(), "it is no list");
    }

    #[test]
    fn no_frame_is_larger_than_a_piece_and_an_entry() {
        let secrets: Vec<_> = (0..5000).map(|number| secret(number, 100)).collect();
        let (frames, list) = sent(SecretList { secrets: secrets.clone(), version: 7 });
        assert!(frames.len() > 10 && frames.iter().all(|frame| frame.len() < PIECE + 200), "{}", frames.len());
        assert_eq!(list, SecretList { secrets, version: 7 });
    }

    #[test]
    fn environments_and_histories_are_whole_with_all_that_is_beside_their_entries() {
        let secret = secrets::EncryptedSecret { key: "A".into(), nonce: vec![1; 24], ciphertext: vec![2; LONG] };
        let environment = secrets::ReadEnvironmentResponse {
            environment_id: "e".into(),
            version: 3,
            secrets: vec![secret; 3],
            manifest: Some(secrets::SealedManifest { nonce: vec![4; 24], ciphertext: vec![5; LONG] }),
            ..Default::default()
        };
        assert_eq!(sent(environment.clone()).1, environment);
        let version = secrets::SecretVersion { version: 2, ciphertext: vec![6; LONG], ..Default::default() };
        let history = secrets::ReadSecretHistoryResponse {
            dek_wrapped: vec![7; 48],
            versions: vec![version; 3],
            ..Default::default()
        };
        assert_eq!(sent(history.clone()).1, history);
    }

    proptest! {
        #[test]
        fn any_list_arrives_as_it_was(sizes in prop::collection::vec(0_usize..100_000, 3..20)) {
            prop_assume!(sizes.iter().sum::<usize>() > LONG);
            let secrets: Vec<_> = sizes.iter().enumerate().map(|(number, bytes)| secret(number, *bytes)).collect();
            let list = SecretList { secrets, version: 1 };
            prop_assert_eq!(sent(list.clone()).1, list);
        }
    }
}
