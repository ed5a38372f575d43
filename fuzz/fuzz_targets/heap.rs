//! The heap against the naive one: each four bytes are an action.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gpucache::pool::model::play(bytes));
