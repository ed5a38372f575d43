//! Two contexts of a model device, with captures, resets, failing calls and a cap: each four bytes are an action.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpucache::driver::world::play(bytes));
