//! Stream-ordered allocation and memory pools.
//!
//! A pool gives memory back to the device as soon as a free completes; the cache that a release threshold asks for is
//! not modelled, so reserved and used memory of a pool are the same.

use super::{give, want};
use crate::codes::{INVALID_HANDLE, INVALID_VALUE, OUT_OF_MEMORY, R};
use crate::engine::Effect;
use crate::memory::Kind;
use crate::world::{Thing, World};
use std::collections::HashMap;
use std::ffi::c_void;

const RESERVED_CURRENT: i32 = 5;
const RESERVED_HIGH: i32 = 6;
const USED_CURRENT: i32 = 7;
const USED_HIGH: i32 = 8;

impl World {
    /// The default pool of a device.
    pub fn default_pool(&mut self, device: i32) -> R<u64> {
        let d = self.device(device)?;
        if self.default_pools[d] == 0 {
            let h = self.handle();
            self.things.insert(h, Thing::Pool { device, attributes: HashMap::new() });
            self.default_pools[d] = h;
        }
        Ok(self.default_pools[d])
    }

    /// The pool that allocations on a device come from.
    pub fn current_pool(&mut self, device: i32) -> R<u64> {
        let default = self.default_pool(device)?;
        let current = self.current_pools[device as usize];
        Ok(if self.things.contains_key(&current) { current } else { default })
    }

    fn pool_used(&self, pool: u64) -> u64 {
        self.pool_used.get(&pool).copied().unwrap_or(0)
    }

    fn alloc_async(&mut self, out: *mut u64, bytes: usize, pool: u64, stream: u64) -> R {
        want(out)?;
        let s = self.stream(stream)?;
        let Some(Thing::Pool { device, .. }) = self.things.get(&pool) else { return Err(INVALID_HANDLE) };
        let device = *device;
        self.check_implicit(s)?;
        if let Some((id, _)) = self.streams[&s].capture {
            let p = self.allocate(self.cur, device, bytes as u64, Kind::Graph)?;
            if let Err(code) = self.add_captured(s, Effect::Nothing, 0) {
                self.release(p);
                return Err(code);
            }
            let graph = self.captures[&id].graph;
            self.graphs.get_mut(&graph).ok_or(INVALID_VALUE)?.memory.push(p);
            give(out, p);
            return Ok(());
        }
        let mut result = self.allocate(self.cur, device, bytes as u64, Kind::Pool(pool));
        if result == Err(OUT_OF_MEMORY)
            && let Some(t) = self.engine.last_free()
        {
            // A pool that runs short waits for the frees that are on their way.
            self.advance_to(t);
            result = self.allocate(self.cur, device, bytes as u64, Kind::Pool(pool));
        }
        let p = result?;
        self.schedule(s, Effect::Nothing, 0);
        if let Some(Thing::Pool { attributes, .. }) = self.things.get(&pool) {
            let high = attributes.get(&USED_HIGH).copied().unwrap_or(0).max(self.pool_used(pool));
            if let Some(Thing::Pool { attributes, .. }) = self.things.get_mut(&pool) {
                attributes.insert(USED_HIGH, high);
                attributes.insert(RESERVED_HIGH, high);
            }
        }
        give(out, p);
        Ok(())
    }
}

