//! The report's page in a real browser: it shows what the report holds, and asks nobody for anything.
//!
//! Skipped, with a word about it, where there is no chromium.

mod harness;

use harness::{Program, build};
use std::path::{Path, PathBuf};
use std::process::Command;

const TOOL: &str = env!("CARGO_BIN_EXE_gpucache");

fn browser() -> Option<PathBuf> {
    let found = ["chromium", "chromium-browser", "google-chrome"].into_iter().find_map(|name| {
        std::env::split_paths(&std::env::var_os("PATH")?)
            .map(|folder| folder.join(name))
            .find(|path| path.is_file())
    });
    if found.is_none() {
        eprintln!("skipped: no chromium was found in PATH");
    }
    found
}

/// The page as the browser has built it. The browser may not ask anybody either, for its own ends: no name leads anywhere.
fn opened(browser: &Path, page: &Path, folder: &Path) -> String {
    let mut command = Command::new("timeout");
    command.arg("120").arg(browser).args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        "--dump-dom",
    ]);
    command.arg(format!("--user-data-dir={}", folder.join("profile").display()));
    command.arg(format!("file://{}", page.display()));
    for name in ["LD_PRELOAD", "LD_LIBRARY_PATH"] {
        command.env_remove(name);
    }
    let output = command.output().expect("the browser");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The text between tags, white space as one blank.
fn text_of(dom: &str) -> String {
    let body = dom.split("<body>").nth(1).unwrap_or_default();
    let text: String = body
        .split('<')
        .map(|part| part.split_once('>').map_or(part, |(_, text)| text))
        .collect::<Vec<_>>()
        .join(" ");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_report_is_seen_in_a_browser() {
    let Some(browser) = browser() else { return };
    let library = build::library();
    let words = ["run", "--lib", library.to_str().unwrap(), "--limit", "64MiB", "--html", "page.html"];
    let program = words.iter().fold(Program::at(TOOL).text_report(), |program, word| program.arg(*word));
    let seq = build::programs().join("bin/seq");
    let run = program
        .arg(seq.to_str().unwrap())
        .arg("a40m a100m")
        .arg("<script>document.title='owned'</script>")
        .run();
    let dom = opened(&browser, &run.folder.join("page.html"), &run.folder);
    let text = text_of(&dom);
    for part in [
        "out of memory 1 time",
        "What would have helped",
        "Simulated CUDA device",
        "Cap: 64.00 MiB",
        "100.00 MiB asked",
        "would have been enough",
        "Requests by size",
        "Never freed 1 block, 40.00 MiB",
        "memory_limit 64MiB GPUCACHE_CONF",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(dom.matches("<rect").count() > 5, "bars are drawn");
    assert!(!dom.contains("owned</title>") && !dom.contains("<script"), "a command line is text: {dom}");
    assert!(!dom.contains("http:") && !dom.contains("https:"), "{dom}");
    assert!(dom.contains("default-src 'none'"), "and the page says that nobody may be asked");
}

/// What the browser has made of the section that begins with this.
fn section<'a>(dom: &'a str, begin: &str) -> &'a str {
    let rest = dom.split(begin).nth(1).unwrap_or_else(|| panic!("{begin} in {dom}"));
    rest.split("</section>").next().unwrap_or_default()
}

#[test]
fn a_history_is_drawn_in_a_browser() {
    let Some(browser) = browser() else { return };
    let library = build::library();
    let conf = ["--limit", "80MiB", "--conf", "history:1000", "--html", "page.html"];
    let words = ["run", "--lib", library.to_str().unwrap()].into_iter().chain(conf);
    let program = words.fold(Program::at(TOOL).text_report(), Program::arg);
    let seq = build::programs().join("bin/seq");
    let run = program.arg(seq.to_str().unwrap()).arg("a60m f0 a10m*6 s f1 f3 f5 a30m F w a512*40 a70m").run();
    let dom = opened(&browser, &run.folder.join("page.html"), &run.folder);
    let text = text_of(&dom);
    for part in [
        "30.00 MiB asked",
        "Asked by thread",
        "In use: 3 blocks: 3 × 10.00 MiB.",
        "expandable_segments:True, which would have served the 30.00 MiB that failed",
        "Over time GPU 0",
        "allocations 7",
        "out of memory 2",
        "GPU 0 at the high-water mark",
        "GPU 0 at out of memory 1: 30.00 MiB asked, after ",
        "s 1 segment, 60.00 MiB: 30.00 MiB allocated",
        "GPU 0 at the end",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
    assert!(place("How the memory lay") < place("Requests by size"), "what is looked at first stands first");
    let history = section(&dom, "<section class=\"history\">");
    assert!(history.matches("<polygon").count() >= 2 && history.contains("MiB asked</title>"), "{history}");
    let maps = section(&dom, "<section class=\"segments\">");
    assert!(maps.contains("<title>free, 10.00 MiB</title>"), "{maps}");
    assert!(!dom.contains("http:") && !dom.contains("https:") && !dom.contains("<script"), "{dom}");
    // Where the second of six blocks lies in its segment: numbers that the browser reads as such.
    assert!(maps.contains("width=\"166.6"), "{maps}");
}
