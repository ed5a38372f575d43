//! Finding functions by name and version.

use super::{Driver, cu};
use crate::api::recent::{cuCtxRecordEvent, cuGetProcAddress_v2};
use crate::api::{context, init, memory, stream};
use crate::config::Config;
use crate::procaddress::{Found, find};

fn is(name: &str, version: i32, per_thread: bool, f: *const ()) -> bool {
    find(name, version, per_thread, 13_000) == Found::Address(f as usize)
}

#[test]
fn the_version_selects_the_form() {
    assert!(is("cuMemAlloc", 3_020, false, memory::cuMemAlloc_v2 as *const ()));
    assert!(is("cuMemAlloc", 2_000, false, crate::api::legacy::cuMemAlloc as *const ()));
    assert!(is("cuCtxGetDevice", 12_080, false, context::cuCtxGetDevice as *const ()));
    assert!(is("cuCtxGetDevice", 13_000, false, context::cuCtxGetDevice_v2 as *const ()));
    assert!(is("cuCtxSynchronize", 13_000, false, context::cuCtxSynchronize_v2 as *const ()));
    assert!(is("cuGetProcAddress", 11_030, false, init::cuGetProcAddress as *const ()));
    assert!(is("cuGetProcAddress", 12_000, false, cuGetProcAddress_v2 as *const ()));
    let with_flags = crate::api::capture::cuGraphInstantiateWithFlags as *const ();
    assert!(is("cuGraphInstantiate", 11_040, false, with_flags));
    assert!(is("cuStreamQuery", 7_000, false, stream::cuStreamQuery as *const ()));
    assert!(is("cuStreamQuery", 7_000, true, stream::cuStreamQuery_ptsz as *const ()));
    assert!(is("cuMemcpy", 7_000, true, crate::api::copy::cuMemcpy_ptds as *const ()));
    assert!(is("cuMemAlloc", 7_000, true, memory::cuMemAlloc_v2 as *const ()), "no stream, no variant");
}

#[test]
fn what_is_not_there_is_not_found_and_says_why() {
    assert_eq!(find("", 12_000, false, 13_000), Found::Unknown);
    assert_eq!(find("cuNoSuch", 12_000, false, 13_000), Found::Unknown);
    assert_eq!(find("cuMemAlloc_v2", 12_000, false, 13_000), Found::Unknown, "symbols are not names");
    assert_eq!(find("cuMemAllocAsync", 11_010, false, 13_000), Found::Version);
    assert_eq!(find("cuMemAlloc", 14_000, false, 13_000), Found::Version);
    assert_eq!(find("cuCtxRecordEvent", 12_040, false, 12_040), Found::Unknown, "the driver is older");
    assert_eq!(find("simcuda_fail", 12_000, false, 13_000), Found::Unknown);
}

#[test]
fn every_export_of_the_tables_exists_and_has_a_name() {
    let exports = crate::procaddress::exports();
    assert_eq!(exports.len(), crate::api::table().len(), "no symbol twice");
    for symbol in crate::procaddress::listed() {
        assert!(exports.contains_key(symbol), "{symbol} is listed and not exported");
    }
}

#[test]
fn an_older_driver_refuses_newer_functions() {
    let d = Driver::with(Config { version: 12_040, ..Config::default() });
    assert_eq!(cu!(cuCtxRecordEvent(d.ctx, 0)), 801);
    let (mut f, mut why) = (std::ptr::dangling(), 7);
    let name = c"cuCtxRecordEvent".as_ptr();
    assert_eq!(cu!(cuGetProcAddress_v2(name, &raw mut f, 12_040, 0, &raw mut why)), 500);
    assert!(f.is_null());
    assert_eq!(why, 1);
    let name = c"cuMemAlloc".as_ptr();
    assert_eq!(
        cu!(cuGetProcAddress_v2(name, &raw mut f, 12_000, 0, std::ptr::null_mut())),
        0,
        "status may be null"
    );
    assert_eq!(f as usize, memory::cuMemAlloc_v2 as *const () as usize);
}
