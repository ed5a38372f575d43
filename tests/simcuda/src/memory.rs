//! Allocations of device and host memory: who owns which addresses, what is charged to which device.
//!
//! Memory is charged in chunks of 2 MiB; allocations below that share the chunks of their context. Read off an H200
//! (driver 580): 100 × (1 MiB + 512 B) take 198 MiB, 100 × (2 MiB + 512 B) take 400 MiB.

use crate::area::CHUNK;
use crate::codes::{ILLEGAL_ADDRESS, INVALID_VALUE, OUT_OF_MEMORY, R};
use crate::world::World;
use std::collections::BTreeMap;

/// How an allocation was made; decides which free function accepts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `cuMemAlloc`, `cuMemAllocPitch`.
    Plain,
    /// From a memory pool, in stream order.
    Pool(u64),
    /// Managed memory; lies in host memory here.
    Managed,
    /// Page-locked host memory.
    Host,
    /// The program's own host memory, made page-locked.
    Registered,
    /// Opened from another process.
    Imported,
    /// Backs an array; has no address that programs see.
    Array,
    /// Made by a graph's allocation node.
    Graph,
}

/// One allocation; the map that holds it has its base address as key.
#[derive(Clone, Debug)]
pub struct Alloc {
    /// Bytes that were asked for.
    pub size: u64,
    /// How it was made.
    pub kind: Kind,
    /// Device that is charged.
    pub device: i32,
    /// Context that owns it.
    pub ctx: u64,
    /// The simulator's pointer to its first byte.
    pub host: *mut u8,
    /// Offset in the memory file.
    pub off: u64,
    /// Bytes of a private extent; 0 when it shares a chunk or charges nothing.
    pub extent: u64,
    /// Identity that is never reused, `CU_POINTER_ATTRIBUTE_BUFFER_ID`.
    pub id: u64,
    /// Handed to a stream-ordered free that has not completed yet.
    pub freeing: bool,
    /// An IPC handle of it exists.
    pub exported: bool,
    /// `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`.
    pub sync_memops: bool,
}

/// A chunk that small allocations of one context share.
pub struct Chunk {
    ctx: u64,
    device: i32,
    free: BTreeMap<u64, u64>,
    largest: u64,
    exported: bool,
}

/// One device's account.
#[derive(Clone, Copy, Debug, Default)]
pub struct Account {
    /// Bytes in use.
    pub used: u64,
    /// Bytes that tests say other processes have.
    pub others: u64,
    /// Highest value of `used` so far.
    pub peak: u64,
}

impl World {
    /// Charges `bytes` to a device, or says that it has no more.
    pub fn charge(&mut self, device: i32, bytes: u64) -> R {
        let a = &mut self.accounts[device as usize];
        if bytes > self.config.memory.saturating_sub(a.used + a.others) {
            return Err(OUT_OF_MEMORY);
        }
        a.used += bytes;
        a.peak = a.peak.max(a.used);
        Ok(())
    }

    /// Takes a charge back.
    pub fn uncharge(&mut self, device: i32, bytes: u64) {
        self.accounts[device as usize].used -= bytes;
    }

    /// Charges and takes an extent of the memory file; the length is rounded up to chunks.
    pub fn take_extent(&mut self, device: i32, bytes: u64) -> R<(u64, u64)> {
        let len = bytes.checked_next_multiple_of(CHUNK).ok_or(OUT_OF_MEMORY)?;
        self.charge(device, len)?;
        let Some(off) = self.area.take(len) else {
            self.uncharge(device, len);
            return Err(OUT_OF_MEMORY);
        };
        if self.config.poison {
            // SAFETY: the extent is ours and mapped.
            unsafe { std::ptr::write_bytes(self.area.at(off), 0xCB, len as usize) };
        }
        Ok((off, len))
    }

    fn take_small(&mut self, ctx: u64, device: i32, bytes: u64) -> R<(u64, bool)> {
        let len = bytes.next_multiple_of(512);
        let found = self.chunks.iter_mut().find(|(_, c)| c.ctx == ctx && c.largest >= len);
        if let Some((&off, chunk)) = found {
            let (&at, &room) = chunk.free.iter().find(|(_, room)| **room >= len).expect("largest is right");
            chunk.free.remove(&at);
            if room > len {
                chunk.free.insert(at + len, room - len);
            }
            chunk.largest = chunk.free.values().copied().max().unwrap_or(0);
            return Ok((off + at, false));
        }
        let (off, _) = self.take_extent(device, CHUNK)?;
        let free = if len < CHUNK { BTreeMap::from([(len, CHUNK - len)]) } else { BTreeMap::new() };
        self.chunks.insert(off, Chunk { ctx, device, free, largest: CHUNK - len, exported: false });
        Ok((off, true))
    }

    fn give_small(&mut self, off: u64, bytes: u64, exported: bool) {
        let start = off & !(CHUNK - 1);
        let len = bytes.next_multiple_of(512);
        let Some(chunk) = self.chunks.get_mut(&start) else { return };
        chunk.exported |= exported;
        let (mut at, mut room) = (off - start, len);
        if let Some(next) = chunk.free.remove(&(at + room)) {
            room += next;
        }
        if let Some((&before, &n)) = chunk.free.range(..at).next_back()
            && before + n == at
        {
            chunk.free.remove(&before);
            at = before;
            room += n;
        }
        chunk.free.insert(at, room);
        chunk.largest = chunk.largest.max(room);
        if room == CHUNK {
            let chunk = self.chunks.remove(&start).expect("found above");
            self.uncharge(chunk.device, CHUNK);
            self.area.give(start, CHUNK, chunk.exported);
        }
    }

