//! What all contexts of one device share: the account against the cap, the counts, and the moments of failure.

use crate::policy::DeviceAccount;
use crate::pool::Usage;
use crate::stats::{AtomicCounts, fragmentation};
use parking_lot::Mutex;

/// Moments of failure that are kept for the report.
const OOMS_KEPT: usize = 16;

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
    /// What the driver still had, if it said.
    pub driver_free: Option<u64>,
}

impl DeviceBooks {
    /// Records that a request could not be served.
    pub fn note_oom(&self, kind: &'static str, requested: u64, usage: Usage) {
        let oom = Oom {
            kind,
            requested,
            usage,
            external: self.account.external().current,
            in_use: self.account.in_use(),
            driver_free: super::real::driver_free(self.device),
        };
        tracing::info!(
            ?oom,
            fragmentation = fragmentation(usage.free(), usage.largest_free),
            "out of memory"
        );
        let mut ooms = self.ooms.lock();
        if ooms.len() < OOMS_KEPT {
            ooms.push(oom);
        }
    }
}
