//! The range's choices: where to map memory for a request that no free block serves, and which free pieces to take
//! for it. They were chosen by simulation on the allocations of real programs (`benches/NOTES.md`).
//!
//! **Where.** A request fits into a *window*: neighbouring free blocks and gaps, or free blocks at the region's end and what
//! lies beyond. The window with the fewest bytes to map is taken, for mapping costs by the handle; among equals the
//! lowest, so that gaps are filled before the region grows.
//!
//! **What.** Handles that are mapped nowhere; then wholly free pieces with which the GPU is done, the highest first, so that
//! the region's end comes down again; then new handles. How many pieces are taken the caller says, by how much may be new.
//!
//! **How large.** The driver's cost is by the handle, and a piece with one live byte in it can be moved nowhere. So a new handle is
//! 2 MiB in a small range and for a small request, and grows with both up to 16 MiB: what is mapped for one large request
//! mostly becomes free as a whole.

use super::Epoch;
use super::heap::Heap;
use super::range::Piece;
use super::record::{Id, NONE, Record, State};
use super::region::PAGE;

/// A new handle is this part of what the range holds, or that of what is to be mapped if this is more, and no larger than the
/// limits: a part of what the range holds again, for programs that cut one large block into many and free every other one.
const PIECE_SHARE: u64 = 1024;
const GROWTH_SHARE: u64 = 64;
const MOST_SHARE: u64 = 256;
const PIECE_MAX: u64 = 16 << 20;

/// How memory for a request is to be mapped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Pieces that were taken for it, each with the address to map it at. Those that are mapped (their address is not 0)
    /// must be unmapped first.
    pub moves: Vec<(Piece, u64)>,
    /// Where to map new handles: address and size.
    pub makes: Vec<(u64, u64)>,
    /// The stretches that all these fill: address and size.
    pub spans: Vec<(u64, u64)>,
}

impl Plan {
    /// Bytes of new handles.
    pub fn fresh(&self) -> u64 {
        self.makes.iter().map(|(_, size)| size).sum()
    }
}

/// A window, and what must be mapped in it.
struct Room {
    /// Stretches to map, by address: start and size, multiples of 2 MiB.
    parts: Vec<(u64, u64)>,
    /// Start and end of the window.
    window: (u64, u64),
    /// Whether nothing follows the last part, so that more than its size may be mapped there.
    open: bool,
}

impl Room {
    /// Whether all that must be mapped lies beyond the region's end, where pieces of any size fit.
    fn is_beyond(&self) -> bool {
        self.open && self.parts.len() == 1
    }
}

/// A block of a run of free memory and gaps.
#[derive(Clone, Copy)]
struct Link {
    addr: u64,
    size: u64,
    gap: bool,
}

/// A piece that may be taken.
struct Candidate {
    addr: u64,
    size: u64,
}

impl Heap {
    /// Plans how to map memory so that `need` bytes, a multiple of 512, are served: at most `fresh` of new handles where
    /// free pieces suffice for the rest. `None` without a range, or when its addresses are used up; a plan may still need
    /// more than `fresh`. Its pieces are out of the heap: [`attach`](Heap::attach) them or [`abandon`](Heap::abandon) it.
    pub fn plan(&mut self, need: u64, fresh: u64, completed: Epoch) -> Option<Plan> {
        let room = self.room(need)?;
        let plan = self.fill_room(&room, fresh, completed);
        if room.is_beyond() || plan.fresh() <= fresh {
            return Some(plan);
        }
        // Not every piece fits into a gap. Anything fits at the end.
        let least = plan.fresh();
        self.abandon(plan);
        if let Some(beyond) = self.room_beyond(need, self.tail()) {
            let plan = self.fill_room(&beyond, fresh, completed);
            if plan.fresh() < least {
                return Some(plan);
            }
            self.abandon(plan);
        }
        Some(self.fill_room(&room, fresh, completed))
    }

    /// The same, without counting on any free block that another thread could take meanwhile.
    pub fn plan_apart(&mut self, need: u64, fresh: u64, completed: Epoch) -> Option<Plan> {
        let room = self.room_beyond(need, self.open_end())?;
        Some(self.fill_room(&room, fresh, completed))
    }

    /// Puts everything back that a plan has taken.
    pub fn abandon(&mut self, plan: Plan) {
        for (piece, _) in plan.moves {
            self.restore(piece);
        }
    }

    /// Puts back a piece that was taken and is mapped where it was, or nowhere.
    pub fn restore(&mut self, piece: Piece) {
        if piece.addr == 0 {
            self.keep_loose(piece);
        } else if !self.attach(piece) {
            self.keep_stuck(piece);
        }
    }

    /// Takes wholly free pieces that the GPU is done with, at least `bytes` of them or all there are, to give them back.
    pub fn take_pieces(&mut self, bytes: u64, completed: Epoch) -> Vec<Piece> {
        let mut taken = self.take_loose();
        let mut sum: u64 = taken.iter().map(|piece| piece.size).sum();
        for candidate in self.candidates(completed, (0, 0)) {
            if sum >= bytes {
                break;
            }
            if let Some(piece) = self.detach(candidate.addr) {
                sum += piece.size;
                taken.push(piece);
            }
        }
        taken
    }

