//! The heap's books: plain sums, kept as it goes, so that a report costs nothing to make.

/// A sum of bytes with its history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauge {
    /// Now.
    pub current: u64,
    /// The most it ever was.
    pub peak: u64,
    /// The most it was since somebody last took this figure ([`Caches::take_recent`](super::Caches::take_recent)).
    pub recent: u64,
    /// All that was ever added.
    pub total_allocated: u64,
}

impl Gauge {
    pub(super) fn add(&mut self, bytes: u64) {
        self.current = self.current.wrapping_add(bytes);
        self.total_allocated += bytes;
        self.mark(self.current);
    }

    pub(super) fn sub(&mut self, bytes: u64) {
        self.current = self.current.wrapping_sub(bytes);
    }

    /// It was `bytes` once. What thread caches have counted and the heap has not yet can leave a sum below zero for a while.
    pub(super) fn mark(&mut self, bytes: u64) {
        if bytes.cast_signed() > self.peak.cast_signed() {
            self.peak = bytes;
        }
        if bytes.cast_signed() > self.recent.cast_signed() {
            self.recent = bytes;
        }
    }

    /// Adds what a thread has counted: `delta` in sum, `high` at the highest.
    pub(super) fn settle(&mut self, delta: u64, high: u64) {
        self.mark(self.current.wrapping_add(high));
        self.current = self.current.wrapping_add(delta);
    }

    /// What it was at its highest is known from `seen`, which lacks nothing that thread caches have counted; from now on
    /// `recent` is the most from now on.
    pub(super) fn begin_recent(&mut self, seen: &Gauge) {
        self.mark(seen.peak);
        self.recent = seen.current;
    }

    /// Adds a gauge of other memory. The peak becomes the sum of both: an upper bound, as the two need not have been
    /// highest at the same time.
    pub fn merge(&mut self, other: &Gauge) {
        self.current += other.current;
        self.peak += other.peak;
        self.recent += other.recent;
        self.total_allocated += other.total_allocated;
    }

    /// All that was ever taken off again.
    pub fn total_freed(&self) -> u64 {
        self.total_allocated.saturating_sub(self.current)
    }
}

/// `requested`, `allocated` and `live_blocks` lack what thread caches have counted since they last settled.
#[derive(Default)]
pub(super) struct Gauges {
    pub requested: Gauge,
    pub allocated: Gauge,
    pub reserved: Gauge,
    /// Pending blocks, not counting objects of slabs.
    pub pending: u64,
    /// Clean blocks, not counting objects of slabs.
    pub clean: u64,
    /// Slabs, whole.
    pub slabs: u64,
    /// Objects of slabs that are out: live, claimed or cached.
    pub objects: u64,
    /// Regions without a block that is out.
    pub idle: u64,
    pub live_blocks: u64,
}

impl Gauges {
    /// A block becomes the program's.
    pub fn win(&mut self, size: u64, requested: u64) {
        self.requested.add(requested);
        self.allocated.add(size);
        self.live_blocks = self.live_blocks.wrapping_add(1);
    }

    /// A block is the program's no longer.
    pub fn lose(&mut self, size: u64, requested: u64) {
        self.requested.sub(requested);
        self.allocated.sub(size);
        self.live_blocks = self.live_blocks.wrapping_sub(1);
    }
}

/// What a heap holds, in bytes unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// What the program asked for and holds.
    pub requested: Gauge,
    /// The blocks it got for that.
    pub allocated: Gauge,
    /// Regions taken from the driver.
    pub reserved: Gauge,
    /// Free blocks whose epoch is not over; free objects of slabs are in `cached_objects` instead.
    pub pending: u64,
    /// Free, reusable blocks.
    pub clean: u64,
    /// Free space in slabs, clean or pending.
    pub cached_objects: u64,
    /// Regions without a live block: what can be given back to the driver.
    pub idle: u64,
    /// The largest piece of free memory, pending or clean: [`Heap::largest_free`](super::Heap::largest_free).
    pub largest_free: u64,
    /// Number of blocks that the program holds.
    pub live_blocks: u64,
}

impl Usage {
    /// Adds what another heap holds, for the sum of all heaps of a device. Everything adds up, but the largest free piece,
    /// which is the larger of the two; peaks become upper bounds, see [`Gauge::merge`].
    pub fn merge(&mut self, other: &Usage) {
        self.requested.merge(&other.requested);
        self.allocated.merge(&other.allocated);
        self.reserved.merge(&other.reserved);
        self.pending += other.pending;
        self.clean += other.clean;
        self.cached_objects += other.cached_objects;
        self.idle += other.idle;
        self.largest_free = self.largest_free.max(other.largest_free);
        self.live_blocks += other.live_blocks;
    }

    /// What is below zero, because a thread counted something while its figures were read, is zero.
    pub(super) fn clamp(&mut self) {
        let figures = [&mut self.requested, &mut self.allocated]
            .into_iter()
            .flat_map(|gauge| [&mut gauge.current, &mut gauge.peak, &mut gauge.recent]);
        for figure in figures.chain([&mut self.live_blocks]) {
            if figure.cast_signed() < 0 {
                *figure = 0;
            }
        }
    }

    /// Bytes of the regions that are in no block of the program's.
    pub fn free(&self) -> u64 {
        self.reserved.current.saturating_sub(self.allocated.current)
    }
}
