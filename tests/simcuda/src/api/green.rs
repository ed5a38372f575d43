//! Green contexts, as far as memory is concerned: shares of a device with a context handle, streams and captures of their
//! own. Memory is the primary context's, which each keeps alive, and what is recorded, waited for and synchronised in
//! that concerns them all, as CUDA documents.

use super::{give, want};
use crate::codes::{INVALID_HANDLE, INVALID_VALUE};
use crate::world::Thing;

/// `CUdevResource`, of which only the type matters here.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Resource {
    kind: i32,
    rest: [u8; 140],
}

const MULTIPROCESSORS: i32 = 1;

driver! {
    /// All multiprocessors of a device.
    Init fn cuDeviceGetDevResource: (device: i32, resource: *mut Resource, kind: i32) |w| {
        want(resource)?;
        w.device(device)?;
        if kind != MULTIPROCESSORS {
            return Err(INVALID_VALUE);
        }
        let mut rest = [0; 140];
        // The count comes behind 92 bytes of the type and private space.
        rest[88..92].copy_from_slice(&132u32.to_ne_bytes());
        give(resource, Resource { kind, rest });
        Ok(())
    }

    /// A description of resources.
    Init fn cuDevResourceGenerateDesc: (description: *mut u64, resources: *const Resource, count: u32) |w| {
        want(description)?;
        want(resources)?;
        if count == 0 {
            return Err(INVALID_VALUE);
        }
        let h = w.handle();
        give(description, h);
        Ok(())
    }

    /// Makes a green context.
    Init fn cuGreenCtxCreate: (green: *mut u64, description: u64, device: i32, flags: u32) |w| {
        want(green)?;
        w.device(device)?;
        if description == 0 || flags != 1 {
            return Err(INVALID_VALUE);
        }
        let home = w.retain_primary(device)?;
        let (g, c) = (w.handle(), w.handle());
        w.make_context(c, device, 0, 3020);
        w.ctxs.get_mut(&c).expect("just made").green_of = Some(home);
        w.things.insert(g, Thing::Green(c));
        give(green, g);
        Ok(())
    }

    /// Ends a green context.
    Init fn cuGreenCtxDestroy: (green: u64) |w| {
        let Some(Thing::Green(c)) = w.things.get(&green) else { return Err(INVALID_HANDLE) };
        let c = *c;
        w.things.remove(&green);
        let device = w.ctxs.get(&c).map(|context| context.device);
        w.destroy_context(c);
        device.map_or(Ok(()), |device| w.release_primary(device))
    }

    /// The context of a green context.
    Init fn cuCtxFromGreenCtx: (context: *mut u64, green: u64) |w| {
        want(context)?;
        let Some(Thing::Green(c)) = w.things.get(&green) else { return Err(INVALID_HANDLE) };
        give(context, *c);
        Ok(())
    }
}
