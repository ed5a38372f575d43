//! The exported functions, by theme. Each is a thin layer over the state in [`crate::world`]: it reads parameters,
//! asks the model, and writes results only when the call succeeded.

#[macro_use]
mod macros;

pub mod array;
pub mod async_memory;
pub mod capture;
pub mod context;
pub mod control;
pub mod copy;
pub mod copy2d;
pub mod device;
pub mod event;
pub mod green;
pub mod host;
pub mod init;
pub mod launch;
pub mod legacy;
pub mod memory;
pub mod physical;
pub mod pointer;
pub mod recent;
pub mod share;
pub mod stream;

use crate::codes::{INVALID_VALUE, R};

/// All exported driver functions: symbol and address.
pub fn table() -> Vec<(&'static str, usize)> {
    let parts = [
        array::table(),
        async_memory::table(),
        capture::table(),
        context::table(),
        copy::table(),
        copy2d::table(),
        device::table(),
        event::table(),
        green::table(),
        host::table(),
        init::table(),
        launch::table(),
        legacy::table(),
        memory::table(),
        physical::table(),
        pointer::table(),
        recent::table(),
        share::table(),
        stream::table(),
    ];
    parts.into_iter().flatten().collect()
}

/// Writes a result where the program wants it, unless it passed a null pointer.
pub fn give<T>(out: *mut T, value: T) {
    if !out.is_null() {
        // SAFETY: the caller of the driver function vouches for pointers that are not null.
        unsafe { out.write_unaligned(value) };
    }
}

/// Null pointers that the driver rejects.
pub fn want<T>(pointer: *const T) -> R {
    if pointer.is_null() { Err(INVALID_VALUE) } else { Ok(()) }
}
