//! Memory of columns that are not needed any more, for the columns of the next units.
//!
//! Rules of the file:
//!
//! - New memory costs a page fault every 4 KiB, and the C library gives large pieces back to the system. So pieces that
//!   are large are kept, up to a bound for all together. The oldest make room for new ones.
//! - Decompressors are kept too, as many as were in use at once. They have some 1 MiB each.
//! - A piece is used again only if it is at most twice as large as what is asked for, because Arrow may keep it long.
//! - Any thread may take and give back. The lock is held for a short search, never while memory is made or freed.

use crate::codecs::Codecs;
use crate::lock::Lock;

/// Smaller pieces come from the allocator, which keeps those itself.
const MIN_BYTES: usize = 64 << 10;

/// The pieces of each type, the oldest first: the allocator wants a piece back with the alignment that it had.
#[derive(Default)]
pub struct Kept {
    max_bytes: usize,
    size_bytes: usize,
    bytes: Vec<Vec<u8>>,
    int32: Vec<Vec<i32>>,
    int64: Vec<Vec<i64>>,
}

/// An item of a column.
pub trait Item: Sized {
    fn pieces(kept: &mut Kept) -> &mut Vec<Vec<Self>>;
}

impl Item for u8 {
    fn pieces(kept: &mut Kept) -> &mut Vec<Vec<u8>> {
        &mut kept.bytes
    }
}

impl Item for i32 {
    fn pieces(kept: &mut Kept) -> &mut Vec<Vec<i32>> {
        &mut kept.int32
    }
}

impl Item for i64 {
    fn pieces(kept: &mut Kept) -> &mut Vec<Vec<i64>> {
        &mut kept.int64
    }
}

impl Kept {
    fn remove<T: Item>(&mut self, at: usize) -> Vec<T> {
        let piece = T::pieces(self).remove(at);
        self.size_bytes -= room_bytes(&piece);
        piece
    }

    fn is_full_with(&self, size_bytes: usize) -> bool {
        self.size_bytes + size_bytes > self.max_bytes
    }
}

fn room_bytes<T>(piece: &Vec<T>) -> usize {
    piece.capacity() * size_of::<T>()
}

/// The next larger of eight sizes between two powers of two. Units that differ a little have pieces of one size then.
fn rounded(items: usize) -> usize {
    let step = (items.next_power_of_two() / 16).max(1);
    items.next_multiple_of(step)
}

/// Keeps pieces of `max_bytes` together, by default none, and the decompressors that no thread uses now.
pub struct Spare {
    pieces: Lock<Kept>,
    /// None after `close`.
    codecs: Lock<Option<Vec<Codecs>>>,
}

impl Default for Spare {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Spare {
    pub fn new(max_bytes: usize) -> Self {
        let pieces = Lock::new(Kept { max_bytes, ..Kept::default() });
        Self { pieces, codecs: Lock::new(Some(Vec::new())) }
    }

    /// Decompressors of a thread, until it gives them back.
    pub fn codecs(&self, max_bytes: usize) -> Codecs {
        let kept = self.codecs.get().and_then(|mut kept| kept.as_mut().and_then(Vec::pop));
        kept.map_or_else(|| Codecs::new(max_bytes), |codecs| codecs.within(max_bytes))
    }

    pub fn give_back_codecs(&self, codecs: Codecs) {
        let codecs = codecs.trimmed();
        if let Some(kept) = self.codecs.get().as_deref_mut().and_then(Option::as_mut) {
            kept.push(codecs);
        }
    }

    /// An empty vector with room for `items`: the smallest kept piece that fits, else new memory.
    pub fn take<T: Item>(&self, items: usize) -> Vec<T> {
        if items * size_of::<T>() < MIN_BYTES {
            return Vec::with_capacity(items);
        }
        self.kept_piece(items).unwrap_or_else(|| Vec::with_capacity(rounded(items)))
    }

    fn kept_piece<T: Item>(&self, items: usize) -> Option<Vec<T>> {
        let mut kept = self.pieces.get()?;
        let pieces = T::pieces(&mut kept);
        let fits = |piece: &Vec<T>| piece.capacity() >= items && piece.capacity() <= 2 * items;
        let at = (0..pieces.len()).filter(|&at| fits(&pieces[at])).min_by_key(|&at| pieces[at].capacity())?;
        Some(kept.remove(at))
    }

    /// Keep a piece that is not needed any more. Older ones of its type are freed, as many as it needs the room of.
    pub fn give_back<T: Item>(&self, mut piece: Vec<T>) {
        let size_bytes = room_bytes(&piece);
        if size_bytes < MIN_BYTES {
            return;
        }
        piece.clear();
        let mut freed = Vec::new();
        let Some(mut kept) = self.pieces.get() else { return };
        while kept.is_full_with(size_bytes) && !T::pieces(&mut kept).is_empty() {
            freed.push(kept.remove::<T>(0));
        }
        if !kept.is_full_with(size_bytes) {
            kept.size_bytes += size_bytes;
            T::pieces(&mut kept).push(piece);
        }
        drop(kept); // memory is freed after the lock
    }

    /// Free all pieces and decompressors, and keep none from now on.
    pub fn close(&self) {
        let pieces = self.pieces.get().map(|mut kept| std::mem::take(&mut *kept));
        let freed = (pieces, self.codecs.get().and_then(|mut kept| kept.take()));
        drop(freed); // after the locks
    }
}
