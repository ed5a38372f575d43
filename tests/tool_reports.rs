//! What the tool makes of report files, what it says about files that are none, and what `gpucache doctor` sees.

mod harness;
mod tooling;

use harness::{Outcome, Program, build};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tooling::{report, run, tool};

#[test]
fn report_shows_text_as_the_library_does() {
    let library =
        Program::new("seq").arg("a8m*4 F a16m").preload().conf("memory_limit:700MiB").text_report().run();
    let tools = tool(&["report", &report("a.json")]).run();
    // What differs from run to run is the process and the times.
    let figures = |text: &str| {
        let lines = text.lines().skip(1).filter(|line| !line.contains("driver calls"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(figures(&tools.ok().stdout), figures(&library.stderr), "{tools}{library}");
    assert!(figures(&tools.stdout).len() >= 4, "{tools}");
}

#[test]
fn report_passes_json_on() {
    let one = tool(&["report", "--json", &report("a.json")]).run();
    let file: Value = serde_json::from_str(&fs::read_to_string(report("a.json")).unwrap()).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&one.ok().stdout).unwrap(), file);
    let two = tool(&["report", "--json", &report("a.json"), &report("b.json")]).run();
    let both: Value = serde_json::from_str(&two.ok().stdout).unwrap();
    assert_eq!((both.as_array().map(Vec::len), &both[0]), (Some(2), &file));
}

#[test]
fn files_that_are_no_reports_are_named_with_what_is_wrong() {
    let folder = build::programs().join("run").join(format!("wrong-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let whole = fs::read_to_string(report("a.json")).unwrap();
    for (name, text, what) in [
        ("cut.json", &whole[..whole.len() / 2], "cut short"),
        ("newer.json", "{\"schema_version\": 99}", "schema_version 99, this tool reads 1"),
        ("other.json", "{\"a\": 1}", "no report of gpucache"),
        ("text.txt", "gpucache[1]: train", "text of a report"),
        ("1-2.live", "\u{1}", "it is not a live file"),
        ("empty.json", "", "empty"),
    ] {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        for command in [&["report"][..], &["diff", &report("a.json")], &["merge", &report("a.json")]] {
            let run = tool(&[command, &[path.to_str().unwrap()]].concat()).run();
            assert_eq!(run.status.code(), Some(2), "{run}");
            assert!(run.stderr.contains(name) && run.stderr.contains(what) && run.stdout.is_empty(), "{run}");
        }
    }
    let missing = tool(&["report", "/no/such/report.json"]).run();
    assert_eq!(missing.status.code(), Some(2), "{missing}");
    assert!(missing.stderr.contains("/no/such/report.json: there is no such file"), "{missing}");
    let folder_given = tool(&["report", folder.to_str().unwrap()]).run();
    assert!(folder_given.stderr.contains("it is a folder"), "{folder_given}");
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn diff_shows_figures_settings_and_what_was_never_freed() {
    let (a, b) = (report("a.json"), report("b.json"));
    let text = tool(&["diff", &a, &b]).run();
    let line = |start: &str| {
        let line = text.stdout.lines().find(|line| line.trim_start().starts_with(start));
        line.unwrap_or_else(|| panic!("{start}: {text}")).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line("allocations"), "allocations 5 10 +5 +100.0 %");
    assert_eq!(line("never freed, blocks"), "never freed, blocks 1 2 +1 +100.0 %");
    assert_eq!(line("memory_limit"), "memory_limit 700MiB → 600MiB");
    assert_eq!(line("up to 16.00 MiB"), "up to 16.00 MiB 1 → 2 blocks +16.00 MiB");
    let json: Value = serde_json::from_str(&tool(&["diff", "--json", &a, &b]).run().ok().stdout).unwrap();
    assert_eq!(json["devices"][0]["figures"]["alloc"]["change"], 5.0, "{json:#}");
    assert_eq!(json["settings"][0]["key"], "memory_limit", "{json:#}");
}

#[test]
fn diff_decides_only_when_asked() {
    let (a, b) = (report("a.json"), report("b.json"));
    let status = |words: &[&str]| tool(&[&["diff"], words].concat()).run().status.code();
    assert_eq!(status(&[&a, &b]), Some(0));
    assert_eq!(status(&["--exit-code", &a, &b]), Some(1));
    assert_eq!(status(&["--exit-code", &a, &a]), Some(0));
    assert_eq!(status(&["--exit-code", &a, "/no/such"]), Some(2));
    assert!(tool(&["diff", &a, &a]).run().ok().stdout.contains("no figure and no setting differs"));
}

#[test]
fn merge_adds_ranks_up_and_names_the_odd_ones() {
    let files = [report("a.json"), report("b.json"), report("oom.json")];
    let words: Vec<&str> = files.iter().map(String::as_str).collect();
    let json: Value =
        serde_json::from_str(&tool(&[&["merge", "--json"], &words[..]].concat()).run().ok().stdout).unwrap();
    let single = |file: &str| {
        let json: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        json["devices"][0]["reserved_bytes"]["peak"].as_f64().unwrap()
    };
    let peaks: Vec<f64> = files.iter().map(|file| single(file)).collect();
    let row = &json["figures"]["reserved_bytes_peak"];
    assert_eq!(row["sum"].as_f64(), Some(peaks.iter().sum()), "{json:#}");
    assert_eq!(row["most"].as_f64(), peaks.iter().copied().reduce(f64::max), "{json:#}");
    assert_eq!(json["out_of_memory"], serde_json::json!(["oom"]), "{json:#}");
    let text = tool(&[&["merge"], &words[..]].concat()).run();
    assert!(
        ["3 reports", "slowest: ", "out of memory: oom"].iter().all(|p| text.ok().stdout.contains(p)),
        "{text}"
    );
    let twice = tool(&["merge", words[0], words[0]]).run();
    assert!(twice.status.code() == Some(2) && twice.stderr.contains("named twice"), "{twice}");
}

fn doctor(words: &[&str]) -> Outcome {
    let library = build::library();
    tool(&[&["doctor", "--lib", library.to_str().unwrap()], words].concat()).run()
}

#[test]
fn doctor_tells_which_programs_would_be_served() {
    let bin = build::programs().join("bin");
    let path = |name: &str| bin.join(name).to_str().unwrap().to_owned();
    for (program, finding) in [
        (path("route_shared"), "libcudart.so.13 (shared runtime)"),
        (path("route_shared_11"), "older than 12"),
        (path("route_static"), "has the runtime built in"),
        (path("route_driver"), "uses the driver directly"),
        ("sh".to_owned(), "none in the program itself"),
    ] {
        let run = doctor(&[&program]);
        assert!(run.ok().stdout.contains(finding), "{finding}: {run}");
        assert!(run.stdout.contains("ok       preloading  the library would be in this program"), "{run}");
        assert!(
            run.stdout
                .lines()
                .all(|line| ["ok ", "warning ", "fail ", "  "].iter().any(|w| line.starts_with(w)))
        );
    }
    let fixed = doctor(&[&path("hello_static")]);
    assert_eq!(fixed.status.code(), Some(1), "{fixed}");
    assert!(fixed.stdout.contains("statically linked"), "{fixed}");
    for (what, said) in [
        ("/etc/passwd", "/etc/passwd: it is no program: neither a binary nor a script"),
        ("/tmp", "/tmp: it is a folder; name a program"),
        ("/no/such", "/no/such: there is no such program\n"),
    ] {
        let run = doctor(&[what]);
        assert_eq!((run.status.code(), run.stdout.as_str()), (Some(2), ""), "{run}");
        assert!(run.stderr.contains(said), "{said}: {run}");
    }
    let nothing = doctor(&["nosuchprogram"]);
    assert!(nothing.status.code() == Some(2) && nothing.stderr.contains("nosuchprogram"), "{nothing}");
}

#[test]
fn doctor_sees_what_the_library_would_refuse_in_the_environment() {
    let library = build::library();
    let doctor = || tool(&["doctor", "--lib", library.to_str().unwrap()]);
    for (variable, value, finding) in [
        ("GPUCACHE_CONF", "foo", "fail     environment  GPUCACHE_CONF: `foo`: a colon must stand"),
        (
            "GPUCACHE_REPORT",
            "/no/such/r.json",
            "GPUCACHE_REPORT=/no/such/r.json: there is no folder /no/such",
        ),
        ("GPUCACHE_PROM", "/no/such/r.prom", "GPUCACHE_PROM=/no/such/r.prom: there is no folder /no/such"),
    ] {
        let run = doctor().env(variable, value).run();
        assert!(run.status.code() == Some(1) && run.stdout.contains(finding), "{run}");
    }
    let fine = doctor().env("GPUCACHE_CONF", "memory_limit:8GiB").run();
    assert!(fine.ok().stdout.contains("ok       environment  the library takes GPUCACHE_CONF"), "{fine}");
}

#[test]
fn doctor_sees_rights_and_scripts() {
    let folder = build::programs().join("run").join(format!("doctor-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let privileged = folder.join("privileged");
    fs::copy(build::programs().join("bin/hello"), &privileged).unwrap();
    fs::set_permissions(&privileged, fs::Permissions::from_mode(0o4755)).unwrap();
    let run = doctor(&[privileged.to_str().unwrap()]);
    assert!(run.status.code() == Some(1) && run.stdout.contains("is setuid or setgid"), "{run}");
    let script = folder.join("script");
    fs::write(&script, "#!/bin/sh\n").unwrap();
    let run = doctor(&[script.to_str().unwrap()]);
    assert!(run.ok().stdout.contains("run by /bin/sh"), "{run}");
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn doctor_reads_reports_and_looks_at_the_library() {
    let fine = doctor(&["--report", &report("a.json")]);
    assert!(fine.ok().stdout.contains("none in the report of process"), "{fine}");
    let wrong = run(&["--report", "r.json"], &["wrong_frees"]).run();
    let read = doctor(&["--report", wrong.folder.join("r.json").to_str().unwrap()]);
    assert!(read.ok().stdout.contains("of memory that was not allocated"), "{read}");
    let text = tool(&["doctor", "--lib", &report("a.json")]).run();
    assert!(text.status.code() == Some(1) && text.stdout.contains("is no library"), "{text}");
}

#[test]
fn path_completions_and_manual() {
    let library = build::library();
    let path = tool(&["path", "--lib", library.to_str().unwrap()]).run();
    assert_eq!(path.ok().stdout.trim_end(), library.to_str().unwrap());
    // As they are installed: side by side.
    let folder = build::programs().join("run/side-by-side");
    fs::create_dir_all(&folder).unwrap();
    let (installed, its_library) = (folder.join("gpucache"), folder.join("libgpucache.so"));
    fs::copy(env!("CARGO_BIN_EXE_gpucache"), &installed).unwrap();
    fs::copy(&library, &its_library).unwrap();
    let beside = Program::at(&installed).arg("path").run();
    assert_eq!(Path::new(beside.ok().stdout.trim_end()), its_library, "{beside}");
    for shell in ["bash", "zsh", "fish"] {
        assert!(tool(&["completions", shell]).run().ok().stdout.contains("exit-code"), "{shell}");
    }
    let manual = tool(&["man"]).run();
    assert!(manual.ok().stdout.contains(".TH") && manual.stdout.contains("doctor"), "{manual}");
    let pages = tool(&["man", "--into", "."]).run();
    let page = fs::read_to_string(pages.ok().folder.join("gpucache-run.1")).unwrap();
    assert!(page.contains("gpucache\\-run") && page.contains("limit"), "{page}");
    let page = |command: &str| {
        let text = fs::read_to_string(pages.folder.join(format!("gpucache-{command}.1"))).unwrap();
        text.replace('\\', "")
    };
    for command in ["empty-cache", "report", "reset-peak", "limit"] {
        let line = format!("gpucache ctl <PID|FILE> {command}");
        assert!(page(&format!("ctl-{command}")).contains(&line), "{}", page(&format!("ctl-{command}")));
        let help = tool(&["ctl", "1", command, "--help"]).run();
        assert!(help.ok().stdout.contains(&format!("Usage: {line}")), "{help}");
    }
    assert!(!page("run").contains("<gpucache") && page("ctl").contains("gpucache ctl"), "{}", page("ctl"));
    // Every page that is named in another is there.
    for page in fs::read_dir(&pages.folder).unwrap().map(|entry| entry.unwrap().path()) {
        let text = fs::read_to_string(&page).unwrap().replace('\\', "");
        for name in text
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
            .filter(|w| w.starts_with("gpucache-"))
        {
            let named = pages.folder.join(format!("{name}.1"));
            assert!(named.exists() || name.ends_with("help"), "{} names {name}", page.display());
        }
    }
}

#[test]
fn output_never_takes_the_place_of_a_report_or_of_other_output() {
    let folder = build::programs().join("run").join(format!("output-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (a, link) = (folder.join("a.json"), folder.join("hard.json"));
    fs::copy(report("a.json"), &a).unwrap();
    let before = fs::read(&a).unwrap();
    fs::hard_link(&a, &link).unwrap();
    let (a, link) = (a.to_str().unwrap(), link.to_str().unwrap());
    let (dotted, new) = (format!("{}/./a.json", folder.display()), format!("{}/new", folder.display()));
    let (also_new, b) = (format!("{}/./new", folder.display()), report("b.json"));
    for (words, what) in [
        (&["report", a, "--html", a][..], "it is what is to be read"),
        (&["report", a, "--trace", a], "it is what is to be read"),
        (&["report", a, "--memory-viz", link], "it is what is to be read"),
        (&["report", &b, a, "--html", &dotted], "it is what is to be read"),
        (&["merge", &b, a, "--html", link], "it is what is to be read"),
        (&["report", a, "--html", &new, "--trace", &also_new], "--trace writes to it too"),
        (&["report", a, "--html", "-", "--trace", "-"], "--trace writes to it too"),
    ] {
        let run = tool(words).run();
        assert_eq!((run.status.code(), run.stdout.as_str()), (Some(2), ""), "{run}");
        assert!(run.stderr.contains(what), "{what}: {run}");
        assert!(fs::read(a).unwrap() == before && !Path::new(&new).exists(), "{run}");
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_minus_is_the_standard_output() {
    let (a, b) = (report("a.json"), report("b.json"));
    for words in [&["report", &a, "--html", "-"][..], &["merge", &a, &b, "--html", "-"]] {
        let run = tool(words).run();
        assert!(run.ok().stdout.starts_with("<!") && run.stdout.trim_end().ends_with("</html>"), "{run}");
        assert!(run.stderr.is_empty() && !run.folder.join("-").exists(), "{run}");
    }
}
