//! What new users write first: the words that must not become file names, sizes without a unit, the other key's form.

use super::*;

#[test]
fn a_likely_mistake_is_answered_by_what_was_probably_meant() {
    for (text, said) in [
        (
            "memory_limit:8",
            "`8` means 8 B, and less than 2MiB admits nothing; write 8GiB or 8MiB if that is meant",
        ),
        ("memory_limit:0.5", "`0.5` is a share of the device and not a size; write memory_fraction:0.5"),
        ("memory_limit:1.0", "write memory_fraction:1"),
        ("memory_limit:80%", "write memory_fraction:0.8"),
        ("memory_fraction:80%", "`80%` is a percentage; write 0.8"),
        ("memory_fraction:[0:80%]", "`80%` is a percentage; write 0.8"),
        ("memory_fraction:8GiB", "`8GiB` is a size and not a share of the device; write memory_limit:8GiB"),
        ("memory_fraction:-0.1", "`-0.1` is negative"),
        ("per_process_memory_fraction:-1", "per_process_memory_fraction:-1: `-1` is negative"),
        ("garbage_collection_threshold:-0.5", "`-0.5` is negative"),
        ("memory_fraction:--1", "`--1` is not a number"),
    ] {
        let parsed = own(text);
        let message = the_error(&parsed);
        assert!(message.contains(said), "{text}: {message}");
    }
    // What is proposed must be accepted, and what only looks like bytes without a unit gets no proposal.
    let one = own("memory_limit:1");
    let one = the_error(&one);
    assert!(one.contains("write 1GiB if that is meant") && !one.contains("1MiB"), "{one}");
    assert!(!the_error(&own("memory_limit:1500000")).contains("GiB or"));
    for text in ["memory_fraction:1", "memory_fraction:0.8", "memory_limit:8MiB", "memory_limit:2MiB"] {
        good(text);
    }
}

#[test]
fn a_setting_is_shown_under_the_name_that_was_written() {
    let written =
        |conf: Conf| conf.settings().into_iter().find(|s| s.key == "memory_fraction").unwrap().written_as;
    let other = Some("per_process_memory_fraction".to_owned());
    assert_eq!(written(good("per_process_memory_fraction:0.5")), other);
    assert_eq!(written(read(&[("PYTORCH_ALLOC_CONF", "per_process_memory_fraction:0.5")]).conf), other);
    assert_eq!(written(good("memory_fraction:0.5")), None);
    assert_eq!(written(Conf::default()), None);
}

#[test]
fn white_space_around_a_value_means_nothing_in_every_variable() {
    let parsed = read(&[
        ("GPUCACHE_CONF", "\tfree_sync : True\n"),
        ("GPUCACHE_REPORT", " a b.json\n"),
        ("GPUCACHE_LOG", " debug "),
        ("GPUCACHE_DISABLE", "\t1 "),
    ]);
    assert_eq!(parsed.errors, [""; 0]);
    let conf = &parsed.conf;
    assert!(conf.free_sync() && conf.is_disabled() && conf.log() == LogLevel::Debug);
    assert_eq!(*conf.report(), ReportTarget::File(Template::parse("a b.json").unwrap()));
    let blank = ENVIRONMENT.map(|variable| (variable, " \t\n"));
    assert_eq!(read(&blank), read(&[]), "white space alone is nothing");
}

#[test]
fn the_report_target_is_read() {
    let target = |value: &str| read(&[("GPUCACHE_REPORT", value)]).conf.report().clone();
    for off in ["off", "OFF", "Off", " off\n"] {
        assert_eq!(target(off), ReportTarget::Off, "{off}");
    }
    for stderr in ["", " ", "stderr", "STDERR"] {
        assert_eq!(target(stderr), ReportTarget::Stderr, "{stderr}");
    }
    for word in ["none", "None", "0", "1", "false", "False", "no", "on", "-", "stdout", "text", "json"] {
        let parsed = read(&[("GPUCACHE_REPORT", word)]);
        let message = the_error(&parsed);
        let named = format!("`{word}` is not taken for the name of a file; write ./{word} if it is one");
        assert!(
            message.contains(&named) && message.contains("accepted: off, stderr, or a file"),
            "{message}"
        );
        let file = format!("./{word}");
        assert_eq!(target(&file), ReportTarget::File(Template::parse(&file).unwrap()));
    }
    assert!(the_error(&read(&[("GPUCACHE_REPORT", "/tmp/")])).contains("names a folder"));
    assert_eq!(target("/tmp/%p.json"), ReportTarget::File(Template::parse("/tmp/%p.json").unwrap()));
    let parsed = read(&[("GPUCACHE_REPORT", "/tmp/%x.json")]);
    let message = the_error(&parsed);
    assert!(["GPUCACHE_REPORT", "`%x`", "%q{VAR}"].iter().all(|part| message.contains(part)), "{message}");
}
