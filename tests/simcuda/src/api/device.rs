//! Devices and their primary contexts.

use super::{give, want};
use crate::codes::INVALID_VALUE;

const NAME: &[u8] = b"Simulated CUDA device\0";

/// Values of the attributes that programs of this repository look at; every other known attribute is 0.
fn attribute(number: i32, mapping: bool) -> Option<i32> {
    Some(match number {
        102 | 103 | 110 => i32::from(mapping), // virtual memory management, by descriptor, for other devices
        1 => 1024,                             // threads per block
        10 => 32,                              // warp size
        16 => 132,                             // multiprocessors
        75 => 9,                               // compute capability, major
        31 | 41 | 83 | 89 | 115 | 124 => 1, // concurrent kernels, unified addressing, managed, pools, dma-buf
        _ if (1..=150).contains(&number) => 0,
        _ => return None,
    })
}

fn uuid(device: i32) -> [u8; 16] {
    let mut id = *b"simcuda-device-\0";
    id[15] = device as u8;
    id
}

driver! {
    /// Number of devices.
    Init fn cuDeviceGetCount: (count: *mut i32) |w| {
        want(count)?;
        give(count, w.config.devices);
        Ok(())
    }

    /// The device with an ordinal.
    Init fn cuDeviceGet: (device: *mut i32, ordinal: i32) |w| {
        want(device)?;
        w.device(ordinal)?;
        give(device, ordinal);
        Ok(())
    }

    /// Name of a device.
    Init fn cuDeviceGetName: (name: *mut u8, len: i32, device: i32) |w| {
        want(name)?;
        w.device(device)?;
        if len < 1 {
            return Err(INVALID_VALUE);
        }
        let n = NAME.len().min(len as usize);
        // SAFETY: the caller passes room for `len` bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(NAME.as_ptr(), name, n);
            *name.add(n - 1) = 0;
        }
        Ok(())
    }

    /// Identity of a device.
    Init fn cuDeviceGetUuid: (id: *mut [u8; 16], device: i32) |w| {
        want(id)?;
        w.device(device)?;
        give(id, uuid(device));
        Ok(())
    }

    /// Identity of a device or of a part of it.
    Init fn cuDeviceGetUuid_v2: (id: *mut [u8; 16], device: i32) |w| {
        want(id)?;
        w.device(device)?;
        give(id, uuid(device));
        Ok(())
    }

    /// An attribute of a device.
    Init fn cuDeviceGetAttribute: (value: *mut i32, number: i32, device: i32) |w| {
        want(value)?;
        w.device(device)?;
        give(value, attribute(number, w.config.mapping).ok_or(INVALID_VALUE)?);
        Ok(())
    }

    /// Bytes of memory of a device.
    Init fn cuDeviceTotalMem_v2: (bytes: *mut usize, device: i32) |w| {
        want(bytes)?;
        w.device(device)?;
        give(bytes, w.config.memory as usize);
        Ok(())
    }

    /// Whether a device can reach another's memory.
    Init fn cuDeviceCanAccessPeer: (can: *mut i32, device: i32, peer: i32) |w| {
        want(can)?;
        w.device(device)?;
        w.device(peer)?;
        give(can, i32::from(device != peer));
        Ok(())
    }

    /// Makes or holds the primary context.
    Init fn cuDevicePrimaryCtxRetain: (context: *mut u64, device: i32) |w| {
        want(context)?;
        give(context, w.retain_primary(device)?);
        Ok(())
    }

    /// Lets go of the primary context.
    Init fn cuDevicePrimaryCtxRelease_v2: (device: i32) |w| { w.release_primary(device) }

    /// Lets go of the primary context.
    Init fn cuDevicePrimaryCtxRelease: (device: i32) |w| { w.release_primary(device) }

    /// Destroys the primary context; the next one has the same handle value.
    Init fn cuDevicePrimaryCtxReset_v2: (device: i32) |w| { w.reset_primary(device) }

    /// Destroys the primary context; the next one has the same handle value.
    Init fn cuDevicePrimaryCtxReset: (device: i32) |w| { w.reset_primary(device) }

    /// Flags of the primary context, and whether it is alive.
    Init fn cuDevicePrimaryCtxGetState: (device: i32, flags: *mut u32, active: *mut i32) |w| {
        want(flags)?;
        want(active)?;
        let p = &w.primaries[w.device(device)?];
        let alive = w.ctxs.contains_key(&p.handle);
        give(flags, p.flags);
        give(active, i32::from(alive));
        Ok(())
    }

    /// Sets the flags of the primary context.
    Init fn cuDevicePrimaryCtxSetFlags_v2: (device: i32, flags: u32) |w| {
        let d = w.device(device)?;
        w.primaries[d].flags = flags;
        Ok(())
    }

    /// Sets the flags of the primary context.
    Init fn cuDevicePrimaryCtxSetFlags: (device: i32, flags: u32) |w| {
        let d = w.device(device)?;
        w.primaries[d].flags = flags;
        Ok(())
    }

    /// Gives unused memory of graphs back; it goes back at once here.
    Init fn cuDeviceGraphMemTrim: (device: i32) |w| { w.device(device).map(|_| ()) }
}
