//! The discrete-event engine: virtual time, and the effects of device operations at the moment each completes.
//!
//! Everything that an operation waits for was submitted before it, so its completion time is known when it is
//! submitted; the engine is no more than a queue sorted by that time. An effect happens when the clock passes it and
//! not before: as late as the promises of the driver allow. Memory that is handed on too early is thus written too
//! late, every time, and a test sees it.

use crate::codes::{ILLEGAL_ADDRESS, R};
use crate::world::World;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What an operation does to memory, or to the host, when it completes.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Takes time only.
    Nothing,
    /// `p[i] = v + i` for `n` words.
    Fill { p: u64, n: u64, v: u32 },
    /// Adds to `*bad` how many of the `n` words at `p` are not `v + i`.
    Check { p: u64, n: u64, v: u32, bad: u64 },
    /// Adds one to each of `n` words.
    Add1 { p: u64, n: u64 },
    /// Copies bytes, between device and host addresses of any kind.
    Copy { dst: u64, src: u64, bytes: u64, kernel: bool },
    /// Writes bytes that were taken from the host when the operation was submitted.
    Store { dst: u64, data: Arc<[u8]> },
    /// Fills rows with an element of `width` bytes.
    Set { dst: u64, pitch: u64, row: u64, rows: u64, elem: [u8; 4], width: usize },
    /// Calls `f(data)` on the host.
    Host { f: usize, data: usize },
    /// Calls `f(stream, 0, data)` on the host.
    StreamCallback { f: usize, stream: u64, data: usize },
    /// Gives memory of a pool back.
    Free { ptr: u64 },
}

/// The clock and what has been submitted but has not completed yet.
#[derive(Default)]
pub struct Engine {
    /// Virtual time in ns.
    pub now: u64,
    seq: u64,
    pending: BTreeMap<(u64, u64), (u64, Effect)>,
}

impl Engine {
    /// Queues an effect of context `ctx` for time `at`; equal times keep the order of submission.
    pub fn push(&mut self, at: u64, ctx: u64, effect: Effect) {
        self.seq += 1;
        self.pending.insert((at, self.seq), (ctx, effect));
    }

    fn pop_due(&mut self, until: u64) -> Option<(u64, Effect)> {
        let first = self.pending.first_entry()?;
        if first.key().0 > until {
            return None;
        }
        let (key, value) = first.remove_entry();
        self.now = self.now.max(key.0);
        Some(value)
    }

    /// Forgets what a destroyed context still had queued.
    pub fn forget(&mut self, ctx: u64) {
        self.pending.retain(|_, (c, _)| *c != ctx);
    }

    /// When the last pending return of pool memory completes, if there is one.
    pub fn last_free(&self) -> Option<u64> {
        self.pending.iter().rev().find(|(_, (_, e))| matches!(e, Effect::Free { .. })).map(|(k, _)| k.0)
    }
}

impl World {
    /// Moves the clock to `t` and lets everything happen that completes until then, in order of completion.
    pub fn advance_to(&mut self, t: u64) {
        while let Some((ctx, effect)) = self.engine.pop_due(t) {
            let faulted = self.ctxs.get(&ctx).is_some_and(|c| c.fault.is_some());
            // Work behind a fault never runs; memory of pools still comes back, so that accounts stay right.
            if faulted && !matches!(effect, Effect::Free { .. }) {
                continue;
            }
            let kernel = matches!(
                effect,
                Effect::Fill { .. }
                    | Effect::Check { .. }
                    | Effect::Add1 { .. }
                    | Effect::Copy { kernel: true, .. }
            );
            self.running = self.ctxs.get(&ctx).filter(|_| kernel).map(|c| c.device);
            let result = self.run(&effect);
            self.running = None;
            if result.is_err()
                && let Some(c) = self.ctxs.get_mut(&ctx)
            {
                c.fault = Some(ILLEGAL_ADDRESS);
            }
        }
        self.engine.now = self.engine.now.max(t);
    }

