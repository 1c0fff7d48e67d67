//! How many bytes the answers of servers that others chose may hold in this process, over all of their clients.
//!
//! What is read counts from its first byte until nobody holds it: while it is read, in a cache, and once more for what was made of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;

/// Bytes that all clients may hold together. 1,000 runners take some 1.2 MB.
const MOST: usize = 64 << 20;

/// A client that holds no more than this may also use the last quarter, so that servers with large answers keep nobody else out.
const SMALL: usize = 256 << 10;

/// What all clients share.
#[derive(Debug, Default)]
pub struct AnswerMemory {
    held: AtomicUsize,
    refused: AtomicU64,
}

impl AnswerMemory {
    /// Bytes that are held now.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Answers that found no room.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

/// There is no room for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "answers of the GitHub servers that credentials of namespaces name hold {} MiB together and may hold no more; a server among them sends too much",
    MOST >> 20
)]
pub(crate) struct Full;

/// The part of one client.
#[derive(Clone, Debug)]
pub(crate) struct Share(Arc<Part>);

#[derive(Debug)]
struct Part {
    all: Arc<AnswerMemory>,
    held: AtomicUsize,
}

impl Share {
    pub(crate) fn new(all: Arc<AnswerMemory>) -> Self {
        Self(Arc::new(Part { all, held: AtomicUsize::new(0) }))
    }

    /// Room for nothing yet.
    pub(crate) fn room(&self) -> Held {
        Held { of: self.clone(), bytes: 0 }
    }

    /// Takes room for so many bytes.
    fn take(&self, bytes: usize) -> Result<(), Full> {
        let own = self.0.held.load(Ordering::Relaxed).saturating_add(bytes);
        let most = if own <= SMALL { MOST } else { MOST / 4 * 3 };
        let fits = |held: usize| held.checked_add(bytes).filter(|held| *held <= most);
        if self.0.all.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_err() {
            self.0.all.refused.fetch_add(1, Ordering::Relaxed);
            return Err(Full);
        }
        self.0.held.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }
}

/// Room for what was made of answers; none where nobody counts.
pub(crate) type Room = Option<Arc<Held>>;

/// Room that is given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    of: Share,
    bytes: usize,
}

impl Held {
    /// Takes room for so many more bytes.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), Full> {
        self.of.take(bytes)?;
        self.bytes = self.bytes.saturating_add(bytes);
        Ok(())
    }

    /// These bytes, which hold the room for as long as anybody holds them.
    pub(crate) fn keep(self, bytes: Vec<u8>) -> Bytes {
        Bytes::from_owner(Kept { bytes, _room: self })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.of.0.held.fetch_sub(self.bytes, Ordering::Relaxed);
        self.of.0.all.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

struct Kept {
    bytes: Vec<u8>,
    _room: Held,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(share: &Share, bytes: usize) -> Option<Held> {
        let mut held = share.room();
        held.grow(bytes).is_ok().then_some(held)
    }

    #[test]
    fn room_is_given_back_when_the_last_holder_is_gone() {
        let all = Arc::new(AnswerMemory::default());
        let share = Share::new(Arc::clone(&all));
        let mut held = share.room();
        for _ in 0..3 {
            held.grow(1_000).unwrap();
        }
        let kept = held.keep(vec![7; 3_000]);
        let part = kept.slice(..10);
        drop(kept);
        assert_eq!((all.held(), &part[..]), (3_000, &[7; 10][..]));
        drop(part);
        assert_eq!((all.held(), all.refused()), (0, 0));
    }

    #[test]
    fn clients_together_never_hold_more_than_they_may() {
        let all = Arc::new(AnswerMemory::default());
        let shares: Vec<Share> = (0..3).map(|_| Share::new(Arc::clone(&all))).collect();
        let mut held = Vec::new();
        for _ in 0..40 {
            held.extend(shares.iter().filter_map(|share| room(share, 1 << 20)));
        }
        assert_eq!((all.held(), all.refused()), (MOST / 4 * 3, 72));
        held.pop();
        assert!(room(&shares[0], 1 << 20).is_some(), "what is given back can be had again");
    }

    #[test]
    fn client_with_small_answers_has_room_when_others_have_taken_all_of_theirs() {
        let all = Arc::new(AnswerMemory::default());
        let (greedy, modest) = (Share::new(Arc::clone(&all)), Share::new(Arc::clone(&all)));
        let _most: Vec<Held> = std::iter::from_fn(|| room(&greedy, 1 << 20)).collect();
        assert!(room(&greedy, 1).is_none());
        let small = room(&modest, SMALL).unwrap();
        assert!(room(&modest, 1).is_none(), "it is not small any more");
        drop(small);
        assert!(room(&modest, SMALL).is_some());
    }
}
