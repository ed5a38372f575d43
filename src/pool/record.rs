//! The record of a block, and the arena that holds all records of the process.
//!
//! Records are atomics in memory that is never given back, so that a free can look a block up and claim it without any
//! lock, whatever the lock's holder does meanwhile. Only `word` decides; everything else that a reader without the lock
//! sees is a hint which the compare-exchange on `word` proves or refutes.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::classes::{CLASSES, class};

/// Number of a record; [`NONE`] is no record.
pub type Id = u32;
/// The number that no record has.
pub const NONE: Id = 0;

/// The state of a block: the low four bits of its record's word. The rest of the word is the block's
/// address, so that one compare-exchange proves address and state together, however often the record was recycled.
///
/// | state | block level | object of a slab | set by | next |
/// |---|---|---|---|---|
/// | `Unused` | the record describes nothing | the same | lock holder | any |
/// | `Clean` | free, reusable, in a bin | never (a free object stays `Pending`, its epoch tells) | lock holder | `Live`, `Slab`, `Unused` |
/// | `Pending` | freed under an epoch, in the first-in-first-out queue | free, in its slab's queue | lock holder | `Clean`, `Unused`; object: `Live` |
/// | `Live` | the program's | the same | lock holder | `Claimed` only |
/// | `Claimed` | freed, on its way into the heap: belongs to whoever won the exchange | the same | **anybody**, by compare-exchange from `Live` | `Pending`, `Clean` |
/// | `Slab` | carved into objects | never | lock holder | `Pending`, `Clean`, `Unused` |
/// | `Gap` | addresses without memory, in a range only | never | lock holder | `Clean`, `Unused` |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// Describes nothing.
    Unused = 0,
    /// Free and reusable.
    Clean = 1,
    /// Free, but work submitted before its epoch may still use it.
    Pending = 2,
    /// The program's.
    Live = 3,
    /// Taken from the program by a free that has not reached the heap yet.
    Claimed = 4,
    /// Carved into objects of one size class.
    Slab = 5,
    /// Addresses of the range that nothing is mapped at: in no list.
    Gap = 6,
}

fn pack(addr: u64, state: State) -> u64 {
    addr << 4 | state as u64
}

/// What is known of one block, or of one object of a slab. Plain getters and setters are relaxed: the lock orders them.
#[derive(Default)]
#[repr(C, align(64))]
pub struct Record {
    word: AtomicU64,
    /// Bytes of the block.
    size: AtomicU64,
    /// Bytes that the program asked for.
    requested: AtomicU64,
    /// Of a free block the epoch of the free; of a live one its serial number.
    epoch: AtomicU64,
    /// Neighbour below in the region; of an object: its slab.
    prev: AtomicU32,
    /// Neighbour above in the region.
    next: AtomicU32,
    /// Links of the one list that the block is in: a bin, the pending queue, a slab's queue, the spare records.
    left: AtomicU32,
    right: AtomicU32,
    /// Slot of the region.
    region: AtomicU32,
    /// Number of the heap.
    owner: AtomicU32,
    /// Of a slab: the record of its first object; the others follow it.
    first: AtomicU32,
    /// Of a slab: its slot in the heap's table, and in the low eight bits its class.
    tag: AtomicU32,
}

macro_rules! fields {
    ($($get:ident $set:ident $type:ty),+ $(,)?) => {$(
        pub fn $get(&self) -> $type { self.$get.load(Ordering::Relaxed) }
        pub fn $set(&self, value: $type) { self.$get.store(value, Ordering::Relaxed); }
    )+};
}

impl Record {
    fields! {
        size set_size u64, requested set_requested u64, epoch set_epoch u64,
        prev set_prev Id, next set_next Id, left set_left Id, right set_right Id,
        region set_region u32, owner set_owner u32, first set_first Id, tag set_tag u32,
    }

    /// Number of the allocation that a live block serves: no two of a heap have the same.
    pub fn serial(&self) -> u64 {
        self.epoch()
    }

    /// See [`Record::serial`]; before the block becomes live.
    pub fn set_serial(&self, serial: u64) {
        self.set_epoch(serial);
    }

    /// Address and state, as one consistent pair.
    pub fn word(&self) -> (u64, State) {
        let word = self.word.load(Ordering::Acquire);
        let state = match word & 15 {
            1 => State::Clean,
            2 => State::Pending,
            3 => State::Live,
            4 => State::Claimed,
            5 => State::Slab,
            6 => State::Gap,
            _ => State::Unused,
        };
        (word >> 4, state)
    }

    pub fn addr(&self) -> u64 {
        self.word().0
    }

    pub fn state(&self) -> State {
        self.word().1
    }

    /// End of the block, exclusive.
    pub fn end(&self) -> u64 {
        self.addr() + self.size()
    }

