//! What goes into the history from here: growth, returns, waits and high-water marks, each told where the pool changes. Where
//! no history is kept, each of these is one comparison.

use super::Gpu;
use super::books::DeviceBooks;
use super::inner::Inner;
use super::server::Server;
use super::survey::draw;
use crate::pool::{Piece, Usage};
use crate::report::history::{Map, What};
use parking_lot::Mutex;

/// Blocks that the map of the high-water mark has room for.
const DRAWN_AT_PEAK: usize = 8192;
/// A pool of no more live blocks is drawn at each mark: that takes no longer than the driver's call before it.
const DRAWN_EACH_TIME: u64 = 2048;
/// The map of a larger pool is drawn anew once the mark has risen by this part of what it was.
const RISE: u64 = 64;

/// Who keeps a device's history, and how its memory lay at the high-water mark.
pub struct Chronicle {
    /// Told of what happens.
    pub tell: fn(books: &DeviceBooks, note: Note),
    /// What the pool with the highest mark held when it was last drawn, and how that lay.
    pub peak: Mutex<(u64, Map)>,
}

/// Something that has happened to a pool.
#[derive(Clone, Copy, Debug)]
pub struct Note {
    /// What.
    pub what: What,
    /// Number of the pool.
    pub pool: u32,
    /// Where; 0 where that means nothing.
    pub address: u64,
    /// How much.
    pub bytes: u64,
    /// Bytes of the pool's blocks in use.
    pub allocated: u64,
}

impl<G: Gpu> Server<G> {
    /// Tells that something has happened; the caller holds no lock of the pool's heap.
    pub(super) fn chronicle(&self, what: What, address: u64, bytes: u64) {
        let Some(chronicle) = &self.books.chronicle else { return };
        let (_, allocated) = self.in_use();
        (chronicle.tell)(self.books, Note { what, pool: self.owner, address, bytes, allocated });
    }

    /// The same of memory that an expandable range has got or lost.
    pub(super) fn chronicle_piece(&self, what: What, piece: &Piece) {
        // What is mapped nowhere was told of when it was unmapped.
        if piece.addr != 0 {
            self.chronicle(what, piece.addr, piece.size);
        }
    }

    /// A range has grown: pieces were moved to the addresses beside them, and others made.
    pub(super) fn chronicle_growth(&self, moved: &[(Piece, u64)], made: &[Piece]) {
        for (piece, to) in moved {
            self.chronicle_piece(What::SegmentUnmap, piece);
            self.chronicle_piece(What::SegmentMap, &Piece { addr: *to, ..*piece });
        }
        for piece in made {
            self.chronicle_piece(What::SegmentMap, piece);
        }
    }

    /// Number of the pool.
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// Whether its memory comes from an expandable range.
    pub fn expands(&self) -> bool {
        self.range_in_use()
    }

    /// Bytes of blocks in use: exact where the heap's lock is free, else as they were last left.
    pub fn passing_use(&self) -> u64 {
        match self.inner.try_lock() {
            Some(inner) => self.caches.in_use(&inner.heap).1,
            None => self.glimpse().allocated,
        }
    }

    /// The pool's memory is gone with its context: all that was allocated in it has ended.
    pub(super) fn chronicle_end(&self) {
        if self.books.chronicle.is_none() {
            return;
        }
        let mut map = Map::default();
        draw(&self.locked().heap, 0, &mut map);
        for segment in map.segments {
            let what = if segment.expandable { What::SegmentUnmap } else { What::SegmentFree };
            self.chronicle(what, segment.address, segment.bytes);
        }
    }

    /// The pool holds as much as ever or more: tells of a mark above `before`, and draws how the memory lies.
    pub(super) fn chronicle_peak(&self, inner: &Inner, usage: &Usage, before: u64) {
        let Some(chronicle) = &self.books.chronicle else { return };
        let reserved = usage.reserved.current;
        let allocated = usage.allocated.current;
        if reserved > before {
            let note = Note { what: What::Peak, pool: self.owner, address: 0, bytes: before, allocated };
            (chronicle.tell)(self.books, note);
        }
        // Never waited for: another pool of the device is being drawn.
        let Some(mut peak) = chronicle.peak.try_lock() else { return };
        let due = if usage.live_blocks <= DRAWN_EACH_TIME { 0 } else { peak.0 / RISE };
        if reserved >= peak.0 + due {
            let (drawn, map) = &mut *peak;
            *drawn = reserved;
            *map = Map::default();
            draw(&inner.heap, DRAWN_AT_PEAK, map);
        }
    }
}
