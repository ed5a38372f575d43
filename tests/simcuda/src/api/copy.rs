//! Copies and fills.
//!
//! A copy from pageable host memory takes the bytes before it returns; a copy to it returns when the bytes are there.
//! Page-locked memory is read and written when the operation completes. Fills and copies inside the device do not make
//! the host wait, as CUDA documents.

use crate::codes::{INVALID_VALUE, R};
use crate::engine::Effect;
use crate::memory::Kind;
use crate::world::World;

impl World {
    fn on_device(&self, p: u64) -> bool {
        self.area.contains(p) || self.find(p).is_some_and(|(_, a)| a.kind == Kind::Managed)
    }

    fn pinned(&self, p: u64) -> bool {
        self.find(p).is_some_and(|(_, a)| matches!(a.kind, Kind::Host | Kind::Registered))
    }

    /// Whether `[p, p + n)` is memory of some kind; a device address must be allocated or mapped throughout.
    fn check_range(&mut self, p: u64, n: u64) -> R {
        if p == 0 {
            return Err(INVALID_VALUE);
        }
        if self.on_device(p) { self.pieces(p, n, |_, _, _| ()).map_err(|_| INVALID_VALUE) } else { Ok(()) }
    }

    /// The same for a copy of the stream's own device: mapped memory must let it in, also that of another device. Memory of
    /// `cuMemAlloc` the driver reaches from everywhere.
    fn check_copied(&mut self, p: u64, n: u64, stream: u64) -> R {
        self.running = self.ctxs.get(&self.streams[&stream].ctx).map(|c| c.device);
        let result = self.check_range(p, n);
        self.running = None;
        result
    }

    /// Copies between addresses of any kind in stream order; with `wait`, as a synchronous call.
    pub fn copy(&mut self, dst: u64, src: u64, bytes: usize, stream: u64, wait: bool) -> R {
        if bytes > 0 {
            let s = self.stream(stream)?;
            self.check_copied(dst, bytes as u64, s)?;
            self.check_copied(src, bytes as u64, s)?;
        }
        self.copy_anywhere(dst, src, bytes, stream, wait)
    }

    /// The same where the caller has named both contexts, so that neither needs access to the other's memory.
    fn copy_anywhere(&mut self, dst: u64, src: u64, bytes: usize, stream: u64, wait: bool) -> R {
        let bytes = bytes as u64;
        if bytes == 0 {
            return Ok(());
        }
        self.check_range(dst, bytes)?;
        self.check_range(src, bytes)?;
        let s = self.stream(stream)?;
        let (from_host, to_host) = (!self.on_device(src), !self.on_device(dst));
        let ns = crate::costs::transfer(bytes, from_host || to_host);
        let capturing = self.streams[&s].capture.is_some();
        if wait {
            // Synchronous copies are among the calls that a capture forbids.
            self.check_stream(s)?;
            self.check_unsafe()?;
        }
        let effect = if from_host && !self.pinned(src) && !capturing {
            // SAFETY: the caller passes `bytes` readable bytes.
            let data = unsafe { std::slice::from_raw_parts(src as *const u8, bytes as usize) };
            Effect::Store { dst, data: data.into() }
        } else {
            Effect::Copy { dst, src, bytes, kernel: false }
        };
        self.submit(s, effect, ns)?;
        let pageable_result = to_host && !self.pinned(dst);
        if !capturing && ((wait && (from_host || to_host)) || pageable_result) {
            let end = self.streams[&s].end;
            self.advance_to(end);
            return self.usable(self.streams[&s].ctx);
        }
        Ok(())
    }

    fn fill(&mut self, dst: u64, shape: [u64; 3], elem: u32, width: usize, stream: u64) -> R {
        let [pitch, row, rows] = shape;
        if row == 0 || rows == 0 {
            return Ok(());
        }
        if !dst.is_multiple_of(width as u64) {
            return Err(INVALID_VALUE);
        }
        let len = pitch.checked_mul(rows - 1).and_then(|n| n.checked_add(row)).ok_or(INVALID_VALUE)?;
        if !self.on_device(dst) && !self.pinned(dst) {
            return Err(INVALID_VALUE);
        }
        self.check_range(dst, len)?;
        let s = self.stream(stream)?;
        let effect = Effect::Set { dst, pitch, row, rows, elem: elem.to_ne_bytes(), width };
        self.submit(s, effect, crate::costs::transfer(row * rows, false))
    }
}

fn bytes(n: usize, width: u64) -> R<u64> {
    (n as u64).checked_mul(width).ok_or(INVALID_VALUE)
}

