//! Free lists by size: which clean block serves a request.
//!
//! A bin per granule count up to 127 granules, then 64 bins per doubling, with a bitmap over the bins. Blocks of one bin
//! differ by less than 1.6 %, so the first bins that are not empty hold the best fit, or nearly.

use super::arena::Arena;
use super::classes::GRANULE;
use super::record::{Id, NONE, Record};

/// Bits of a size below its highest one that tell bins apart.
const FINE: u32 = 6;
/// Bins for blocks of up to 2^49 bytes.
const BINS: usize = ((40 - FINE as usize - 1) << FINE) + (2 << FINE);
const WORDS: usize = BINS.div_ceil(64);
/// Blocks of a bin that are looked at, before the next bin is.
const SCAN: usize = 16;

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

    /// The best block of at least `need` and less than `limit` bytes. Finds one whenever there is one.
    pub fn pick(&self, arena: Arena, need: u64, limit: u64) -> Option<Id> {
        let mut cut = false;
        let picked = self.pick_within(arena, need, limit, SCAN, &mut cut);
        if picked.is_none() && cut {
            return self.pick_within(arena, need, limit, usize::MAX, &mut cut);
        }
        picked
    }

    fn pick_within(&self, arena: Arena, need: u64, limit: u64, scan: usize, cut: &mut bool) -> Option<Id> {
        let last = bin_of(limit.saturating_sub(1));
        let mut bin = self.filled(bin_of(need))?;
        while bin <= last {
            let mut best: Option<(u64, u64, Id)> = None;
            let mut id = self.heads[bin];
            let mut seen = 0;
            while id != NONE {
                if seen == scan {
                    *cut = true;
                    break;
                }
                seen += 1;
                let record = arena.get(id);
                let size = record.size();
                if size >= need && size < limit {
                    let rank = (size, record.addr());
                    if best.is_none_or(|(size, addr, _)| rank < (size, addr)) {
                        best = Some((rank.0, rank.1, id));
                    }
                }
                id = record.right();
            }
            if let Some((_, _, id)) = best {
                return Some(id);
            }
            bin = self.filled(bin + 1)?;
        }
        None
    }

    /// The best block that `good` accepts, of at least `need` and less than `limit` bytes. May miss some: it looks at few of
    /// the blocks of a bin, and at so many in all.
    pub fn pick_good(
        &self,
        arena: Arena,
        need: u64,
        limit: u64,
        good: impl Fn(&Record) -> bool,
    ) -> Option<Id> {
        let last = bin_of(limit.saturating_sub(1));
        let mut looks = 2 * SCAN;
        let mut bin = self.filled(bin_of(need))?;
        while bin <= last && looks > 0 {
            let mut best: Option<(u64, u64, Id)> = None;
            let mut id = self.heads[bin];
            for _ in 0..SCAN.min(looks) {
                if id == NONE {
                    break;
                }
                looks -= 1;
                let record = arena.get(id);
                let (size, addr) = (record.size(), record.addr());
                let better = best.is_none_or(|(other, at, _)| (size, addr) < (other, at));
                if size >= need && size < limit && better && good(record) {
                    best = Some((size, addr, id));
                }
                id = record.right();
            }
            if let Some((_, _, id)) = best {
                return Some(id);
            }
            bin = self.filled(bin + 1)?;
        }
        None
    }

    /// The largest block, or nearly, if it has less than `limit` bytes.
    pub fn pick_largest(&self, arena: Arena, limit: u64) -> Option<Id> {
        let word = self.summary.checked_ilog2()?;
        let bin = word as usize * 64 + self.words[word as usize].ilog2() as usize;
        let mut best: Option<(u64, Id)> = None;
        let mut id = self.heads[bin];
        for _ in 0..SCAN {
            if id == NONE {
                break;
            }
            let record = arena.get(id);
            let size = record.size();
            if size < limit && best.is_none_or(|(other, _)| size > other) {
                best = Some((size, id));
            }
            id = record.right();
        }
        best.map(|(_, id)| id)
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