    /// By the lock's holder only, and never on a `Live` block.
    pub fn set_word(&self, addr: u64, state: State) {
        self.word.store(pack(addr, state), Ordering::Release);
    }

    pub fn set_state(&self, state: State) {
        self.set_word(self.addr(), state);
    }

    /// Takes the live block at `addr` from the program. Exactly one of racing callers gets true. Sequentially
    /// consistent: what the caller submitted to the GPU before it, comes before an epoch that it reads (also
    /// sequentially consistent) after it.
    pub fn claim(&self, addr: u64) -> bool {
        let (live, claimed) = (pack(addr, State::Live), pack(addr, State::Claimed));
        self.word.compare_exchange(live, claimed, Ordering::SeqCst, Ordering::Acquire).is_ok()
    }
}

/// Records per chunk: 256 KiB, small against what it describes.
const CHUNK: u32 = 4096;
/// Chunks: 33 million records.
const CHUNKS: usize = 8192;
/// Records that a heap takes at once.
const BATCH: u32 = 64;

type Chunk = Box<[Record; CHUNK as usize]>;

/// All records of the process. Chunks are only ever added; heaps recycle their records and leave them here when they
/// end.
pub struct Arena {
    chunks: [OnceLock<Chunk>; CHUNKS],
    spare: Mutex<Spare>,
}

struct Spare {
    /// First record never handed out.
    fresh: u32,
    /// Chains of single records, linked through `right`, left behind by ended heaps.
    chains: Vec<Id>,
    /// The same for the runs of each class, linked through the first record's `right`.
    runs: [Vec<Id>; CLASSES],
}

impl Arena {
    #[allow(clippy::large_stack_arrays)] // Made for a static.
    pub const fn new() -> Arena {
        Arena {
            chunks: [const { OnceLock::new() }; CHUNKS],
            spare: Mutex::new(Spare {
                fresh: NONE + 1,
                chains: Vec::new(),
                runs: [const { Vec::new() }; CLASSES],
            }),
        }
    }

    /// The record `id`. A number that was never handed out gets the record of [`NONE`], which describes nothing: a
    /// reader without the lock may follow a number that is out of date.
    #[inline]
    pub fn get(&self, id: Id) -> &Record {
        match self.chunks.get((id / CHUNK) as usize).and_then(OnceLock::get) {
            Some(chunk) => &chunk[(id % CHUNK) as usize],
            None => nothing(),
        }
    }

    /// A chain of single records, linked through `right`; [`NONE`] when the arena is full.
    pub fn take_chain(&self) -> Id {
        let mut spare = self.spare.lock();
        if let Some(chain) = spare.chains.pop() {
            return chain;
        }
        let Some(first) = self.bump(&mut spare, BATCH) else { return NONE };
        drop(spare);
        for id in first..first + BATCH - 1 {
            self.get(id).set_right(id + 1);
        }
        first
    }

    /// Consecutive records for the objects of a slab of `number`; [`NONE`] when the arena is full.
    pub fn take_run(&self, number: usize) -> Id {
        let mut spare = self.spare.lock();
        match spare.runs[number].pop() {
            Some(run) => run,
            None => self.bump(&mut spare, class(number).capacity).unwrap_or(NONE),
        }
    }

    /// Consecutive records of one chunk, never handed out before; `None` when the arena is full.
    fn bump(&self, spare: &mut Spare, records: u32) -> Option<Id> {
        let mut first = spare.fresh;
        if first % CHUNK + records > CHUNK {
            first = first.next_multiple_of(CHUNK);
        }
        let chunk = self.chunks.get((first / CHUNK) as usize)?;
        if chunk.get().is_none() {
            let records: Vec<Record> = (0..CHUNK).map(|_| Record::default()).collect();
            chunk.set(Chunk::try_from(records).ok()?).ok()?;
        }
        spare.fresh = first + records;
        Some(first)
    }

    /// Takes back the records of a heap that ends: a chain of singles, and a chain of runs per class.
    pub fn give_back(&self, chain: Id, runs: &[Id; CLASSES]) {
        let mut spare = self.spare.lock();
        if chain != NONE {
            spare.chains.push(chain);
        }
        for (class, &run) in runs.iter().enumerate() {
            let mut run = run;
            while run != NONE {
                let next = self.get(run).right();
                spare.runs[class].push(run);
                run = next;
            }
        }
    }

    /// Records handed out so far, in use or recycled.
    pub fn handed_out(&self) -> u32 {
        self.spare.lock().fresh - 1
    }
}

/// The record of no block.
#[cold]
fn nothing() -> &'static Record {
    static NOTHING: OnceLock<Record> = OnceLock::new();
    NOTHING.get_or_init(Record::default)
}