    /// Bytes of pieces in which nothing is live, whether or not the GPU is done with them; and of loose handles.
    /// O(pieces).
    pub fn range_idle(&self) -> u64 {
        let Some(range) = &self.range else { return 0 };
        let arena = self.arena;
        let free = |addr: u64, size: u64| {
            let mut id = self.block_of_page(addr).unwrap_or(NONE);
            while id != NONE && arena.get(id).addr() < addr + size {
                if !self.is_free(id) {
                    return false;
                }
                id = arena.get(id).next();
            }
            true
        };
        let pieces = range.pieces.iter().filter(|(addr, (size, _))| free(**addr, *size));
        pieces.map(|(_, (size, _))| size).sum::<u64>()
            + range.loose.iter().map(|piece| piece.size).sum::<u64>()
    }

    /// The wholly free pieces that the GPU is done with: address, size, and the newest epoch of a free in it.
    pub fn idle_pieces(&self, completed: Epoch) -> Vec<(u64, u64, Epoch)> {
        let Some(range) = &self.range else { return Vec::new() };
        let newest = |one: &Candidate| {
            let (first, end) = range.pages(one.addr, one.size);
            range.used[first..end].iter().copied().max().unwrap_or(0)
        };
        self.candidates(completed, (0, 0)).iter().map(|one| (one.addr, one.size, newest(one))).collect()
    }

    /// Takes the piece at `addr` if it is still wholly free.
    pub fn take_piece(&mut self, addr: u64) -> Option<Piece> {
        self.detach(addr)
    }

    /// Size of a new handle for a stretch of `growth` bytes while the range holds `reserved` bytes.
    fn piece_size(reserved: u64, growth: u64) -> u64 {
        let for_growth = (growth / GROWTH_SHARE).min(reserved / MOST_SHARE);
        let share = (reserved / PIECE_SHARE).max(for_growth).clamp(PAGE, PIECE_MAX);
        1 << share.ilog2()
    }

    /// Fills a room with loose handles, free pieces and new handles.
    fn fill_room(&mut self, room: &Room, fresh: u64, completed: Epoch) -> Plan {
        let bytes: u64 = room.parts.iter().map(|(_, size)| size).sum();
        let mut wanted = bytes.saturating_sub(fresh);
        let mut loose = self.take_loose();
        let mut free = if wanted > 0 { self.candidates(completed, room.window) } else { Vec::new() };
        let mut reserved = self.gauges.reserved.current;
        let mut plan = Plan::default();
        let last = room.parts.len() - 1;
        for (number, &(start, size)) in room.parts.iter().enumerate() {
            let (mut at, end) = (start, start + size);
            let fits = |at: u64, size: u64| at < end && (at + size <= end || (room.open && number == last));
            loose.retain(|piece| {
                let take = fits(at, piece.size);
                if take {
                    plan.moves.push((Piece { addr: 0, ..*piece }, at));
                    at += piece.size;
                    wanted = wanted.saturating_sub(piece.size);
                }
                !take
            });
            free.retain(|one| {
                let take = wanted > 0 && fits(at, one.size);
                if take && let Some(piece) = self.detach(one.addr) {
                    plan.moves.push((piece, at));
                    at += piece.size;
                    wanted = wanted.saturating_sub(piece.size);
                }
                !take
            });
            while at < end {
                let size = Heap::piece_size(reserved, size).min(end - at);
                plan.makes.push((at, size));
                at += size;
                reserved += size;
            }
            plan.spans.push((start, at - start));
        }
        for piece in loose {
            self.keep_loose(piece);
        }
        plan
    }

    /// The wholly free pieces that the GPU is done with, outside `spared`; the highest first.
    fn candidates(&self, completed: Epoch, spared: (u64, u64)) -> Vec<Candidate> {
        let Some(range) = &self.range else { return Vec::new() };
        let done = |addr: u64, size: u64| {
            let (first, end) = range.pages(addr, size);
            range.used[first..end].iter().all(|epoch| *epoch <= completed)
        };
        let pieces = range.pieces.iter().rev().map(|(&addr, &(size, _))| Candidate { addr, size });
        pieces
            .filter(|one| one.addr >= spared.1 || one.addr + one.size <= spared.0)
            .filter(|one| self.clean_cover(one.addr, one.size).is_some() && done(one.addr, one.size))
            .collect()
    }

    /// The best window for `need` bytes.
    fn room(&self, need: u64) -> Option<Room> {
        let range = self.range.as_ref()?;
        let mut best = self.room_at_end(need);
        let mut seen = 0;
        for &gap in range.gaps.keys() {
            // A run may have several gaps.
            let Some(id) = self.block_of_page(gap).filter(|_| gap >= seen) else { continue };
            let run = self.run_around(id);
            seen = run.last().map_or(seen, |link| link.addr + link.size.max(1));
            if seen >= self.range_end() {
                break; // the run at the end has been looked at
            }
            for at in 0..run.len() {
                for upwards in [true, false] {
                    best = better(best, window(&run, at, need, upwards));
                }
            }
        }
        best
    }

