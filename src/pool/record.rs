//! The record of a block.
//!
//! Records are atomics in memory that is never given back, so that a free can look a block up and claim it without any
//! lock, whatever the lock's holder does meanwhile. Only `word` decides; everything else that a reader without the lock
//! sees is a hint which the compare-exchange on `word` proves or refutes.

#[cfg(not(loom))]
use zerocopy::{FromBytes, IntoBytes, KnownLayout};

use super::classes::GRANULE;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Number of a record; [`NONE`] is no record.
pub type Id = u32;
/// The number that no record has.
pub const NONE: Id = 0;

/// The state of a block: the low four bits of its record's word. Above them stands, of a cached block, the [`Place`] that it
/// is cached in; the rest is the block's address. So one compare-exchange proves address, state and place together, however
/// often the record was recycled.
///
/// | state | block level | object of a slab | set by | next |
/// |---|---|---|---|---|
/// | `Unused` | the record describes nothing | the same | lock holder | any |
/// | `Clean` | free, reusable, in a bin | never (a free object stays `Pending`, its epoch tells) | lock holder | `Live`, `Slab`, `Unused` |
/// | `Pending` | freed under an epoch, in the first-in-first-out queue | free, in its slab's queue | lock holder | `Clean`, `Unused`; object: `Live` |
/// | `Live` | the program's | the same | lock holder; by compare-exchange from `Cached` the thread whose cache it is | `Claimed`, `Cached` |
/// | `Claimed` | freed, on its way into the heap: belongs to whoever won the exchange | the same | **anybody**, by compare-exchange from `Live` | `Pending`, `Clean` |
/// | `Cached` | freed, in a thread's cache, in the depot or between them; to the heap it is out | the same | **anybody**, by compare-exchange from `Live` or another `Cached`; lock holder | `Live`, `Pending`, `Clean` |
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
    /// Freed, and kept by a thread's cache.
    Cached = 6,
    /// Addresses of the range that nothing is mapped at: in no list.
    Gap = 7,
}

/// Where a block is cached: the number of the cache and of the cell in it. No two caches of the process share a number, so
/// a cell whose place a record's word names holds the block, and one that it does not name has lost it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(u32);

impl Place {
    /// Bits that number the cells of a cache, and the caches.
    pub const CELL_BITS: u32 = 11;
    pub const CACHE_BITS: u32 = 9;
    /// Caches that places have numbers for.
    pub const CACHES: u32 = (1 << Place::CACHE_BITS) - 1;
    /// In no cache: in the depot, or on its way between a cache and the heap. Belongs to whoever took it there.
    pub const BETWEEN: Place = Place((1 << PLACE_BITS) - 1);

    pub fn new(cache: u32, cell: u32) -> Place {
        debug_assert!(cache < Place::CACHES && cell < 1 << Place::CELL_BITS);
        Place(cache << Place::CELL_BITS | cell)
    }
}

const STATE_BITS: u32 = 4;
const STATE: u64 = (1 << STATE_BITS) - 1;
const PLACE_BITS: u32 = Place::CELL_BITS + Place::CACHE_BITS;
/// Addresses of blocks are multiples of [`GRANULE`], so their low bits need no room.
const ADDR_SHIFT: u32 = STATE_BITS + PLACE_BITS - GRANULE.ilog2();
const NOT_ADDR: u64 = (1 << (STATE_BITS + PLACE_BITS)) - 1;

fn pack(addr: u64, state: State) -> u64 {
    addr << ADDR_SHIFT | state as u64
}

fn addr_of(word: u64) -> u64 {
    (word & !NOT_ADDR) >> ADDR_SHIFT
}

fn cached_in(place: Place) -> u64 {
    u64::from(place.0) << STATE_BITS | State::Cached as u64
}

