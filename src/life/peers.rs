//! Which devices may reach the mapped memory of which contexts, under `expandable_segments:True`.
//!
//! The driver reaches memory of `cuMemAlloc` from every device: copies between devices need no peer access, and once that
//! is enabled all of it is accessible, also what is allocated later. Mapped memory is reached where its access is set and
//! nowhere else. So that a program sees no difference, every device on which it has a context gets access to the mapped
//! memory of the others as far as the devices can reach each other; and what it enables itself is repeated.

use super::{contexts, process};
use crate::driver::{Ctx, CuResult, real};
use parking_lot::Mutex;

/// Contexts that have been introduced to each other, with their devices.
static MET: Mutex<Vec<(Ctx, u32)>> = Mutex::new(Vec::new());

/// Lets a context and all earlier ones of other devices reach each other's mapped memory.
pub fn introduce(ctx: Ctx, device: u32) {
    if process::conf().is_none_or(|conf| !conf.expandable_segments()) {
        return;
    }
    let others: Vec<(Ctx, u32)> = {
        let mut met = MET.lock();
        if met.contains(&(ctx, device)) {
            return;
        }
        let others = met.iter().copied().filter(|(_, other)| *other != device).collect();
        met.push((ctx, device));
        others
    };
    for (other, its) in others {
        for (owner, owners, accessor, device) in [(other, its, ctx, device), (ctx, device, other, its)] {
            if real::can_access_peer(device, owners)
                && let Err(code) = allow(owner, accessor, device)
            {
                tracing::warn!(?code, device, "a device cannot reach the memory of another");
            }
        }
    }
}

/// `accessor`, a context of `device`, may reach all that the pool of `owner` has mapped and will map.
///
/// # Errors
/// The driver's own code; nothing is remembered then.
pub fn allow(owner: Ctx, accessor: Ctx, device: u32) -> Result<(), CuResult> {
    let Some(fence) = contexts::fence() else { return Ok(()) };
    // Before what is there: what another thread maps meanwhile is then seen by one or the other.
    fence.peers().add(owner, accessor, device);
    let set = contexts::find(owner).map_or(Ok(()), |(_, life)| life.server.set_peer_access(device, true));
    set.inspect_err(|_| _ = fence.peers().remove(owner, accessor))
}

/// Takes back one [`allow`].
pub fn forbid(owner: Ctx, accessor: Ctx) {
    let Some(fence) = contexts::fence() else { return };
    if let Some(device) = fence.peers().remove(owner, accessor)
        && let Some((_, life)) = contexts::find(owner)
    {
        // Access that is left over harms no correct program.
        let _ = life.server.set_peer_access(device, false);
    }
}

/// A context has ended.
pub fn forget(ctx: Ctx) {
    MET.lock().retain(|(known, _)| *known != ctx);
    if let Some(fence) = contexts::fence() {
        fence.peers().forget(ctx);
    }
}