    /// The best window of those that reach beyond the region's end.
    fn room_at_end(&self, need: u64) -> Option<Room> {
        let range = self.range.as_ref()?;
        let end = self.open_end();
        let last = self.last_of_range().filter(|&last| self.is_open(last));
        let mut run = last.map(|last| self.run_around(last)).unwrap_or_default();
        if end < range.end {
            run.push(Link { addr: end, size: range.end - end, gap: true });
        }
        let mut best = None;
        for at in 0..run.len() {
            let room = window(&run, at, need, true).map(|room| {
                let open = room.parts.last().is_some_and(|(start, size)| start + size > end);
                Room { open, ..room }
            });
            best = better(best, room);
        }
        best
    }

    /// The window from `start`, which nothing but free memory follows, of which all that must be mapped lies beyond the region's end.
    fn room_beyond(&self, need: u64, start: u64) -> Option<Room> {
        let (end, most) = (self.open_end(), self.range.as_ref()?.end);
        let size = need.checked_sub(end - start)?.checked_next_multiple_of(PAGE)?;
        let parts = vec![(end, size)];
        (size > 0 && size <= most - end).then_some(Room { parts, window: (start, start + need), open: true })
    }

    /// Start of the clean block at the region's end; or the end, without one.
    fn tail(&self) -> u64 {
        let last = self.last_of_range().map(|last| self.arena.get(last));
        last.filter(|last| last.state() == State::Clean).map_or(self.open_end(), Record::addr)
    }

    /// The block at the region's end, if new memory could be mapped right behind it.
    fn last_of_range(&self) -> Option<Id> {
        let slot = self.range.as_ref()?.slot.filter(|_| self.open_end() == self.range_end())?;
        self.last_block(slot)
    }

    /// Where nothing is mapped any more: the region's end, or beyond it that of a handle which could not be unmapped.
    fn open_end(&self) -> u64 {
        let stuck = self.range.iter().flat_map(|range| &range.stuck);
        stuck.map(|piece| piece.addr + piece.size).fold(self.range_end(), u64::max)
    }

    /// A free block, whether or not its epoch is over.
    fn is_free(&self, id: Id) -> bool {
        let record = self.arena.get(id);
        match record.state() {
            State::Clean | State::Pending => true,
            State::Slab => self.slabs[(record.tag() >> 8) as usize].live == 0,
            State::Unused | State::Live | State::Claimed | State::Cached | State::Gap => false,
        }
    }

    fn is_open(&self, id: Id) -> bool {
        matches!(self.arena.get(id).state(), State::Clean | State::Gap)
    }

    /// The run of clean blocks and gaps that `id` belongs to, by address.
    fn run_around(&self, id: Id) -> Vec<Link> {
        let arena = self.arena;
        let mut first = id;
        while arena.get(first).prev() != NONE && self.is_open(arena.get(first).prev()) {
            first = arena.get(first).prev();
        }
        let stuck = self.range.as_ref().map_or(&[][..], |range| &range.stuck);
        let mut run = Vec::new();
        let mut id = first;
        while id != NONE && self.is_open(id) {
            let record = arena.get(id);
            let (addr, gap) = (record.addr(), record.state() == State::Gap);
            // A gap in which something is still mapped is left alone: one of no size, which no window crosses.
            let blocked = gap && stuck.iter().any(|piece| piece.addr >= addr && piece.addr < record.end());
            run.push(Link { addr, size: if blocked { 0 } else { record.size() }, gap });
            id = record.next();
        }
        run
    }
}

/// The one with less to map; among equals the lower.
fn better(one: Option<Room>, other: Option<Room>) -> Option<Room> {
    let rank = |room: &Room| (room.parts.iter().map(|(_, size)| size).sum::<u64>(), room.window.0);
    match (one, other) {
        (Some(one), Some(other)) => Some(if rank(&other) < rank(&one) { other } else { one }),
        (one, other) => one.or(other),
    }
}

/// The window of `run` for `need` bytes that begins with link `at` and goes upwards, or ends with it and goes downwards.
fn window(run: &[Link], at: usize, need: u64, upwards: bool) -> Option<Room> {
    let (start, end) = (run[at].addr, run[at].addr + run[at].size);
    let (mut parts, mut left, mut index) = (Vec::new(), need, at);
    loop {
        let link = run.get(index).filter(|link| link.size > 0)?;
        let used = left.min(link.size);
        if link.gap {
            let size = used.next_multiple_of(PAGE);
            parts.push((if upwards { link.addr } else { link.addr + link.size - size }, size));
        }
        left -= used;
        if left == 0 {
            break;
        }
        index = if upwards { index + 1 } else { index.checked_sub(1)? };
    }
    if !upwards {
        parts.reverse();
    }
    let window = if upwards { (start, start + need) } else { (end - need, end) };
    // Without a part it is a free block, which would have served.
    (!parts.is_empty()).then_some(Room { parts, window, open: false })
}
