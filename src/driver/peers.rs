//! Which devices may reach the memory of which context. Memory of `cuMemAlloc` becomes accessible to a peer by one call,
//! also what is allocated later; mapped memory needs access set piece by piece, so what was called is remembered.

use super::Ctx;
use parking_lot::Mutex;

/// A context that has been given access to another's memory.
struct Grant {
    owner: Ctx,
    accessor: Ctx,
    device: u32,
}

/// All grants of the process.
#[derive(Default)]
pub struct Peers {
    grants: Mutex<Vec<Grant>>,
}

impl Peers {
    /// `accessor`, a context of `device`, may reach the memory of `owner`.
    pub fn add(&self, owner: Ctx, accessor: Ctx, device: u32) {
        self.grants.lock().push(Grant { owner, accessor, device });
    }

    /// It may no longer. Returns its device if no other context of that may either.
    pub fn remove(&self, owner: Ctx, accessor: Ctx) -> Option<u32> {
        let mut grants = self.grants.lock();
        let at = grants.iter().position(|grant| grant.owner == owner && grant.accessor == accessor)?;
        let device = grants.swap_remove(at).device;
        let still = grants.iter().any(|grant| grant.owner == owner && grant.device == device);
        (!still).then_some(device)
    }

    /// A context has ended.
    pub fn forget(&self, ctx: Ctx) {
        self.grants.lock().retain(|grant| grant.owner != ctx && grant.accessor != ctx);
    }

    /// The devices that may reach the memory of `owner`, its own apart.
    pub fn devices(&self, owner: Ctx) -> Vec<u32> {
        let grants = self.grants.lock();
        let mut devices: Vec<u32> =
            grants.iter().filter(|grant| grant.owner == owner).map(|grant| grant.device).collect();
        devices.sort_unstable();
        devices.dedup();
        devices
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_keeps_access_until_the_last_of_its_contexts_has_lost_it() {
        let peers = Peers::default();
        peers.add(Ctx(1), Ctx(20), 2);
        peers.add(Ctx(1), Ctx(21), 2);
        peers.add(Ctx(1), Ctx(30), 3);
        assert_eq!(peers.devices(Ctx(1)), [2, 3]);
        assert_eq!(peers.remove(Ctx(1), Ctx(20)), None);
        assert_eq!(peers.remove(Ctx(1), Ctx(21)), Some(2));
        assert_eq!(peers.remove(Ctx(1), Ctx(21)), None, "once");
        peers.forget(Ctx(30));
        assert!(peers.devices(Ctx(1)).is_empty());
    }
}
