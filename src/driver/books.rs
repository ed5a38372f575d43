//! What all contexts of one device share: the account against the cap, the counts, and the moments of failure.

use super::chronicle::Chronicle;
use crate::policy::DeviceAccount;
use crate::pool::Usage;
use crate::report::failure::Circumstances;
use crate::report::history::Map;
use crate::report::units::human;
use crate::stats::{AtomicCounts, fragmentation};
use parking_lot::Mutex;

/// Moments of failure that are kept for the report.
pub const OOMS_KEPT: usize = 16;

/// Something that those who look at a running process should hear of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Some allocations or frees, or a wait: happens all the time. Nothing is held but what a caller of the pool holds,
    /// so that commands may be carried out now.
    Counted,
    /// The same outside the pool, where anything may be held.
    External,
    /// A pool has grown or shrunk, or a request has failed: rare.
    Held,
}

/// What all contexts of one device share: the account against the cap, and the counts.
pub struct DeviceBooks {
    /// The account.
    pub account: DeviceAccount,
    /// The counts that are not kept under a heap's lock.
    pub counts: AtomicCounts,
    /// Moments at which a request of this device could not be served.
    pub ooms: Mutex<Vec<Oom>>,
    /// Gives back idle regions of every context of the device, at least so many bytes if there are; returns the bytes.
    pub reclaim: fn(device: u32, bytes: u64) -> u64,
    /// Idle bytes of every context of the device.
    pub reclaimable: fn(device: u32) -> u64,
    /// What the pools of all contexts of the device hold.
    pub usage: fn(device: u32) -> Usage,
    /// Told of every [`Change`]. Returns at once but where somebody has asked for something.
    pub changed: fn(device: u32, change: Change),
    /// Nanoseconds of a clock that costs little and is right to a few milliseconds.
    pub clock: fn() -> u64,
    /// Told of every request that could not be served, before that is kept: finds out what the books do not know.
    pub failed: fn(books: &DeviceBooks, oom: &mut Oom),
    /// Where a history is kept, who is told of what goes into it.
    pub chronicle: Option<Chronicle>,
    /// The device's ordinal.
    pub device: u32,
    /// The device's name.
    pub name: String,
}

/// The state of a device when a request could not be served; all in bytes.
#[derive(Clone, Debug, Default)]
pub struct Oom {
    /// Which call failed: `pool`, or the kind of allocation outside it.
    pub kind: &'static str,
    /// What was asked for.
    pub requested: u64,
    /// The pool of the context that asked.
    pub usage: Usage,
    /// Held outside the pools.
    pub external: u64,
    /// Held by the process in all.
    pub in_use: u64,
    /// The cap at that moment.
    pub limit: u64,
    /// What the driver still had, if it said.
    pub driver_free: Option<u64>,
    /// Who asked, and what was live; of the first ones.
    pub circumstances: Option<Circumstances>,
    /// How the memory lay; of the first few.
    pub map: Option<Map>,
}

impl DeviceBooks {
    /// Records that a request could not be served.
    pub fn note_oom(&self, kind: &'static str, requested: u64, usage: Usage) {
        let mut oom = Oom {
            kind,
            requested,
            usage,
            external: self.account.external().current,
            in_use: self.account.in_use(),
            limit: self.account.limit_bytes(),
            driver_free: super::real::driver_free(self.device),
            circumstances: None,
            map: None,
        };
        (self.failed)(self, &mut oom);
        tracing::info!("{}", self.in_words(&oom));
        {
            let mut ooms = self.ooms.lock();
            if ooms.len() < OOMS_KEPT {
                ooms.push(oom);
            }
        }
        (self.changed)(self.device, Change::Held);
    }

    fn in_words(&self, oom: &Oom) -> String {
        let Oom { kind, requested, usage, external, driver_free, .. } = oom;
        let (reserved, allocated) = (usage.reserved.current, usage.allocated.current);
        let driver =
            driver_free.map_or_else(String::new, |free| format!("; the driver has {} left", human(free)));
        format!(
            "out of memory on GPU {}: {} asked ({kind}); the pool holds {}, {} of that in use, {} the largest free \
             piece (fragmentation {:.2}); {} outside the pool; the cap is {}{driver}",
            self.device,
            human(*requested),
            human(reserved),
            human(allocated),
            human(usage.largest_free),
            fragmentation(usage.free(), usage.largest_free),
            human(*external),
            human(self.account.limit_bytes()),
        )
    }
}