/// What is known of one block, or of one object of a slab. Plain getters and setters are relaxed: the lock orders them.
#[derive(Default)]
#[cfg_attr(not(loom), derive(FromBytes, IntoBytes, KnownLayout))]
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
        let state = match word & STATE {
            1 => State::Clean,
            2 => State::Pending,
            3 => State::Live,
            4 => State::Claimed,
            5 => State::Slab,
            6 => State::Cached,
            7 => State::Gap,
            _ => State::Unused,
        };
        (addr_of(word), state)
    }

    /// Where the slab that it describes begins, if it describes one.
    #[inline]
    pub fn slab(&self) -> Option<u64> {
        let word = self.word.load(Ordering::Acquire);
        (word & STATE == State::Slab as u64).then(|| addr_of(word))
    }

    pub fn addr(&self) -> u64 {
        addr_of(self.word.load(Ordering::Acquire))
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

    /// [`Record::set_word`] by an exchange: the model checker does not order a plain store between other threads' exchanges,
    /// which every processor does.
    #[cfg(all(test, loom))]
    pub fn overwrite(&self, addr: u64, state: State) {
        self.word.swap(pack(addr, state), Ordering::Release);
    }

    pub fn set_state(&self, state: State) {
        self.set_word(self.addr(), state);
    }

    /// Takes the live block at `addr` from the program. Exactly one of racing callers gets true. Sequentially
    /// consistent: what the caller submitted to the GPU before it, comes before an epoch that it reads (also
    /// sequentially consistent) after it.
    pub fn claim(&self, addr: u64) -> bool {
        self.take_live(addr, State::Claimed as u64)
    }

    /// The same by a thread that caches the block at `place`.
    pub fn cache(&self, addr: u64, place: Place) -> bool {
        self.take_live(addr, cached_in(place))
    }

    /// The same with a block that the caller has claimed.
    pub fn cache_claimed(&self, addr: u64, place: Place) -> bool {
        self.exchange(addr, State::Claimed, cached_in(place))
    }

    fn take_live(&self, addr: u64, becomes: u64) -> bool {
        addr.is_multiple_of(GRANULE) && self.exchange(addr, State::Live, becomes)
    }

    fn exchange(&self, addr: u64, is: State, becomes: u64) -> bool {
        let next = pack(addr, State::Unused) | becomes;
        self.word.compare_exchange(pack(addr, is), next, Ordering::SeqCst, Ordering::Acquire).is_ok()
    }

    /// Gives the block that is cached at `place` to the program and returns its address; `None` if another block is there,
    /// or none.
    pub fn revive(&self, place: Place) -> Option<u64> {
        self.take_cached(place, State::Live as u64)
    }

    /// Takes the block that is cached at `place` out of its cache and returns its address; `None` if another block is there,
    /// or none.
    pub fn uncache(&self, place: Place) -> Option<u64> {
        self.take_cached(place, cached_in(Place::BETWEEN))
    }

    fn take_cached(&self, place: Place, becomes: u64) -> Option<u64> {
        let word = self.word.load(Ordering::Relaxed);
        if word & NOT_ADDR != cached_in(place) {
            return None;
        }
        let next = word & !NOT_ADDR | becomes;
        self.word.compare_exchange(word, next, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        Some(addr_of(word))
    }

    /// Makes the block at `addr`, if it is cached at `place`, one that was claimed.
    pub fn disown(&self, addr: u64, place: Place) -> bool {
        let (cached, claimed) = (pack(addr, State::Unused) | cached_in(place), pack(addr, State::Claimed));
        self.word.compare_exchange(cached, claimed, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Puts a block that is the caller's alone into a cache.
    pub fn set_cached(&self, addr: u64, place: Place) {
        self.word.store(pack(addr, State::Unused) | cached_in(place), Ordering::Release);
    }

    /// Whether this is the block at `addr`, cached at `place`.
    pub fn is_cached_at(&self, addr: u64, place: Place) -> bool {
        self.word.load(Ordering::Relaxed) == pack(addr, State::Unused) | cached_in(place)
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    const HERE: u64 = 1 << 40;
    const ELSEWHERE: u64 = 1 << 41;

    /// A block of the program's, as the lock's holder makes it.
    fn make_live(record: &Record, addr: u64, requested: u64) {
        record.set_requested(requested);
        record.set_word(addr, State::Live);
    }

    #[test]
    fn of_two_frees_that_race_one_gets_the_block_and_sees_what_it_is() {
        loom::model(|| {
            let record = Arc::new(Record::default());
            let published = Arc::new(AtomicU32::new(0));
            let free = {
                let (record, published) = (Arc::clone(&record), Arc::clone(&published));
                move || {
                    // The address reached this thread by whatever way the program has.
                    let known = published.load(Ordering::Relaxed) == 1;
                    let won = known && record.claim(HERE);
                    assert!(!won || record.requested() == 7, "claimed, and not seen what");
                    (known, won)
                }
            };
            let others = [thread::spawn(free.clone()), thread::spawn(free)];
            make_live(&record, HERE, 7);
            published.store(1, Ordering::Relaxed);
            let ends = others.map(|other| other.join().unwrap());
            let won = ends.iter().filter(|(_, won)| *won).count();
            assert!(won <= 1, "freed twice");
            // With relaxed orders alone a thread may know the address and not see the block yet; then nobody has it.
            assert!(won == 1 || record.claim(HERE), "lost");
        });
    }

    #[test]
    fn a_free_of_what_its_record_no_longer_describes_gets_nothing() {
        loom::model(|| {
            let record = Arc::new(Record::default());
            make_live(&record, HERE, 7);
            let late = {
                let record = Arc::clone(&record);
                thread::spawn(move || {
                    let won = record.claim(HERE);
                    assert!(!won || record.requested() == 7, "the block of another life");
                    won
                })
            };
            let first = record.claim(HERE);
            if first {
                // Its heap gives the record to another block at once.
                record.set_state(State::Pending);
                record.set_word(ELSEWHERE, State::Unused);
                make_live(&record, ELSEWHERE, 9);
            }
            assert_ne!(late.join().unwrap(), first, "one and only one");
            assert_eq!(record.claim(ELSEWHERE), first, "the other block is untouched");
        });
    }
}