driver! {
    /// Allocates from the default pool of the current device.
    Ctx fn cuMemAllocAsync [cuMemAllocAsync_ptsz]: (pointer: *mut u64, bytes: usize, stream: u64) |w| {
        let device = w.ctx()?.device;
        let pool = w.current_pool(device)?;
        w.alloc_async(pointer, bytes, pool, stream)
    }

    /// Allocates from a pool.
    Ctx fn cuMemAllocFromPoolAsync [cuMemAllocFromPoolAsync_ptsz]: (pointer: *mut u64, bytes: usize, pool: u64,
        stream: u64) |w| {
        w.alloc_async(pointer, bytes, pool, stream)
    }

    /// Frees when the stream gets there. Accepts memory of `cuMemAlloc` too.
    Ctx fn cuMemFreeAsync [cuMemFreeAsync_ptsz]: (pointer: u64, stream: u64) |w| {
        let s = w.stream(stream)?;
        if pointer == 0 {
            return Err(INVALID_VALUE);
        }
        let a = w.allocs.get(&pointer).filter(|a| !a.freeing).ok_or(INVALID_VALUE)?;
        let kind = a.kind;
        if !matches!(kind, Kind::Pool(_) | Kind::Plain | Kind::Graph) {
            return Err(INVALID_VALUE);
        }
        if w.streams[&s].capture.is_some() || kind == Kind::Graph {
            // Memory of a graph lives as long as the graph; the node only keeps its place in the order.
            return w.submit(s, Effect::Nothing, 0);
        }
        w.submit(s, Effect::Free { ptr: pointer }, 0)?;
        if let Some(a) = w.allocs.get_mut(&pointer) {
            a.freeing = true;
        }
        Ok(())
    }

    /// The default pool of a device.
    Init fn cuDeviceGetDefaultMemPool: (pool: *mut u64, device: i32) |w| {
        want(pool)?;
        give(pool, w.default_pool(device)?);
        Ok(())
    }

    /// Makes a pool the current one of a device.
    Init fn cuDeviceSetMemPool: (device: i32, pool: u64) |w| {
        let d = w.device(device)?;
        if !matches!(w.things.get(&pool), Some(Thing::Pool { device: own, .. }) if *own == device) {
            return Err(INVALID_VALUE);
        }
        w.current_pools[d] = pool;
        Ok(())
    }

    /// Lets other devices reach a pool's memory: they always can here.
    Init fn cuMemPoolSetAccess: (pool: u64, access: *const c_void, _count: usize) |w| {
        want(access)?;
        matches!(w.things.get(&pool), Some(Thing::Pool { .. })).then_some(()).ok_or(INVALID_VALUE)
    }

    /// The current pool of a device.
    Init fn cuDeviceGetMemPool: (pool: *mut u64, device: i32) |w| {
        want(pool)?;
        give(pool, w.current_pool(device)?);
        Ok(())
    }

    /// Makes a pool.
    Init fn cuMemPoolCreate: (pool: *mut u64, props: *const [i32; 4]) |w| {
        want(pool)?;
        want(props)?;
        // SAFETY: the caller passes properties; the fourth integer is the device.
        let device = unsafe { (*props)[3] };
        w.device(device)?;
        let h = w.handle();
        w.things.insert(h, Thing::Pool { device, attributes: HashMap::new() });
        give(pool, h);
        Ok(())
    }

    /// Ends a pool; memory of it that is still in use stays until it is freed.
    Init fn cuMemPoolDestroy: (pool: u64) |w| {
        if w.default_pools.contains(&pool) {
            return Err(INVALID_VALUE);
        }
        match w.things.get(&pool) {
            Some(Thing::Pool { .. }) => w.things.remove(&pool),
            _ => return Err(INVALID_VALUE),
        };
        Ok(())
    }

    /// Gives unused memory back: there is none, see the module.
    Init fn cuMemPoolTrimTo: (pool: u64, _keep: usize) |w| {
        matches!(w.things.get(&pool), Some(Thing::Pool { .. })).then_some(()).ok_or(INVALID_VALUE)
    }

    /// Sets an attribute of a pool.
    Init fn cuMemPoolSetAttribute: (pool: u64, number: i32, value: *const c_void) |w| {
        want(value)?;
        let Some(Thing::Pool { attributes, .. }) = w.things.get_mut(&pool) else { return Err(INVALID_VALUE) };
        // SAFETY: the first three attributes are ints, the others 64-bit.
        let v = unsafe {
            match number {
                1..=3 => u64::from(*value.cast::<u32>()),
                4 | RESERVED_HIGH | USED_HIGH => *value.cast::<u64>(),
                _ => return Err(INVALID_VALUE),
            }
        };
        attributes.insert(number, v);
        Ok(())
    }

    /// An attribute of a pool.
    Init fn cuMemPoolGetAttribute: (pool: u64, number: i32, value: *mut c_void) |w| {
        want(value)?;
        let used = w.pool_used(pool);
        let Some(Thing::Pool { attributes, .. }) = w.things.get(&pool) else { return Err(INVALID_VALUE) };
        let kept = attributes.get(&number).copied();
        match number {
            1..=3 => give(value.cast::<u32>(), kept.unwrap_or(1) as u32),
            RESERVED_CURRENT | USED_CURRENT => give(value.cast::<u64>(), used),
            4 | RESERVED_HIGH | USED_HIGH => give(value.cast::<u64>(), kept.unwrap_or(0)),
            _ => return Err(INVALID_VALUE),
        }
        Ok(())
    }
}
