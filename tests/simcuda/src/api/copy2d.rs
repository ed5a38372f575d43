//! Copies of rows between pitched memories of host and device. Arrays hold no bytes here, so copies of them are not
//! supported.

use super::want;
use crate::codes::{INVALID_VALUE, NOT_SUPPORTED, R};
use crate::world::World;

/// One side of `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Side {
    x: u64,
    y: u64,
    kind: u32,
    host: u64,
    device: u64,
    array: u64,
    pitch: u64,
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    src: Side,
    dst: Side,
    width: u64,
    height: u64,
}

const HOST: u32 = 1;
const DEVICE: u32 = 2;
const ARRAY: u32 = 3;
const UNIFIED: u32 = 4;

impl Side {
    /// Address of the first byte, and the distance of rows.
    fn start(&self, width: u64) -> R<(u64, u64)> {
        let base = match self.kind {
            HOST => self.host,
            DEVICE | UNIFIED => self.device,
            ARRAY => return Err(NOT_SUPPORTED),
            _ => return Err(INVALID_VALUE),
        };
        let pitch = if self.pitch == 0 { width } else { self.pitch };
        if base == 0 || pitch < self.x + width {
            return Err(INVALID_VALUE);
        }
        Ok((base + self.y * pitch + self.x, pitch))
    }
}

impl World {
    fn copy_rows(&mut self, rows: *const Rows, stream: u64, wait: bool) -> R {
        want(rows)?;
        // SAFETY: the caller passes a description.
        let r = unsafe { rows.read() };
        let ((src, from), (dst, to)) = (r.src.start(r.width)?, r.dst.start(r.width)?);
        for i in 0..r.height {
            self.copy(dst + i * to, src + i * from, r.width as usize, stream, wait)?;
        }
        Ok(())
    }
}

driver! {
    /// Copies rows.
    Ctx fn cuMemcpy2D_v2 [cuMemcpy2D_v2_ptds]: (rows: *const Rows) |w| { w.copy_rows(rows, 0, true) }
    /// Copies rows that need not start where the device likes them to.
    Ctx fn cuMemcpy2DUnaligned_v2 [cuMemcpy2DUnaligned_v2_ptds]: (rows: *const Rows) |w| {
        w.copy_rows(rows, 0, true)
    }
    /// Copies rows in stream order.
    Ctx fn cuMemcpy2DAsync_v2 [cuMemcpy2DAsync_v2_ptsz]: (rows: *const Rows, stream: u64) |w| {
        w.copy_rows(rows, stream, false)
    }
}
