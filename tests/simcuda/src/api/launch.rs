//! Modules, libraries, and launching the built-in kernels.

use super::{give, want};
use crate::codes::{INVALID_HANDLE, INVALID_VALUE, NOT_FOUND, R};
use crate::world::{Thing, World};
use std::ffi::{CStr, c_char, c_void};

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Config {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: u64,
    attributes: *const c_void,
    count: u32,
}

impl World {
    fn load_image(&mut self, out: *mut u64, image: *const c_void) -> R {
        want(out)?;
        want(image)?;
        let h = self.handle();
        self.things.insert(h, Thing::Module);
        give(out, h);
        Ok(())
    }

    fn unload(&mut self, module: u64) -> R {
        if !matches!(self.things.get(&module), Some(Thing::Module)) {
            return Err(INVALID_HANDLE);
        }
        self.things.remove(&module);
        Ok(())
    }

    fn function(&mut self, out: *mut u64, module: u64, name: *const c_char) -> R {
        want(out)?;
        want(name)?;
        if !matches!(self.things.get(&module), Some(Thing::Module)) {
            return Err(INVALID_HANDLE);
        }
        // SAFETY: the caller passes a string.
        let name = unsafe { CStr::from_ptr(name) }.to_str().unwrap_or("");
        let name = *crate::kernels::NAMES.iter().find(|n| **n == name).ok_or(NOT_FOUND)?;
        let h = self.handle();
        self.things.insert(h, Thing::Function(name));
        give(out, h);
        Ok(())
    }

    fn launch(&mut self, function: u64, sides: [u32; 6], stream: u64, params: *const *const u64) -> R {
        let Some(Thing::Function(name)) = self.things.get(&function) else { return Err(INVALID_HANDLE) };
        if sides.contains(&0) {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the caller passes the kernel's parameters.
        let (effect, ns) = unsafe { crate::kernels::launch(name, params) }?;
        let s = self.stream(stream)?;
        self.submit(s, effect, ns)
    }
}

driver! {
    /// When kernels are loaded: at once.
    Init fn cuModuleGetLoadingMode: (mode: *mut i32) |_w| {
        want(mode)?;
        give(mode, 1);
        Ok(())
    }
    /// Loads a module; any image will do.
    Ctx fn cuModuleLoadData: (module: *mut u64, image: *const c_void) |w| { w.load_image(module, image) }
    /// Loads a module; any image will do.
    Ctx fn cuModuleLoadDataEx: (module: *mut u64, image: *const c_void, _n: u32, _options: *const c_void,
        _values: *const c_void) |w| { w.load_image(module, image) }
    /// Loads a module; any file name will do.
    Ctx fn cuModuleLoad: (module: *mut u64, file: *const c_void) |w| { w.load_image(module, file) }
    /// Unloads a module.
    Ctx fn cuModuleUnload: (module: u64) |w| { w.unload(module) }
    /// A built-in kernel by name.
    Ctx fn cuModuleGetFunction: (function: *mut u64, module: u64, name: *const c_char) |w| {
        w.function(function, module, name)
    }
    /// Loads a library; any image will do.
    Init fn cuLibraryLoadData: (library: *mut u64, image: *const c_void, _jit: *const c_void, _jit_values: *const c_void,
        _n: u32, _options: *const c_void, _values: *const c_void, _m: u32) |w| { w.load_image(library, image) }
    /// Unloads a library.
    Init fn cuLibraryUnload: (library: u64) |w| { w.unload(library) }
    /// A built-in kernel by name; usable as a function.
    Init fn cuLibraryGetKernel: (kernel: *mut u64, library: u64, name: *const c_char) |w| {
        w.function(kernel, library, name)
    }
    /// The function of a library's kernel: the same handle.
    Ctx fn cuKernelGetFunction: (function: *mut u64, kernel: u64) |w| {
        want(function)?;
        if !matches!(w.things.get(&kernel), Some(Thing::Function(_))) {
            return Err(INVALID_HANDLE);
        }
        give(function, kernel);
        Ok(())
    }
    /// Launches a kernel.
    Ctx fn cuLaunchKernel [cuLaunchKernel_ptsz]: (function: u64, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32,
        _shared: u32, stream: u64, params: *const *const u64, _extra: *const c_void) |w| {
        w.launch(function, [gx, gy, gz, bx, by, bz], stream, params)
    }
    /// Launches a kernel.
    Ctx fn cuLaunchKernelEx [cuLaunchKernelEx_ptsz]: (config: *const Config, function: u64,
        params: *const *const u64, _extra: *const c_void) |w| {
        want(config)?;
        // SAFETY: the caller passes a configuration.
        let c = unsafe { config.read() };
        w.launch(function, [c.grid[0], c.grid[1], c.grid[2], c.block[0], c.block[1], c.block[2]], c.stream, params)
    }
}
