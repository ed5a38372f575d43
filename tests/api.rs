//! The functions that a program calls on purpose, from C and from Python.

mod harness;

use harness::{MIB, Program, build, same_with_and_without};
use serde_json::Value;

#[test]
fn a_program_asks_the_library_that_is_there_or_not() {
    for name in ["api", "api_shared"] {
        let run = same_with_and_without(&Program::new(name).conf("memory_limit:1GiB"));
        run.ok();
        assert!(run.stderr.contains("with\n") && !run.stderr.contains("without"), "{run}");
        let text = std::fs::read_to_string(run.folder.join("by-name.json")).unwrap();
        let report: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(report["process"]["ended_by"], "running");
        assert!(report["devices"][0]["counts"]["alloc"].as_u64() < Some(run.count("alloc")));

        // The peak of the whole process is not to be reset.
        assert!(run.gauge(0, "allocated_bytes", "peak") > 300 * MIB, "{run}");
        let phases = run.device(0)["phases"].as_array().unwrap();
        let names: Vec<_> = phases.iter().map(|phase| phase["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["start", "load", "train"]);
        let of = |phase: usize, what: &str| phases[phase][what].as_u64().unwrap();
        assert_eq!((of(0, "allocated_peak_bytes"), of(0, "allocs"), of(0, "entered")), (1024, 1, 1));
        assert_eq!((of(2, "requested_peak_bytes"), of(2, "allocs")), (30 * MIB + 1000, 10));
        assert_eq!((of(2, "frees"), of(2, "grown_bytes"), of(2, "driver_allocs")), (10, 0, 0));
        assert_eq!((of(1, "entered"), of(1, "requested_peak_bytes")), (2, 300 * MIB + 1000));
        assert!(phases.iter().all(|phase| phase["seconds"].as_f64() > Some(0.0)), "{run}");
        let allocs: u64 = (0..3).map(|phase| of(phase, "allocs")).sum();
        assert_eq!(allocs, run.count("alloc"), "every allocation is in one phase");
    }
}

#[test]
fn phases_are_told_in_the_text() {
    let run = Program::new("api").preload().conf("memory_limit:1GiB").text_report().run();
    run.ok();
    assert!(run.stderr.contains("phase           train: at most 30.00 MiB allocated, "), "{run}");
}

#[test]
fn a_library_that_is_switched_off_answers_nothing() {
    let run = Program::new("api_lookup").preload().env("GPUCACHE_DISABLE", "1").run();
    // The figures of the program's own checks are 0 then; marks are refused.
    assert!(!run.status.success() && run.stderr.contains("mark(name) gave -1"), "{run}");
}

#[test]
fn functions_are_found_by_name_and_used_beside_threads_that_allocate() {
    let run = same_with_and_without(&Program::new("api_lookup"));
    run.ok();
    let phases = run.device(0)["phases"].as_array().unwrap();
    assert!((64..=65).contains(&phases.len()), "{} phases", phases.len());
    assert!(phases.iter().any(|phase| phase["name"] == "(others)" && phase["entered"].as_u64() > Some(1)));
    let allocs: u64 = phases.iter().map(|phase| phase["allocs"].as_u64().unwrap()).sum();
    assert_eq!(allocs, run.count("alloc"), "{run}");
}

/// A Python program that allocates through the driver's library.
fn python(preload: bool, lines: &str) -> Option<harness::Outcome> {
    let python = std::process::Command::new("python3").arg("--version").output();
    if !python.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: there is no python3");
        return None;
    }
    let start = "
import ctypes, gpucache
cuda = ctypes.CDLL('libcuda.so.1')
def ok(code): assert code == 0, code
def alloc(bytes):
    p = ctypes.c_uint64()
    ok(cuda.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(bytes)))
    return p
def begin():
    ctx = ctypes.c_void_p()
    ok(cuda.cuInit(0))
    ok(cuda.cuCtxCreate_v2(ctypes.byref(ctx), 0, 0))
";
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/python");
    let program = Program::at("/usr/bin/env")
        .arg("python3")
        .arg("-c")
        .arg(format!("{start}{lines}"))
        .env("PYTHONPATH", folder)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let _ = build::programs();
    Some(if preload { program.preload().run() } else { program.run() })
}

