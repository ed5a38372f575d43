//! Device memory that the pool does not serve: counted, and held under the cap.
//!
//! Every allocation goes the same way: reserve under the cap, call the driver, and either write it in the books or give
//! the reservation up. If cap or driver refuse while the pools hold idle memory, that goes back first and the call is
//! made once more: another allocator of the process never fails for want of memory that only lies in our cache.

use super::CuResult;
use super::books::{Change, DeviceBooks};
use crate::policy::footprint;
use crate::report::units::human;
use crate::stats::ExternalKind;
use parking_lot::Mutex;
use std::collections::HashMap;

/// Makes an allocation of `bytes` that the program asked for, by `call`.
///
/// `Ok` carries the result of the driver's success and the bytes are charged; the caller writes down what for.
///
/// # Errors
/// `CUDA_ERROR_OUT_OF_MEMORY` if the cap does not allow it, or the driver's own code. Nothing is charged then.
pub fn charged(
    books: &'static DeviceBooks,
    kind: ExternalKind,
    bytes: u64,
    mut call: impl FnMut() -> CuResult,
) -> Result<(), CuResult> {
    let mut attempt = || {
        let reservation =
            books.account.reserve(footprint(kind, bytes)).map_err(|_| CuResult::OUT_OF_MEMORY)?;
        call().ok()?;
        reservation.for_external(kind, bytes);
        tracing::trace!("{bytes} B outside the pool ({})", kind.as_str());
        Ok(())
    };
    match attempt() {
        Err(CuResult::OUT_OF_MEMORY) => {}
        other => {
            (books.changed)(books.device, Change::External);
            return other;
        }
    }
    let second = if books.account.could_admit(footprint(kind, bytes))
        && (books.reclaim)(books.device, footprint(kind, bytes)) > 0
    {
        books.counts.bump(|counts| &counts.retry);
        tracing::debug!("trying again to get {} outside the pool ({})", human(bytes), kind.as_str());
        attempt()
    } else {
        Err(CuResult::OUT_OF_MEMORY)
    };
    if second == Err(CuResult::OUT_OF_MEMORY) {
        books.counts.bump(|counts| &counts.oom);
        books.note_oom(kind.as_str(), bytes, (books.usage)(books.device));
    }
    second
}

/// One allocation outside the pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The device that is charged.
    pub device: u32,
    /// What kind of allocation.
    pub kind: ExternalKind,
    /// Bytes charged.
    pub bytes: u64,
    /// The context that it ends with; 0 for memory that outlives contexts.
    pub ctx: usize,
}

const SHARDS: usize = 16;

/// What is allocated outside the pools, by address or handle. Sharded: threads that allocate asynchronously at a high
/// rate meet rarely.
pub struct Ledger {
    shards: [Mutex<Option<HashMap<u64, Entry>>>; SHARDS],
}

impl Default for Ledger {
    fn default() -> Self {
        Ledger::new()
    }
}

impl Ledger {
    /// An empty ledger.
    pub const fn new() -> Ledger {
        Ledger { shards: [const { Mutex::new(None) }; SHARDS] }
    }

    fn shard(&self, key: u64) -> &Mutex<Option<HashMap<u64, Entry>>> {
        // Addresses differ in their higher bits, handles in their lower ones.
        &self.shards[((key ^ (key >> 9) ^ (key >> 21)) as usize) % SHARDS]
    }

    /// Writes an allocation down; returns one of the same key that was never taken out (its end went unseen).
    pub fn insert(&self, key: u64, entry: Entry) -> Option<Entry> {
        self.shard(key).lock().get_or_insert_default().insert(key, entry)
    }

    /// Takes an allocation out, **before** the driver is told to free it: its address may come back at once.
    pub fn remove(&self, key: u64) -> Option<Entry> {
        self.shard(key).lock().as_mut()?.remove(&key)
    }

    /// The same, only if the allocation is of this kind.
    pub fn remove_kind(&self, key: u64, kind: ExternalKind) -> Option<Entry> {
        self.remove_if(key, |entry| entry.kind == kind)
    }

    /// The same, only if the allocation is of another kind.
    pub fn remove_unless(&self, key: u64, kind: ExternalKind) -> Option<Entry> {
        self.remove_if(key, |entry| entry.kind != kind)
    }

    fn remove_if(&self, key: u64, wanted: impl FnOnce(&Entry) -> bool) -> Option<Entry> {
        let mut shard = self.shard(key).lock();
        let map = shard.as_mut()?;
        if wanted(map.get(&key)?) { map.remove(&key) } else { None }
    }

    /// Takes out everything that ends with a context; returns what it was.
    pub fn remove_context(&self, ctx: usize) -> Vec<(u64, Entry)> {
        let mut gone = Vec::new();
        for shard in &self.shards {
            if let Some(map) = shard.lock().as_mut() {
                gone.extend(map.extract_if(|_, entry| entry.ctx == ctx));
            }
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_returns_what_was_written_once() {
        let ledger = Ledger::new();
        let entry = |bytes| Entry { device: 0, kind: ExternalKind::Async, bytes, ctx: 1 };
        assert_eq!(ledger.insert(0x7000, entry(5)), None);
        assert_eq!(ledger.insert(0x7000, entry(6)), Some(entry(5)), "an unseen end is reported");
        assert_eq!(ledger.remove(0x7000), Some(entry(6)));
        assert_eq!(ledger.remove(0x7000), None);
    }

    #[test]
    fn a_contexts_allocations_end_together() {
        let ledger = Ledger::new();
        for ctx in 1..3 {
            for key in 0..20u64 {
                let entry = Entry { device: 0, kind: ExternalKind::Managed, bytes: 1, ctx };
                ledger.insert(key << 12 | ctx as u64, entry);
            }
        }
        assert_eq!(ledger.remove_context(2).len(), 20);
        assert_eq!(ledger.remove_context(2).len(), 0);
        assert_eq!(ledger.remove_context(1).len(), 20);
    }
}
