//! Memory shared between processes: the 64 bytes that name an allocation, and opening what they name.
//!
//! Read off an H200 (driver 580): exporting an interior pointer gives the bytes of the base; importers ignore bytes 56
//! to 63; changed bytes 24–25 or 52–55 make the import fail with error 1. Here those six bytes are check sums.

use crate::area::CHUNK;
use crate::codes::{INVALID_CONTEXT, INVALID_VALUE, OUT_OF_MEMORY, R};
use crate::memory::{Alloc, Kind};
use crate::vmm::Handle;
use crate::world::World;

const MAGIC: &[u8; 8] = b"SIMCUDA1";

/// What the bytes of a handle say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    /// Process that owns the memory.
    pub pid: u32,
    /// Its descriptor of the memory file.
    pub fd: u32,
    /// Offset in the file.
    pub off: u64,
    /// Bytes.
    pub size: u64,
    /// Identity of the allocation in its process.
    pub id: u64,
}

fn sum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811C_9DC5, |h, b| (h ^ u32::from(*b)).wrapping_mul(0x0100_0193))
}

/// Writes the 64 bytes.
pub fn encode(n: Named) -> [u8; 64] {
    let mut b = [0u8; 64];
    b[..8].copy_from_slice(MAGIC);
    b[8..12].copy_from_slice(&n.pid.to_ne_bytes());
    b[12..16].copy_from_slice(&n.fd.to_ne_bytes());
    b[16..24].copy_from_slice(&n.off.to_ne_bytes());
    b[32..40].copy_from_slice(&n.size.to_ne_bytes());
    b[40..48].copy_from_slice(&n.id.to_ne_bytes());
    let short = (sum(&b[..24]) as u16).to_ne_bytes();
    b[24..26].copy_from_slice(&short);
    let long = sum(&b[..52]).to_ne_bytes();
    b[52..56].copy_from_slice(&long);
    b
}

/// Reads the 64 bytes; `None` when they do not name anything.
pub fn decode(b: &[u8; 64]) -> Option<Named> {
    let u32_at = |i: usize| u32::from_ne_bytes(b[i..i + 4].try_into().expect("four bytes"));
    let u64_at = |i: usize| u64::from_ne_bytes(b[i..i + 8].try_into().expect("eight bytes"));
    let good =
        &b[..8] == MAGIC && b[24..26] == (sum(&b[..24]) as u16).to_ne_bytes() && u32_at(52) == sum(&b[..52]);
    good.then(|| Named { pid: u32_at(8), fd: u32_at(12), off: u64_at(16), size: u64_at(32), id: u64_at(40) })
}

/// Maps memory of another process; returns the pointer to its first byte.
fn open(n: Named) -> R<*mut u8> {
    let path = std::ffi::CString::new(format!("/proc/{}/fd/{}", n.pid, n.fd)).map_err(|_| INVALID_VALUE)?;
    // SAFETY: no pointers. Pages are larger than 4 KiB on some machines.
    let delta = n.off % unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    // SAFETY: plain system calls with valid arguments; results are checked.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        if fd < 0 {
            return Err(INVALID_VALUE);
        }
        let p = libc::mmap(
            std::ptr::null_mut(),
            (n.size + delta) as usize,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_NORESERVE,
            fd,
            (n.off - delta) as i64,
        );
        libc::close(fd);
        if p == libc::MAP_FAILED { Err(OUT_OF_MEMORY) } else { Ok(p.cast::<u8>().add(delta as usize)) }
    }
}

impl World {
    /// The bytes that name the allocation which contains `addr`.
    pub fn export(&mut self, addr: u64) -> R<[u8; 64]> {
        let (base, a) = self.find(addr).filter(|(_, a)| a.kind == Kind::Plain).ok_or(INVALID_VALUE)?;
        let named =
            Named { pid: std::process::id(), fd: self.area.fd as u32, off: a.off, size: a.size, id: a.id };
        self.allocs.get_mut(&base).expect("found above").exported = true;
        Ok(encode(named))
    }

    /// Opens an allocation of another process; returns its address here.
    pub fn import(&mut self, bytes: &[u8; 64]) -> R<u64> {
        let n = decode(bytes).ok_or(INVALID_VALUE)?;
        if n.pid == std::process::id() {
            return Err(INVALID_CONTEXT);
        }
        let base = self.area.reserve(n.size.next_multiple_of(CHUNK), CHUNK, 0).ok_or(OUT_OF_MEMORY)?;
        let host = open(n).inspect_err(|_| self.area.unreserve(base, n.size.next_multiple_of(CHUNK)))?;
        let (ctx, device) = (self.cur, self.ctx()?.device);
        let alloc = Alloc { off: n.off, ..self.blank(n.size, Kind::Imported, device, ctx, host) };
        self.record(base, alloc);
        Ok(base)
    }

    /// A descriptor that names physical memory; other processes import it.
    pub fn export_physical(&mut self, handle: u64) -> R<i32> {
        let h = self.handles.get_mut(&handle).filter(|h| h.off != u64::MAX).ok_or(INVALID_VALUE)?;
        h.exported = true;
        let named =
            Named { pid: std::process::id(), fd: self.area.fd as u32, off: h.off, size: h.size, id: handle };
        descriptor(&encode(named))
    }

    /// Opens physical memory named by a descriptor. In the process that exported it, this is the same memory.
    pub fn import_physical(&mut self, fd: i32) -> R<u64> {
        let mut bytes = [0u8; 64];
        // SAFETY: reads into an array of that size; a bad descriptor is an error.
        let got = unsafe { libc::pread(fd, bytes.as_mut_ptr().cast(), 64, 0) };
        let n = decode(&bytes).filter(|_| got == 64).ok_or(INVALID_VALUE)?;
        if n.pid == std::process::id() {
            let h = self.handles.get_mut(&n.id).ok_or(INVALID_VALUE)?;
            h.refs += 1;
            return Ok(n.id);
        }
        let host = open(n)?;
        let handle = self.handle();
        let imported = Handle {
            size: n.size,
            device: -1,
            off: u64::MAX,
            host,
            refs: 1,
            maps: 0,
            exported: true,
            rdma: false,
        };
        self.handles.insert(handle, imported);
        Ok(handle)
    }
}

/// A descriptor whose file holds `bytes`.
pub fn descriptor(bytes: &[u8; 64]) -> R<i32> {
    // SAFETY: plain system calls with valid arguments; results are checked.
    unsafe {
        let fd = libc::memfd_create(c"simcuda-handle".as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 || libc::pwrite(fd, bytes.as_ptr().cast(), 64, 0) != 64 {
            return Err(OUT_OF_MEMORY);
        }
        Ok(fd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_named_bytes_are_checked_and_the_last_eight_are_not() {
        let named = Named { pid: 1, fd: 2, off: 3 << 21, size: 4096, id: 9 };
        let good = encode(named);
        assert_eq!(decode(&good), Some(named));
        for i in [24, 25, 52, 53, 54, 55] {
            let mut bad = good;
            bad[i] ^= 1;
            assert_eq!(decode(&bad), None, "byte {i}");
        }
        for i in 56..64 {
            let mut same = good;
            same[i] ^= 0xFF;
            assert_eq!(decode(&same), Some(named), "byte {i}");
        }
    }
}