#[test]
fn python_sees_what_there_is() {
    let lines = "
MIB = 1 << 20
assert gpucache.available() and gpucache.version().count('.') == 2
assert gpucache.memory_allocated() == 0 and gpucache.report() == {}
none = gpucache.memory_stats()
assert none['num_device_alloc'] == 0 and none['allocated_bytes.all.peak'] == 0 and not any(none.values()), none
assert gpucache.reset_peak_memory_stats() is False
begin()
p = alloc(10 * MIB)
assert gpucache.memory_allocated() == 10 * MIB == gpucache.memory_allocated(0)
class Device:
    index = 0
assert gpucache.memory_allocated(Device()) == 10 * MIB
try: gpucache.memory_allocated('cuda:0'); assert False
except TypeError: pass
with gpucache.phase('validation'):
    q = alloc(50 * MIB)
    ok(cuda.cuMemFree_v2(q))
assert gpucache.max_memory_allocated() == 60 * MIB
assert gpucache.reset_peak_memory_stats()
stats = gpucache.memory_stats()
assert stats.keys() == none.keys() == gpucache.memory_stats(5).keys() and not any(gpucache.memory_stats(5).values())
assert stats['num_device_alloc'] > 0 and gpucache.memory_stats(0) == stats, stats
assert stats['allocated_bytes.all.peak'] == 10 * MIB, stats
assert stats['allocated_bytes.all.current'] == 10 * MIB and stats['allocation.all.current'] == 1, stats
assert gpucache.memory_reserved() >= 60 * MIB
ok(cuda.cuCtxSynchronize())
assert gpucache.empty_cache() >= 40 * MIB
assert gpucache.set_limit(100 * MIB) and gpucache.limit() == 100 * MIB
assert gpucache.set_per_process_memory_fraction(0.5) and gpucache.limit() > 100 * MIB
assert gpucache.set_limit(0) and gpucache.limit() == 0 and gpucache.set_limit(50 * MIB)
for wrong in (-1, 2**64):
    try: gpucache.set_limit(wrong); assert False
    except ValueError as error: assert str(wrong) in str(error), error
assert gpucache.limit() == 50 * MIB
assert gpucache.set_limit()
try: gpucache.set_limit(1, device=5000); assert False
except ValueError: pass
try: gpucache.write_report('no/such/folder'); assert False
except ValueError: pass
assert gpucache.write_report('now.json')
print('ok')
";
    let Some(run) = python(true, lines) else { return };
    run.ok();
    assert!(run.folder.join("now.json").exists());
    let phases = run.device(0)["phases"].as_array().unwrap();
    assert_eq!(phases.len(), 3, "{run}");
    assert_eq!(
        (&phases[1]["name"], &phases[1]["allocated_peak_bytes"]),
        (&"validation".into(), &(60 * MIB).into())
    );
}

#[test]
fn python_without_the_library_goes_on() {
    let lines = "
assert not gpucache.available() and gpucache.version() is None
begin()
alloc(1 << 20)
assert gpucache.memory_allocated() == gpucache.max_memory_reserved(0) == gpucache.empty_cache() == 0
assert gpucache.report() == {}
stats = gpucache.memory_stats()
assert stats['num_device_alloc'] == 0 and not any(stats.values()), stats
try: gpucache.set_limit(-1); assert False
except ValueError as error: assert '-1' in str(error), error
assert not gpucache.set_limit(5) and not gpucache.mark('x') and not gpucache.write_report('x.json')
assert not gpucache.set_per_process_memory_fraction(0.5)
with gpucache.phase('validation'): pass
print('ok')
";
    let Some(run) = python(false, lines) else { return };
    run.ok();
    assert_eq!(run.stdout, "ok\n");
}
