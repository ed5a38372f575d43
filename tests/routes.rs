//! Every way in which a process reaches its memory calls leads through the library, and each call counts once.

mod harness;

use harness::{Program, build, same_with_and_without};

/// The program does the same with the library, the report has exactly its allocations, and the pool served some of
/// them without the driver.
fn is_intercepted(program: &Program) {
    let run = same_with_and_without(program);
    run.ok();
    let allocations = run.printed("allocs");
    assert!(allocations > 0);
    assert_eq!(run.count("alloc"), allocations, "{run}");
    assert_eq!(run.count("free"), allocations, "{run}");
    assert_eq!(run.count("invalid_free"), 0, "{run}");
    assert!(run.count("driver_alloc") < allocations, "{run}");
    assert!(run.count("cache_hit") > 0, "{run}");
    assert_eq!(run.gauge(0, "requested_bytes", "current"), 0, "{run}");
    assert!(run.gauge(0, "requested_bytes", "peak") >= 20 << 20, "{run}");
}

#[test]
fn static_runtime() {
    is_intercepted(&Program::new("route_static"));
}

#[test]
fn static_runtime_of_11_8() {
    is_intercepted(&Program::new("route_static_11"));
}

#[test]
fn static_runtime_of_13_1() {
    is_intercepted(&Program::new("route_static_13_1"));
}

#[test]
fn static_runtime_with_per_thread_streams() {
    is_intercepted(&Program::new("route_static_ptds"));
}

#[test]
fn shared_runtime() {
    is_intercepted(&Program::new("route_shared"));
}

#[test]
fn shared_runtime_of_11_8() {
    is_intercepted(&Program::new("route_shared_11"));
}

#[test]
fn shared_runtime_of_12_0() {
    is_intercepted(&Program::new("route_shared_12"));
}

#[test]
fn shared_runtime_with_per_thread_streams() {
    is_intercepted(&Program::new("route_shared_ptds"));
}

#[test]
fn driver_linked() {
    is_intercepted(&Program::new("route_driver"));
    is_intercepted(&Program::new("route_driver_ptds"));
}

#[test]
fn driver_by_dlsym_on_a_handle() {
    is_intercepted(&Program::new("route_dlsym"));
}

#[test]
fn driver_by_get_proc_address_of_every_version_and_flag() {
    is_intercepted(&Program::new("route_procaddr"));
}

#[test]
fn runtime_opened_privately() {
    for name in ["libcudart.so.11.0", "libcudart.so.12", "libcudart.so.13"] {
        is_intercepted(&Program::new("route_python").arg(name));
    }
    let newest = build::programs().join("lib/13.1/libcudart.so.13");
    is_intercepted(&Program::new("route_python").arg(newest.to_str().unwrap()));
}

#[test]
fn plugin_opened_privately() {
    is_intercepted(&Program::new("plugin_host"));
    is_intercepted(&Program::new("plugin_host").arg("libplugin11.so"));
}

#[test]
fn two_runtimes_in_one_process() {
    is_intercepted(&Program::new("two_runtimes"));
}

/// A runtime that arrives with a plugin after the host's own is in use.
#[test]
fn a_runtime_that_comes_later_serves_its_own_library() {
    let run = same_with_and_without(&Program::new("late_runtime").sim("DEVICES", "2"));
    run.ok();
    assert!(run.stdout.contains("asked for device 1 and got device 1"), "{run}");
    assert!(run.count("cache_hit") > 0, "{run}");
}

#[test]
fn older_driver() {
    for name in ["route_static_11", "route_shared_11"] {
        is_intercepted(&Program::new(name).old_driver().sim("DRIVER_VERSION", "11080"));
    }
}