    fn run(&mut self, effect: &Effect) -> R {
        match effect {
            Effect::Nothing => Ok(()),
            Effect::Fill { p, n, v } => self.words(*p, *n, |i, w| *w = v.wrapping_add(i as u32)),
            Effect::Add1 { p, n } => self.words(*p, *n, |_, w| *w = w.wrapping_add(1)),
            Effect::Check { p, n, v, bad } => {
                let mut wrong = 0u64;
                self.words(*p, *n, |i, w| wrong += u64::from(*w != v.wrapping_add(i as u32)))?;
                let mut old = [0u8; 8];
                self.load(*bad, &mut old)?;
                self.store(*bad, &(u64::from_ne_bytes(old) + wrong).to_ne_bytes())
            }
            Effect::Copy { dst, src, bytes, kernel } => {
                if *kernel && !(self.reachable(*dst) && self.reachable(*src)) {
                    return Err(ILLEGAL_ADDRESS);
                }
                let (mut at, mut left) = (0u64, *bytes);
                let mut buffer = vec![0u8; left.min(1 << 20) as usize];
                while left > 0 {
                    let n = left.min(buffer.len() as u64);
                    self.load(src + at, &mut buffer[..n as usize])?;
                    self.store(dst + at, &buffer[..n as usize])?;
                    at += n;
                    left -= n;
                }
                Ok(())
            }
            Effect::Store { dst, data } => self.store(*dst, data),
            Effect::Set { dst, pitch, row, rows, elem, width } => {
                let pattern = &elem[..*width];
                for r in 0..*rows {
                    self.pieces(dst + r * pitch, *row, |ptr, at, len| {
                        // SAFETY: `pieces` hands out live mapped memory of `len` bytes; `World` is locked.
                        let bytes = unsafe { std::slice::from_raw_parts_mut(ptr, len) };
                        for (i, b) in bytes.iter_mut().enumerate() {
                            *b = pattern[(at + i) % pattern.len()];
                        }
                    })?;
                }
                Ok(())
            }
            Effect::Host { f, data } => {
                let _in = crate::thread::InCallback::enter();
                // SAFETY: the program passed this function with this argument to cuLaunchHostFunc.
                unsafe {
                    let f: unsafe extern "C" fn(usize) = std::mem::transmute(*f);
                    f(*data);
                }
                Ok(())
            }
            Effect::StreamCallback { f, stream, data } => {
                let _in = crate::thread::InCallback::enter();
                // SAFETY: the program passed this function with this argument to cuStreamAddCallback.
                unsafe {
                    let f: unsafe extern "C" fn(u64, i32, usize) = std::mem::transmute(*f);
                    f(*stream, 0, *data);
                }
                Ok(())
            }
            Effect::Free { ptr } => {
                self.release(*ptr);
                Ok(())
            }
        }
    }

    /// Whether a kernel may try an address: device memory, mapped or not, and registered host memory.
    fn reachable(&self, p: u64) -> bool {
        self.area.contains(p) || self.find(p).is_some()
    }

    fn words(&mut self, p: u64, n: u64, mut f: impl FnMut(u64, &mut u32)) -> R {
        if !p.is_multiple_of(4) || !self.reachable(p) {
            return Err(ILLEGAL_ADDRESS);
        }
        let bytes = n.checked_mul(4).ok_or(ILLEGAL_ADDRESS)?;
        self.pieces(p, bytes, |ptr, at, len| {
            // SAFETY: `pieces` hands out live mapped memory of `len` bytes; pieces start and end on words because
            // allocations are multiples of 512 bytes and `p` is aligned.
            #[allow(clippy::cast_ptr_alignment)]
            let words = unsafe { std::slice::from_raw_parts_mut(ptr.cast::<u32>(), len / 4) };
            for (i, w) in words.iter_mut().enumerate() {
                f((at / 4 + i) as u64, w);
            }
        })
    }

    /// Reads bytes at a device or host address.
    pub fn load(&mut self, src: u64, out: &mut [u8]) -> R {
        let whole = out.as_mut_ptr();
        self.pieces(src, out.len() as u64, |ptr, at, len| {
            // SAFETY: source is live (`pieces`), destination is a part of `out`.
            unsafe { std::ptr::copy(ptr, whole.add(at), len) };
        })
    }

    /// Writes bytes at a device or host address.
    pub fn store(&mut self, dst: u64, data: &[u8]) -> R {
        self.pieces(dst, data.len() as u64, |ptr, at, len| {
            // SAFETY: destination is live (`pieces`), source is a part of `data`.
            unsafe { std::ptr::copy(data.as_ptr().add(at), ptr, len) };
        })
    }
}
