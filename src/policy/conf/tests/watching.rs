//! Settings for those who watch: alarms, and files for other programs.

use super::{good, own, read, the_error};
use crate::policy::alarms::{Alarm, Subject};

#[test]
fn figures_for_prometheus_go_to_a_file_that_its_collector_reads() {
    let parsed = read(&[("GPUCACHE_PROM", "/var/lib/node/gpucache-%p.prom")]);
    assert_eq!((parsed.errors.len(), parsed.conf.prom().is_some()), (0, true));
    for text in ["on", "/var/lib/node/figures", "a%x.prom"] {
        let parsed = read(&[("GPUCACHE_PROM", text)]);
        assert!(the_error(&parsed).contains("GPUCACHE_PROM") && parsed.conf.prom().is_none(), "{text}");
    }
}

#[test]
fn every_alarm_is_taken() {
    let conf =
        good("alert:[held:0.9,reserved:1536MiB,allocated:8GiB,fragmentation:0.5,growth:100MiB,leak:10]");
    assert_eq!(
        conf.alert(),
        [
            Alarm::Share(Subject::Held, 0.9),
            Alarm::Bytes(Subject::Reserved, 3 << 29),
            Alarm::Bytes(Subject::Allocated, 8 << 30),
            Alarm::Fragmentation(0.5),
            Alarm::Growth(100 << 20),
            Alarm::Leak(10),
        ]
    );
    assert_eq!(good("").alert(), []);
    let small = good("alert:[held:0,allocated:1048576,growth:64KiB]");
    let (none, least) = (Alarm::Bytes(Subject::Held, 0), Alarm::Bytes(Subject::Allocated, 1 << 20));
    assert_eq!(small.alert(), [none, least, Alarm::Growth(64 << 10)], "what can be meant");
}

#[test]
fn alarms_that_are_none_are_errors_that_say_why() {
    for (text, fault) in [
        ("alert:0.9", "a list is needed"),
        ("alert:[used:0.9]", "`used` is no alarm"),
        ("alert:[reserved:1.5]", "`1.5` is not above 0 and below 1"),
        ("alert:[reserved:90%]", "90%"),
        ("alert:[fragmentation:2]", "`2` is not above 0 and below 1"),
        ("alert:[growth:fast]", "fast"),
        ("alert:[growth:1GB]", "1GB"),
        ("alert:[leak:2]", "`2` is not a number of minutes"),
        ("alert:[reserved>0.9]", "name:value"),
        (
            "alert:[held:95]",
            "`95` means 95 B; write 95GiB or 95MiB if that is meant, or 0.95 for that part of the cap; accepted: a list",
        ),
        (
            "alert:[held:0.9,reserved:1]",
            "`1` means 1 B; write 1GiB or 1MiB if that is meant; accepted: a list",
        ),
        ("alert:[growth:95]", "`95` means 95 B; write 95GiB or 95MiB if that is meant; accepted: a list"),
        (
            "alert:[allocated:8192]",
            "`8192` means 8192 B; write 8192GiB or 8192MiB if that is meant; accepted",
        ),
        ("alert:[reserved:1048575]", "means 1048575 B"),
        ("alert:[reserved:1.5GiB]", "`1.5GiB` is not a whole number"),
    ] {
        let parsed = own(text);
        let error = the_error(&parsed);
        assert!(error.contains("GPUCACHE_CONF") && error.contains(fault), "{text}: {error}");
        assert!(parsed.conf.alert().is_empty());
    }
    let many = format!("alert:[{}]", vec!["held:0.5"; 17].join(","));
    assert!(the_error(&own(&many)).contains("17 are too many"));
    assert!(the_error(&read(&[("GPUCACHE_ALERT_FILE", "off/")])).contains("GPUCACHE_ALERT_FILE"));
}

#[test]
fn any_text_is_a_command() {
    let command = "mail -s 'GPU, near the cap' me@example.org; true";
    let parsed = read(&[("GPUCACHE_ALERT_COMMAND", command), ("GPUCACHE_CONF", "alert:[held:0.9]")]);
    assert_eq!((parsed.conf.alert_command(), &parsed.warnings[..]), (Some(command), &[][..]));
    assert_eq!(good("").alert_command(), None);
    assert_eq!(read(&[("GPUCACHE_ALERT_COMMAND", "  ")]).conf.alert_command(), None);
    let idle = read(&[("GPUCACHE_ALERT_COMMAND", "true")]);
    assert!(idle.warnings[0].contains("no effect without an alarm"), "{:?}", idle.warnings);
}

#[test]
fn sites_are_sampled_by_a_word_or_an_interval() {
    for (text, interval) in [
        ("", None),
        ("sites:False", None),
        ("sites:True", Some(128 << 20)),
        ("sites:1", Some(1)),
        ("sites:32MiB", Some(32 << 20)),
        ("sites:4KiB", Some(4096)),
    ] {
        assert_eq!(good(text).sites(), interval, "{text}");
    }
    for (text, fault) in [
        ("sites:true", "does not start with a digit"),
        ("sites:0", "neither an interval nor False"),
        ("sites:16", "`16` means 16 B; write 16MiB if that is meant"),
        ("sites:1GB", "1GB"),
        ("sites:[0:1MiB]", "sites"),
    ] {
        let parsed = own(text);
        let error = the_error(&parsed);
        assert!(error.contains("GPUCACHE_CONF") && error.contains(fault), "{text}: {error}");
        assert_eq!(parsed.conf.sites(), None);
    }
}