    /// Allocates device memory and enters it in the books. Returns its address.
    pub fn allocate(&mut self, ctx: u64, device: i32, bytes: u64, kind: Kind) -> R<u64> {
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        let ctx = self.home(ctx);
        let small = bytes < CHUNK;
        let (off, extent, fresh) = if small {
            let (off, fresh) = self.take_small(ctx, device, bytes)?;
            (off, 0, fresh)
        } else {
            let (off, len) = self.take_extent(device, bytes)?;
            (off, len, true)
        };
        if matches!(kind, Kind::Plain) {
            self.spend(if fresh { crate::costs::alloc(bytes) } else { crate::costs::ALLOC_SHARED });
        }
        let host = self.area.at(off);
        if self.config.poison && small {
            // SAFETY: the allocation is ours and mapped.
            unsafe { std::ptr::write_bytes(host, 0xCB, bytes as usize) };
        }
        let base = self.area.base + off;
        let blank = self.blank(bytes, kind, device, ctx, host);
        self.record(base, Alloc { off, extent, ..blank });
        Ok(base)
    }

    /// A record with a fresh identity and nothing charged.
    pub fn blank(&mut self, size: u64, kind: Kind, device: i32, ctx: u64, host: *mut u8) -> Alloc {
        self.ids += 1;
        Alloc {
            size,
            kind,
            device,
            ctx,
            host,
            off: 0,
            extent: 0,
            id: self.ids,
            freeing: false,
            exported: false,
            sync_memops: false,
        }
    }

    /// Enters an allocation in the books.
    pub fn record(&mut self, base: u64, alloc: Alloc) {
        if let Kind::Pool(pool) = alloc.kind {
            *self.pool_used.entry(pool).or_default() += alloc.size;
        }
        self.allocs.insert(base, alloc);
    }

    /// Allocates memory that host and device share, or the host's. Nothing is charged: pages of managed memory come to the
    /// device as they are touched and leave it for others, so that there may be more of them than the device has memory.
    pub fn allocate_host(&mut self, ctx: u64, device: i32, bytes: u64, kind: Kind) -> R<u64> {
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        let ctx = self.home(ctx);
        let len = bytes.checked_next_multiple_of(CHUNK).ok_or(OUT_OF_MEMORY)?;
        // SAFETY: a fresh anonymous mapping; the result is checked.
        let p = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if p == libc::MAP_FAILED {
            return Err(OUT_OF_MEMORY);
        }
        let alloc = Alloc { extent: len, ..self.blank(bytes, kind, device, ctx, p.cast()) };
        self.record(p as u64, alloc);
        Ok(p as u64)
    }

    /// Takes an allocation out of the books and gives its memory back, whatever its kind.
    pub fn release(&mut self, base: u64) {
        let Some(a) = self.allocs.remove(&base) else { return };
        if let Kind::Pool(pool) = a.kind {
            *self.pool_used.entry(pool).or_default() -= a.size;
        }
        match a.kind {
            Kind::Registered => {}
            Kind::Host | Kind::Managed => {
                // SAFETY: the mapping was made by `allocate_host` with this length.
                unsafe { libc::munmap(a.host.cast(), a.extent as usize) };
            }
            Kind::Imported => {
                let delta = a.off % 4096;
                // SAFETY: the mapping was made by `ipc::open` with this length.
                unsafe { libc::munmap(a.host.sub(delta as usize).cast(), (a.size + delta) as usize) };
                self.area.unreserve(base, a.size.next_multiple_of(CHUNK));
            }
            _ if a.extent > 0 => {
                self.uncharge(a.device, a.extent);
                self.area.give(a.off, a.extent, a.exported);
            }
            _ => self.give_small(a.off, a.size, a.exported),
        }
    }

    /// The allocation that contains `addr`, with its base.
    pub fn find(&self, addr: u64) -> Option<(u64, &Alloc)> {
        let (&base, a) = self.allocs.range(..=addr).next_back()?;
        (addr < base + a.size && a.kind != Kind::Array).then_some((base, a))
    }

    /// Calls `f(pointer, offset from the start, length)` for each run of memory behind `[addr, addr + len)`.
    /// Addresses outside the device range that belong to no allocation are ordinary host memory.
    pub fn pieces(&mut self, addr: u64, len: u64, mut f: impl FnMut(*mut u8, usize, usize)) -> R {
        let mut done = 0u64;
        while done < len {
            let at = addr.checked_add(done).ok_or(ILLEGAL_ADDRESS)?;
            let (ptr, room) = self.locate(at).ok_or(ILLEGAL_ADDRESS)?;
            let n = room.min(len - done);
            f(ptr, done as usize, n as usize);
            done += n;
        }
        Ok(())
    }

    fn locate(&self, at: u64) -> Option<(*mut u8, u64)> {
        // Reads and writes up to the next 512 bytes land in the allocation's own padding on the real device too.
        if let Some((&base, a)) = self.allocs.range(..=at).next_back() {
            let end = base + a.size.next_multiple_of(512);
            if at < end && a.kind != Kind::Array {
                // SAFETY: the offset lies inside the allocation.
                return Some((unsafe { a.host.add((at - base) as usize) }, end - at));
            }
        }
        if self.area.contains(at) {
            return self.locate_mapped(at);
        }
        (at > 0xFFFF).then_some((at as *mut u8, u64::MAX - at))
    }
}
