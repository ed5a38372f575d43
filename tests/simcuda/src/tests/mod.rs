//! Tests of the driver through its exported functions, each on a fresh driver with a current context.

// The methods want a driver to exist, which is what `self` proves.
#![allow(clippy::unused_self, clippy::many_single_char_names)]

mod captures;
mod contexts;
mod lookup;
mod mapping;
mod memory;
mod order;
mod process;

use crate::api::{context::*, device::*, init::*, launch::*, memory::*, stream::*};
use crate::config::Config;
use std::ffi::CStr;
use std::sync::{Mutex, MutexGuard, PoisonError};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A fresh driver, held by one test.
pub struct Driver {
    /// The primary context, current on this thread.
    pub ctx: u64,
    _held: MutexGuard<'static, ()>,
}

/// Calls a driver function inside an expression.
macro_rules! cu {
    ($call:expr) => {
        // SAFETY: the tests pass valid pointers.
        unsafe { $call }
    };
}
pub(crate) use cu;

impl Driver {
    /// With these settings.
    pub fn with(config: Config) -> Driver {
        let held = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        crate::gate::replace(config);
        let mut ctx = 0;
        assert_eq!(cu!(cuInit(0)), 0);
        assert_eq!(cu!(cuDevicePrimaryCtxRetain(&raw mut ctx, 0)), 0);
        assert_eq!(cu!(cuCtxSetCurrent(ctx)), 0);
        Driver { ctx, _held: held }
    }

    /// With default settings.
    pub fn new() -> Driver {
        Driver::with(Config::default())
    }

    /// Allocates, and expects success.
    pub fn alloc(&self, bytes: usize) -> u64 {
        let mut p = 0;
        assert_eq!(cu!(cuMemAlloc_v2(&raw mut p, bytes)), 0);
        p
    }

    /// A non-blocking stream.
    pub fn stream(&self) -> u64 {
        let mut s = 0;
        assert_eq!(cu!(cuStreamCreate(&raw mut s, 1)), 0);
        s
    }

    fn kernel(name: &CStr) -> u64 {
        let (mut module, mut function) = (0, 0);
        assert_eq!(cu!(cuModuleLoadData(&raw mut module, name.as_ptr().cast())), 0);
        assert_eq!(cu!(cuModuleGetFunction(&raw mut function, module, name.as_ptr())), 0);
        function
    }

    fn launch(name: &CStr, stream: u64, params: &[*const u64]) -> i32 {
        let f = Self::kernel(name);
        cu!(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, stream, params.as_ptr(), std::ptr::null()))
    }

    /// Takes `ns` and does nothing.
    pub fn spin(&self, stream: u64, ns: u64) -> i32 {
        Self::launch(c"spin", stream, &[&raw const ns])
    }

    /// Writes `v + i` to `n` words.
    pub fn fill(&self, stream: u64, p: u64, n: u64, v: u32, ns: u64) -> i32 {
        let v = u64::from(v);
        Self::launch(c"fill", stream, &[&raw const p, &raw const n, &raw const v, &raw const ns])
    }

    /// How many of `n` words are not `v + i`, once the context is idle.
    pub fn wrong(&self, p: u64, n: u64, v: u32) -> u64 {
        assert_eq!(cu!(cuCtxSynchronize()), 0);
        let mut words = vec![0u32; n as usize];
        let copied = cu!(crate::api::copy::cuMemcpyDtoH_v2(words.as_mut_ptr() as u64, p, 4 * words.len()));
        assert_eq!(copied, 0);
        words.iter().enumerate().filter(|(i, w)| **w != v + *i as u32).count() as u64
    }

    /// Free bytes by `cuMemGetInfo`.
    pub fn free(&self) -> u64 {
        let mut free = 0;
        assert_eq!(cu!(cuMemGetInfo_v2(&raw mut free, std::ptr::null_mut())), 0);
        free as u64
    }
}
