//! Free lists by size: which clean block serves a request.
//!
//! A bin per granule count up to 127 granules, then 64 bins per doubling, with a bitmap over the bins. Blocks of one bin
//! differ by less than 1.6 %, so the first bins that are not empty hold the best fit, or nearly.

use super::arena::Arena;
use super::classes::GRANULE;
use super::record::{Id, NONE};

/// Bits of a size below its highest one that tell bins apart.
const FINE: u32 = 6;
/// Bins for blocks of up to 2^49 bytes.
const BINS: usize = ((40 - FINE as usize - 1) << FINE) + (2 << FINE);
const WORDS: usize = BINS.div_ceil(64);
/// Blocks of a bin that are looked at, before the next bin is.
const SCAN: u32 = 16;

/// Blocks of a bin were passed over.
struct Cut;

/// The clean blocks of a heap.
pub struct Bins {
    /// One a bin; a slice, which is not made by way of a stack that may be small.
    heads: Box<[Id]>,
    words: [u64; WORDS],
    summary: u64,
}

fn bin_of(bytes: u64) -> usize {
    let granules = bytes / GRANULE;
    let shift = granules.max(1 << FINE).ilog2() - FINE;
    (((shift as usize) << FINE) + (granules >> shift) as usize).min(BINS - 1)
}

impl Bins {
    pub fn new() -> Bins {
        Bins { heads: vec![NONE; BINS].into(), words: [0; WORDS], summary: 0 }
    }

    pub fn insert(&mut self, arena: Arena, id: Id) {
        let record = arena.get(id);
        let bin = bin_of(record.size());
        let head = self.heads[bin];
        record.set_left(NONE);
        record.set_right(head);
        if head == NONE {
            self.words[bin / 64] |= 1 << (bin % 64);
            self.summary |= 1 << (bin / 64);
        } else {
            arena.get(head).set_left(id);
        }
        self.heads[bin] = id;
    }

    pub fn remove(&mut self, arena: Arena, id: Id) {
        self.remove_from(arena, id, bin_of(arena.get(id).size()));
    }

    /// Moves a listed block whose size was `old` to the bin of its new size, which is mostly the same.
    #[inline]
    pub fn resized(&mut self, arena: Arena, id: Id, old: u64) {
        let from = bin_of(old);
        if from != bin_of(arena.get(id).size()) {
            self.remove_from(arena, id, from);
            self.insert(arena, id);
        }
    }

    /// Removes a block that was listed with size `old`.
    pub fn remove_sized(&mut self, arena: Arena, id: Id, old: u64) {
        self.remove_from(arena, id, bin_of(old));
    }

    fn remove_from(&mut self, arena: Arena, id: Id, bin: usize) {
        let record = arena.get(id);
        let (left, right) = (record.left(), record.right());
        if right != NONE {
            arena.get(right).set_left(left);
        }
        if left != NONE {
            arena.get(left).set_right(right);
            return;
        }
        self.heads[bin] = right;
        if right == NONE {
            self.words[bin / 64] &= !(1 << (bin % 64));
            if self.words[bin / 64] == 0 {
                self.summary &= !(1 << (bin / 64));
            }
        }
    }

    /// The first bin at or above `bin` that is not empty.
    fn filled(&self, bin: usize) -> Option<usize> {
        if bin >= BINS {
            return None;
        }
        let here = self.words[bin / 64] & (u64::MAX << (bin % 64));
        if here != 0 {
            return Some(bin / 64 * 64 + here.trailing_zeros() as usize);
        }
        let above = self.summary & u64::MAX.checked_shl(bin as u32 / 64 + 1).unwrap_or(0);
        let word = (above != 0).then(|| above.trailing_zeros() as usize)?;
        Some(word * 64 + self.words[word].trailing_zeros() as usize)
    }

    /// The best block of at least `need` and less than `limit` bytes, with its size. Finds one whenever there is one.
    #[inline]
    pub fn pick(&self, arena: Arena, need: u64, limit: u64) -> Option<(Id, u64)> {
        let first = self.filled(bin_of(need))?;
        match self.pick_from::<SCAN>(arena, first, need, limit) {
            Ok(found) => found,
            // Somewhere among many of a bin.
            Err(Cut) => self.pick_from::<{ u32::MAX }>(arena, first, need, limit).unwrap_or(None),
        }
    }

    /// The same from a bin on, which is not empty. `Err` if it found none and has not looked at more than `MOST` blocks of a bin.
    fn pick_from<const MOST: u32>(
        &self,
        arena: Arena,
        first: usize,
        need: u64,
        limit: u64,
    ) -> Result<Option<(Id, u64)>, Cut> {
        let last = if limit == u64::MAX { BINS - 1 } else { bin_of(limit - 1) };
        let (mut bin, mut cut) = (first, false);
        while bin <= last {
            let (mut best, mut smallest) = (NONE, limit);
            let mut id = self.heads[bin];
            let mut left = MOST;
            while id != NONE {
                if left == 0 {
                    cut = true;
                    break;
                }
                left -= 1;
                let record = arena.get(id);
                let size = record.size();
                // Of equals the one that comes first by address.
                let better = size < smallest
                    || (size == smallest && best != NONE && record.addr() < arena.get(best).addr());
                if size >= need && better {
                    (best, smallest) = (id, size);
                }
                id = record.right();
            }
            if best != NONE {
                return Ok(Some((best, smallest)));
            }
            let Some(next) = self.filled(bin + 1) else { break };
            bin = next;
        }
        if cut { Err(Cut) } else { Ok(None) }
    }

    /// The largest block, or nearly, if it has less than `limit` bytes; with its size.
    pub fn pick_largest(&self, arena: Arena, limit: u64) -> Option<(Id, u64)> {
        let word = self.summary.checked_ilog2()?;
        let bin = word as usize * 64 + self.words[word as usize].ilog2() as usize;
        let mut best: Option<(Id, u64)> = None;
        let mut id = self.heads[bin];
        for _ in 0..SCAN {
            if id == NONE {
                break;
            }
            let record = arena.get(id);
            let size = record.size();
            if size < limit && best.is_none_or(|(_, other)| size > other) {
                best = Some((id, size));
            }
            id = record.right();
        }
        best
    }

    /// Size of the largest block in bytes; 0 when there is none. O(blocks of about that size); for tests.
    #[cfg(any(test, fuzzing))]
    pub fn largest(&self, arena: Arena) -> u64 {
        let Some(word) = self.summary.checked_ilog2() else { return 0 };
        let bin = word as usize * 64 + self.words[word as usize].ilog2() as usize;
        let mut largest = 0;
        let mut id = self.heads[bin];
        while id != NONE {
            largest = largest.max(arena.get(id).size());
            id = arena.get(id).right();
        }
        largest
    }

    /// Every block with the bin it is in; for checks.
    pub fn all(&self, arena: Arena) -> Vec<(Id, bool)> {
        let mut all = Vec::new();
        for (bin, &head) in self.heads.iter().enumerate() {
            let marked = self.words[bin / 64] >> (bin % 64) & 1 == 1 && self.summary >> (bin / 64) & 1 == 1;
            let mut id = head;
            while id != NONE {
                all.push((id, marked && bin_of(arena.get(id).size()) == bin));
                id = arena.get(id).right();
            }
        }
        all
    }
}
