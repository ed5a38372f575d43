//! What the tool shows of sites: leaks, folded stacks, what grew between two reports, and names as their language writes them.

mod harness;
mod tooling;

use harness::{MIB, Program, build};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use tooling::{report, tool};

/// A report of the program with sites that ran these parts.
fn sampled(name: &str, parts: &[&str]) -> String {
    let folder: PathBuf = build::programs().join("run").join(format!("sites-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join(name);
    let program = Program::new("sites").preload().conf("sites:1").report_to(path.to_str().unwrap());
    parts.iter().fold(program, |program, part| program.arg(*part)).run().ok();
    path.to_str().unwrap().to_owned()
}

/// The text without where in its object each named call is, which depends on the compiler.
fn without_offsets(text: &str) -> String {
    let mut parts = text.split(" in sites+0x");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + " in sites" + part.trim_start_matches(|c: char| c.is_ascii_hexdigit())
    })
}

#[test]
fn leaks_are_told_with_their_stacks() {
    let path = sampled("leaks.json", &["leak", "churn", "outside"]);
    let run = tool(&["report", "--leaks", &path]).run();
    assert!(run.ok().stdout.contains("    leaks_here in sites+0x"), "where exactly, too: {run}");
    let text = &without_offsets(&run.stdout);
    assert!(text.contains("20.00 MiB never freed, 12.00 MiB in pooled blocks"), "{run}");
    assert!(
        text.contains(
            "  12.00 MiB in 3 blocks\n    leaks_here in sites\n    part in sites\n    main in sites\n"
        ),
        "{run}"
    );
    assert!(text.contains("  5.00 MiB in 1 block\n    in_stream_order in sites\n"), "{run}");
    assert!(!text.contains("gives_back_here"), "{run}");
}

#[test]
fn the_text_has_the_first_sites() {
    let path = sampled("text.json", &["leak", "peak"]);
    let run = tool(&["report", &path]).run();
    let text = &run.ok().stdout;
    assert!(
        text.contains(
            "held at the end 12.00 MiB in 3 blocks: leaks_here in sites < part in sites < main in sites\n"
        ),
        "{run}"
    );
    assert!(text.contains("held at peak    128.00 MiB: gives_back_here in sites"), "{run}");
}

#[test]
fn folded_stacks_add_up() {
    let path = sampled("folded.json", &["leak", "churn", "recursion"]);
    for (what, sum) in [("--folded", 14 * MIB), ("--folded=total", 814 * MIB)] {
        let run = tool(&["report", what, &path]).run();
        let lines: Vec<(&str, u64)> = run
            .ok()
            .stdout
            .lines()
            .map(|line| line.rsplit_once(' ').unwrap())
            .map(|(stack, bytes)| (stack, bytes.parse().unwrap()))
            .collect();
        assert_eq!(lines.iter().map(|(_, bytes)| bytes).sum::<u64>(), sum, "{run}");
        assert!(
            lines.iter().any(|(stack, _)| stack.ends_with("main in sites;part in sites;leaks_here in sites")),
            "{run}"
        );
        assert!(lines.iter().any(|(stack, _)| stack.starts_with("(more);descends")), "{run}");
    }
}

#[test]
fn a_run_without_samples_says_how_to_have_them() {
    for option in ["--leaks", "--folded"] {
        let run = tool(&["report", option, &report("a.json")]).run();
        assert_eq!(run.status.code(), Some(2), "{run}");
        assert!(run.stderr.contains("GPUCACHE_CONF=sites:True") && run.stdout.is_empty(), "{run}");
    }
}

#[test]
fn diff_names_the_sites_that_grew() {
    let (a, b) = (
        sampled("before.json", &["leak", "recursion"]),
        sampled("after.json", &["leak", "leak", "recursion", "outside"]),
    );
    let run = tool(&["diff", &a, &b]).run();
    let text = &run.ok().stdout;
    assert!(text.contains("sites that hold more at the end\n    +12.00 MiB (12.00 MiB → 24.00 MiB): leaks_here in sites < part"), "{run}");
    assert!(text.contains("+5.00 MiB (0 B → 5.00 MiB): in_stream_order"), "{run}");
    assert!(!text.contains("descends"), "{run}");
    let json = tool(&["diff", "--json", &a, &b]).run();
    let json: Value = serde_json::from_str(&json.ok().stdout).unwrap();
    let grew = json["devices"][0]["sites_grew"].as_array().unwrap();
    assert_eq!((grew.len(), &grew[0]["bytes_b"]), (3, &(24 * MIB).into()), "{json}");
    assert_eq!(grew[0]["may_be_chance"], false);
}

#[test]
fn the_page_has_stacks_to_unfold() {
    let path = sampled("page.json", &["leak", "churn"]);
    let page = path.replace(".json", ".html");
    tool(&["report", "--html", &page, &path]).run().ok();
    let text = without_offsets(&fs::read_to_string(&page).unwrap());
    let section = text.split("Who holds the memory").nth(1).unwrap_or_else(|| panic!("{text}"));
    assert!(
        section.contains("12.00 MiB in 3 blocks") && section.contains("<li>leaks_here in sites</li>"),
        "{section}"
    );
    assert!(
        section.contains("allocated in all") && section.contains("gives_back_here in sites"),
        "{section}"
    );
}
