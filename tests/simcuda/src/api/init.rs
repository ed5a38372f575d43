//! Initialisation, versions, error texts, and finding functions by name.

use super::{give, want};
use crate::codes::{INVALID_VALUE, NOT_FOUND};
use std::ffi::{CStr, c_char, c_void};

driver! {
    /// Initialises the driver; flags must be 0.
    Nothing fn cuInit: (flags: u32) |w| {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        if w.config.devices == 0 {
            return Err(crate::codes::NO_DEVICE);
        }
        w.mark_initialised();
        Ok(())
    }

    /// Version of the driver.
    Nothing fn cuDriverGetVersion: (version: *mut i32) |w| {
        want(version)?;
        give(version, w.config.version);
        Ok(())
    }

    /// Name of a result code.
    Nothing fn cuGetErrorName: (code: i32, text: *mut *const c_char) |_w| {
        want(text)?;
        let found = crate::codes::describe(code);
        give(text, found.map_or(std::ptr::null(), |(name, _)| name.as_ptr().cast()));
        found.map(|_| ()).ok_or(INVALID_VALUE)
    }

    /// Description of a result code.
    Nothing fn cuGetErrorString: (code: i32, text: *mut *const c_char) |_w| {
        want(text)?;
        let found = crate::codes::describe(code);
        give(text, found.map_or(std::ptr::null(), |(_, what)| what.as_ptr().cast()));
        found.map(|_| ()).ok_or(INVALID_VALUE)
    }

    /// Private tables of the vendor's libraries: there are none.
    Nothing fn cuGetExportTable: (table: *mut *const c_void, id: *const c_void) |_w| {
        want(table)?;
        want(id)?;
        Err(NOT_FOUND)
    }

    /// Finds a function, in the form that CUDA 11.3 introduced.
    Nothing fn cuGetProcAddress: (symbol: *const c_char, found: *mut *const c_void, version: i32, flags: u64) |w| {
        want(symbol)?;
        want(found)?;
        // SAFETY: the caller passes a string.
        let name = unsafe { CStr::from_ptr(symbol) }.to_str().unwrap_or("");
        let (address, _) = crate::procaddress::address(name, version, flags, w.config.version);
        give(found, address.unwrap_or(0) as *const c_void);
        address.map(|_| ())
    }
}
