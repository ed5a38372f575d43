//! Symbol resolution: the library stands in the way of no lookup that is not its own, and hands out the right function
//! for each that is.

mod harness;

use harness::{Outcome, Program, build, same_with_and_without};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

#[test]
fn lookups_relative_to_the_caller_stay_so() {
    let run = same_with_and_without(&Program::new("rtld_next"));
    run.ok();
    assert!(run.library_lines().is_empty(), "{run}");
}

/// A run that was intercepted, whatever else is preloaded.
fn intercepted(run: &Outcome) {
    run.ok();
    assert_eq!(run.count("alloc"), run.printed("allocs"), "{run}");
}

#[test]
fn preloaded_from_odd_places() {
    let folder = build::programs().join("odd places");
    fs::create_dir_all(&folder).unwrap();
    let link = build::programs().join("a-link.so");
    _ = fs::remove_file(&link);
    symlink(build::library(), &link).unwrap();
    intercepted(&Program::new("route_shared").preload_list(&link).run());

    // Blanks separate entries of LD_PRELOAD, so a path with one can only be given through the folder it lies in.
    let copy = folder.join("libgpucache.so");
    fs::copy(build::library(), &copy).unwrap();
    let mut search = folder.into_os_string();
    search.push(":");
    search.push(build::programs().join("lib"));
    let by_name = Program::new("route_static").preload_list("libgpucache.so");
    intercepted(&by_name.env("LD_LIBRARY_PATH", search.to_str().unwrap()).run());

    // A relative path holds for programs that are started where it is right.
    let relative = Program::new("route_driver").preload_list("../../a-link.so");
    intercepted(&relative.run());
}

#[test]
fn beside_another_preloaded_library() {
    let other = build::programs().join("lib/libotherpreload.so");
    let ours = build::library();
    let list = |first: &Path, second: &Path| -> OsString {
        let mut list = OsString::from(first);
        list.push(":");
        list.push(second);
        list
    };
    let run = Program::new("beside").preload_list(list(&other, &ours)).run();
    intercepted(&run);
    let calls = run.printed("allocs");
    assert!(run.stderr.contains(&format!("other saw: getppid 5, cudaMalloc {calls}")), "{run}");

    let run = Program::new("beside").preload_list(list(&ours, &other)).run();
    intercepted(&run);
    assert!(run.stderr.contains("other saw: getppid 5"), "{run}");
}

#[test]
fn resolver_with_null_status() {
    // Every runtime passes NULL; this program has both, and checks the status where it asks for it.
    same_with_and_without(&Program::new("route_procaddr")).ok();
}

#[test]
fn resolver_is_the_first_entry() {
    let run = same_with_and_without(&Program::new("first_entry"));
    intercepted(&run);
}

#[test]
fn every_pointer_has_exactly_its_abi() {
    let run = same_with_and_without(&Program::new("same_abi"));
    intercepted(&run);
    assert_eq!(run.gauge(0, "external_bytes", "current"), 0, "{run}");
    assert!(run.gauge(0, "external_bytes", "total_allocated") >= 3 << 20, "{run}");
}

#[test]
fn what_the_driver_lacks_stays_lacking() {
    let new = same_with_and_without(&Program::new("lacking"));
    let old = same_with_and_without(&Program::new("lacking").old_driver().sim("DRIVER_VERSION", "11080"));
    new.ok();
    old.ok();
    assert!(new.stdout.contains("cuCtxRecordEvent: dlsym finds it"), "{new}");
    assert!(old.stdout.contains("cuCtxRecordEvent: dlsym does not"), "{old}");
}

#[test]
fn processes_without_cuda_are_left_alone() {
    let library = build::library();
    let ldd = |program: &Program| program.clone().arg("/bin/true");
    let programs = [
        Program::at("/bin/true"),
        Program::at("/bin/false"),
        Program::at("/bin/sh").arg("-c").arg("echo $((1 + 2)); /bin/echo child; exit 9"),
        Program::new("hello"),
        Program::new("hello_static"),
    ];
    for program in &programs {
        let run = same_with_and_without(program);
        assert_eq!(run.stderr, "", "{run}");
        assert!(run.report.is_none(), "{run}");
        assert_eq!(fs::read_dir(&run.folder).unwrap().count(), 0, "{run}");
    }
    if Path::new("/usr/bin/ldd").exists() {
        // Its output names the preloaded library, as it must; nothing else changes.
        let run = ldd(&Program::at("/usr/bin/ldd")).preload_list(&library).run();
        run.ok();
        assert!(run.stdout.contains("libc.so") && run.stdout.contains("libgpucache.so"), "{run}");
        assert_eq!(run.stderr, "", "{run}");
    }
}

/// What a tool says of the library.
fn ask(tool: &str, args: &[&str]) -> String {
    let output = Command::new(tool).args(args).arg(build::library()).output().expect(tool);
    assert!(output.status.success());
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_library_needs_no_cuda_and_no_private_glibc() {
    build::programs();
    let needed = ask("readelf", &["--dynamic", "--wide"]);
    assert!(needed.contains("NEEDED"), "{needed}");
    assert!(!needed.lines().any(|line| line.contains("NEEDED") && line.contains("cuda")), "{needed}");
    let symbols = ask("readelf", &["--dyn-syms", "--wide"]);
    assert!(symbols.contains("GLIBC_"), "{symbols}");
    assert!(!symbols.contains("GLIBC_PRIVATE"), "{symbols}");
    // Undefined CUDA names would make programs without a driver fail to start.
    let undefined: Vec<_> = symbols.lines().filter(|l| l.contains(" UND ") && l.contains(" cu")).collect();
    assert!(undefined.is_empty(), "{undefined:?}");
}

#[test]
fn names_of_other_libraries_are_untouched() {
    let run = same_with_and_without(&Program::new("other_library"));
    run.ok();
}

#[test]
fn names_do_not_exist_because_the_library_exports_them() {
    let run = same_with_and_without(&Program::new("phantom"));
    run.ok();
    assert!(run.stdout.contains("private, default scope: cuMemAlloc_v2 not found"), "{run}");
    assert!(run.stdout.contains("driver for all, default scope: cuMemAlloc_v2 found"), "{run}");
}

#[test]
fn only_functions_of_the_driver_are_named_as_not_intercepted() {
    let run = Program::new("false_notes").preload().run();
    run.ok();
    assert!(!run.json().to_string().contains("not intercepted"), "{run}");
}