driver! {
    /// Copies between addresses of any kind.
    Ctx fn cuMemcpy [cuMemcpy_ptds]: (dst: u64, src: u64, n: usize) |w| { w.copy(dst, src, n, 0, true) }
    /// Copies to the device.
    Ctx fn cuMemcpyHtoD_v2 [cuMemcpyHtoD_v2_ptds]: (dst: u64, src: u64, n: usize) |w| { w.copy(dst, src, n, 0, true) }
    /// Copies to the host.
    Ctx fn cuMemcpyDtoH_v2 [cuMemcpyDtoH_v2_ptds]: (dst: u64, src: u64, n: usize) |w| { w.copy(dst, src, n, 0, true) }
    /// Copies on the device; does not wait.
    Ctx fn cuMemcpyDtoD_v2 [cuMemcpyDtoD_v2_ptds]: (dst: u64, src: u64, n: usize) |w| { w.copy(dst, src, n, 0, true) }
    /// Copies between devices.
    Ctx fn cuMemcpyPeer [cuMemcpyPeer_ptds]: (dst: u64, _to: u64, src: u64, _from: u64, n: usize) |w| {
        w.copy_anywhere(dst, src, n, 0, true)
    }
    /// Copies in stream order.
    Ctx fn cuMemcpyAsync [cuMemcpyAsync_ptsz]: (dst: u64, src: u64, n: usize, stream: u64) |w| {
        w.copy(dst, src, n, stream, false)
    }
    /// Copies to the device in stream order.
    Ctx fn cuMemcpyHtoDAsync_v2 [cuMemcpyHtoDAsync_v2_ptsz]: (dst: u64, src: u64, n: usize, stream: u64) |w| {
        w.copy(dst, src, n, stream, false)
    }
    /// Copies to the host in stream order.
    Ctx fn cuMemcpyDtoHAsync_v2 [cuMemcpyDtoHAsync_v2_ptsz]: (dst: u64, src: u64, n: usize, stream: u64) |w| {
        w.copy(dst, src, n, stream, false)
    }
    /// Copies on the device in stream order.
    Ctx fn cuMemcpyDtoDAsync_v2 [cuMemcpyDtoDAsync_v2_ptsz]: (dst: u64, src: u64, n: usize, stream: u64) |w| {
        w.copy(dst, src, n, stream, false)
    }
    /// Copies between devices in stream order.
    Ctx fn cuMemcpyPeerAsync [cuMemcpyPeerAsync_ptsz]: (dst: u64, _to: u64, src: u64, _from: u64, n: usize,
        stream: u64) |w| {
        w.copy_anywhere(dst, src, n, stream, false)
    }
    /// Fills with a byte.
    Ctx fn cuMemsetD8_v2 [cuMemsetD8_v2_ptds]: (dst: u64, v: u8, n: usize) |w| {
        w.fill(dst, [0, n as u64, 1], u32::from(v), 1, 0)
    }
    /// Fills with 16-bit values.
    Ctx fn cuMemsetD16_v2 [cuMemsetD16_v2_ptds]: (dst: u64, v: u16, n: usize) |w| {
        w.fill(dst, [0, bytes(n, 2)?, 1], u32::from(v), 2, 0)
    }
    /// Fills with 32-bit values.
    Ctx fn cuMemsetD32_v2 [cuMemsetD32_v2_ptds]: (dst: u64, v: u32, n: usize) |w| {
        w.fill(dst, [0, bytes(n, 4)?, 1], v, 4, 0)
    }
    /// Fills rows with a byte.
    Ctx fn cuMemsetD2D8_v2 [cuMemsetD2D8_v2_ptds]: (dst: u64, pitch: usize, v: u8, width: usize, height: usize) |w| {
        w.fill(dst, [pitch as u64, width as u64, height as u64], u32::from(v), 1, 0)
    }
    /// Fills with a byte in stream order.
    Ctx fn cuMemsetD8Async [cuMemsetD8Async_ptsz]: (dst: u64, v: u8, n: usize, stream: u64) |w| {
        w.fill(dst, [0, n as u64, 1], u32::from(v), 1, stream)
    }
    /// Fills with 16-bit values in stream order.
    Ctx fn cuMemsetD16Async [cuMemsetD16Async_ptsz]: (dst: u64, v: u16, n: usize, stream: u64) |w| {
        w.fill(dst, [0, bytes(n, 2)?, 1], u32::from(v), 2, stream)
    }
    /// Fills with 32-bit values in stream order.
    Ctx fn cuMemsetD32Async [cuMemsetD32Async_ptsz]: (dst: u64, v: u32, n: usize, stream: u64) |w| {
        w.fill(dst, [0, bytes(n, 4)?, 1], v, 4, stream)
    }
    /// Fills rows with a byte in stream order.
    Ctx fn cuMemsetD2D8Async [cuMemsetD2D8Async_ptsz]: (dst: u64, pitch: usize, v: u8, width: usize, height: usize,
        stream: u64) |w| {
        w.fill(dst, [pitch as u64, width as u64, height as u64], u32::from(v), 1, stream)
    }
}
