//! Arrays and mipmapped arrays: memory that is charged and has no address.

use super::{give, want};
use crate::codes::{INVALID_HANDLE, INVALID_VALUE, OUT_OF_MEMORY, R};
use crate::memory::Kind;
use crate::world::{Thing, World};

/// `CUDA_ARRAY_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Flat {
    width: usize,
    height: usize,
    format: i32,
    channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Deep {
    width: usize,
    height: usize,
    depth: usize,
    format: i32,
    channels: u32,
    flags: u32,
}

fn element(format: i32, channels: u32) -> R<u64> {
    let width = match format {
        0x01 | 0x08 => 1,
        0x02 | 0x09 | 0x10 => 2,
        0x03 | 0x0A | 0x20 => 4,
        _ => return Err(INVALID_VALUE),
    };
    if [1, 2, 4].contains(&channels) { Ok(width * u64::from(channels)) } else { Err(INVALID_VALUE) }
}

impl World {
    fn make_array(&mut self, out: *mut u64, sides: [usize; 3], element: u64, scale: u64) -> R {
        want(out)?;
        if sides[0] == 0 {
            return Err(INVALID_VALUE);
        }
        self.check_unsafe()?;
        let cells =
            sides.iter().try_fold(1u64, |n, s| n.checked_mul((*s).max(1) as u64)).ok_or(OUT_OF_MEMORY)?;
        let bytes = cells.checked_mul(element).and_then(|b| b.checked_mul(scale)).ok_or(OUT_OF_MEMORY)? / 3;
        let device = self.ctx()?.device;
        let p = self.allocate(self.cur, device, bytes.max(1), Kind::Array)?;
        let h = self.handle();
        let id = self.allocs[&p].id;
        self.things.insert(h, Thing::Array(p, id));
        give(out, h);
        Ok(())
    }

    fn drop_array(&mut self, handle: u64) -> R {
        let Some(Thing::Array(p, id)) = self.things.get(&handle) else { return Err(INVALID_HANDLE) };
        let (p, id) = (*p, *id);
        self.check_unsafe()?;
        self.things.remove(&handle);
        // The context that owned it may be gone, and its memory with it.
        if let Some(a) = self.allocs.get(&p).filter(|a| a.id == id) {
            self.advance_to(self.device_end(a.device));
            self.release(p);
        }
        Ok(())
    }
}

driver! {
    /// Makes an array of one or two dimensions.
    Ctx fn cuArrayCreate_v2: (array: *mut u64, shape: *const Flat) |w| {
        want(shape)?;
        // SAFETY: the caller passes a description.
        let s = unsafe { shape.read() };
        w.make_array(array, [s.width, s.height, 1], element(s.format, s.channels)?, 3)
    }

    /// Makes an array of up to three dimensions.
    Ctx fn cuArray3DCreate_v2: (array: *mut u64, shape: *const Deep) |w| {
        want(shape)?;
        // SAFETY: the caller passes a description.
        let s = unsafe { shape.read() };
        w.make_array(array, [s.width, s.height, s.depth], element(s.format, s.channels)?, 3)
    }

    /// Ends an array.
    Ctx fn cuArrayDestroy: (array: u64) |w| { w.drop_array(array) }

    /// Makes a mipmapped array; all smaller levels together take a third of the first.
    Ctx fn cuMipmappedArrayCreate: (array: *mut u64, shape: *const Deep, levels: u32) |w| {
        want(shape)?;
        if levels == 0 {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the caller passes a description.
        let s = unsafe { shape.read() };
        let scale = if levels > 1 { 4 } else { 3 };
        w.make_array(array, [s.width, s.height, s.depth], element(s.format, s.channels)?, scale)
    }

    /// Ends a mipmapped array.
    Ctx fn cuMipmappedArrayDestroy: (array: u64) |w| { w.drop_array(array) }
}
