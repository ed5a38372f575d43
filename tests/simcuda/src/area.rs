//! The bytes behind device memory, and the addresses that devices use.
//!
//! Device addresses come from a range that is reserved with `PROT_NONE` and never made accessible: a program that
//! follows a device pointer on the host crashes here as it does with the real driver. The bytes lie in one sparse
//! memory file, which the simulator maps a second time for itself, and which other processes can open for IPC. Pages
//! appear when something writes them, so "devices" of tens of GB cost nothing until used.

use std::collections::BTreeMap;
use std::ffi::CStr;

/// The driver's unit of physical memory: read off an H200 (driver 580), where 100 × (2 MiB + 512 B) take 400 MiB.
pub const CHUNK: u64 = 2 << 20;
const FILE_LEN: u64 = 8 << 40;
/// What is enough where addresses are few, as under valgrind.
const LEAST_LEN: u64 = 8 << 30;

/// Reserved addresses and the file of bytes.
pub struct Area {
    /// First device address.
    pub base: u64,
    /// Length of the whole device range in bytes.
    pub len: u64,
    /// The simulator's own view of the file.
    view: *mut u8,
    /// The memory file.
    pub fd: i32,
    holes: BTreeMap<u64, u64>,
    ranges: BTreeMap<u64, u64>,
    reserved: (u64, u64),
    viewed: u64,
}

impl Area {
    /// Reserves addresses and makes the file; ends the process when the machine refuses.
    pub fn new() -> Area {
        let name: &CStr = c"simcuda";
        // SAFETY: plain system calls with valid arguments; results are checked.
        unsafe {
            let fd = libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC);
            let mut file = FILE_LEN;
            let mut view = libc::MAP_FAILED;
            while view == libc::MAP_FAILED && file >= LEAST_LEN {
                if fd >= 0 && libc::ftruncate(fd, file as i64) == 0 {
                    view = libc::mmap(
                        std::ptr::null_mut(),
                        file as usize,
                        libc::PROT_READ | libc::PROT_WRITE,
                        libc::MAP_SHARED | libc::MAP_NORESERVE,
                        fd,
                        0,
                    );
                }
                if view == libc::MAP_FAILED {
                    file = if file > LEAST_LEN { LEAST_LEN } else { 0 };
                }
            }
            let mut len = 48u64 << 40;
            let mut base = libc::MAP_FAILED;
            while base == libc::MAP_FAILED && len > 2 * file {
                base = libc::mmap(
                    std::ptr::null_mut(),
                    len as usize,
                    libc::PROT_NONE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                    -1,
                    0,
                );
                if base == libc::MAP_FAILED {
                    len = len / 4 * 3 / CHUNK * CHUNK;
                }
            }
            if view == libc::MAP_FAILED || base == libc::MAP_FAILED {
                eprintln!("simcuda: cannot reserve device memory: {}", std::io::Error::last_os_error());
                std::process::abort();
            }
            // A crash should not try to dump terabytes.
            libc::madvise(view, file as usize, libc::MADV_DONTDUMP);
            // Chunks must start on 2 MiB addresses, as the driver's do.
            let aligned = (base as u64).next_multiple_of(CHUNK);
            Area {
                base: aligned,
                len: len - CHUNK,
                view: view.cast(),
                fd,
                holes: BTreeMap::from([(0, file)]),
                ranges: BTreeMap::from([(aligned + file, len - CHUNK - file)]),
                reserved: (base as u64, len),
                viewed: file,
            }
        }
    }

    /// Takes the lowest free extent of at least `len` bytes; offsets and lengths are multiples of [`CHUNK`].
    pub fn take(&mut self, len: u64) -> Option<u64> {
        take(&mut self.holes, len, CHUNK)
    }

    /// Returns an extent, and its pages to the machine unless another process may still look at them.
    pub fn give(&mut self, off: u64, len: u64, exported: bool) {
        if exported {
            return; // Not reused either: an importer keeps the old bytes, as with the real driver.
        }
        // SAFETY: punching a hole into our own file; failure only keeps stale bytes.
        unsafe {
            libc::fallocate(
                self.fd,
                libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                off as i64,
                len as i64,
            );
        }
        give(&mut self.holes, off, len);
    }

    /// The simulator's pointer to offset `off` of the file.
    pub fn at(&self, off: u64) -> *mut u8 {
        // SAFETY: offsets handed out lie inside the mapping.
        unsafe { self.view.add(off as usize) }
    }

    /// Reserves device addresses without memory behind them.
    pub fn reserve(&mut self, len: u64, align: u64, hint: u64) -> Option<u64> {
        if hint != 0
            && hint.is_multiple_of(align)
            && let Some((&start, &size)) = self.ranges.range(..=hint).next_back()
            && hint + len <= start + size
        {
            self.ranges.remove(&start);
            split(&mut self.ranges, start, size, hint, len);
            return Some(hint);
        }
        take(&mut self.ranges, len, align)
    }

    /// Returns reserved addresses.
    pub fn unreserve(&mut self, base: u64, len: u64) {
        give(&mut self.ranges, base, len);
    }

    /// Whether `addr` is a device address, mapped or not.
    pub fn contains(&self, addr: u64) -> bool {
        addr >= self.base && addr < self.base + self.len
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: unmaps and closes what `new` made; nobody uses it any more.
        unsafe {
            libc::munmap(self.view.cast(), self.viewed as usize);
            libc::munmap(self.reserved.0 as *mut libc::c_void, self.reserved.1 as usize);
            libc::close(self.fd);
        }
    }
}

fn take(holes: &mut BTreeMap<u64, u64>, len: u64, align: u64) -> Option<u64> {
    let (start, size, at) = holes.iter().find_map(|(&start, &size)| {
        let at = start.next_multiple_of(align);
        (at.checked_add(len)? <= start + size).then_some((start, size, at))
    })?;
    holes.remove(&start);
    split(holes, start, size, at, len);
    Some(at)
}

fn split(holes: &mut BTreeMap<u64, u64>, start: u64, size: u64, at: u64, len: u64) {
    if at > start {
        holes.insert(start, at - start);
    }
    if at + len < start + size {
        holes.insert(at + len, start + size - at - len);
    }
}

fn give(holes: &mut BTreeMap<u64, u64>, mut start: u64, mut len: u64) {
    if let Some(next) = holes.remove(&(start + len)) {
        len += next;
    }
    if let Some((&before, &size)) = holes.range(..start).next_back()
        && before + size == start
    {
        holes.remove(&before);
        start = before;
        len += size;
    }
    holes.insert(start, len);
}
