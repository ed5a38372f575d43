//! The configuration as a user meets it: environments in, settings and messages out.

mod mistakes;
mod watching;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use super::*;
use proptest::prelude::*;

const GIB: u64 = 1 << 30;

fn read(environment: &[(&str, &str)]) -> Parsed {
    Conf::from_env(|name| {
        environment.iter().find(|(variable, _)| *variable == name).map(|(_, value)| (*value).to_owned())
    })
}

fn own(text: &str) -> Parsed {
    read(&[("GPUCACHE_CONF", text)])
}

fn good(text: &str) -> Conf {
    let parsed = own(text);
    assert_eq!((parsed.errors, parsed.warnings), (vec![], vec![]), "{text}");
    parsed.conf
}

fn the_error(parsed: &Parsed) -> &str {
    assert_eq!(parsed.errors.len(), 1, "{parsed:?}");
    &parsed.errors[0]
}

#[test]
fn nothing_set_is_the_default_and_has_no_cap() {
    let parsed = read(&[]);
    assert_eq!(parsed, Parsed { conf: Conf::default(), warnings: vec![], errors: vec![] });
    assert_eq!(parsed.conf.limit_for(0, 80 * GIB), Limit { bytes: 80 * GIB, capped: false });
    assert!(parsed.conf.settings().iter().all(|setting| setting.source == "default"));
    assert_eq!(parsed.conf.max_non_split_rounding(), 20 << 20);
    assert_eq!(own("").conf, Conf::default());
}

#[test]
fn every_key_is_taken() {
    let conf = good(
        "memory_limit:8GiB,garbage_collection_threshold:0.8,max_split_size_mb:128,max_non_split_rounding_mb:40,\
         roundup_power2_divisions:4,free_sync:True,expandable_segments:False",
    );
    assert_eq!(conf.limit_for(3, 80 * GIB), Limit { bytes: 8 * GIB, capped: true });
    assert_eq!(conf.garbage_collection_threshold(), Some(0.8));
    assert_eq!(conf.max_split_size(), Some(128 << 20));
    assert_eq!(conf.max_non_split_rounding(), 40 << 20);
    assert_eq!(*conf.rounding(), Rounding::uniform(4));
    assert!(conf.free_sync() && !conf.expandable_segments());
}

#[test]
fn the_ends_of_each_range_are_taken() {
    assert_eq!(good("max_split_size_mb:20").max_split_size(), Some(20 << 20));
    assert_eq!(good("max_non_split_rounding_mb:20").max_non_split_rounding(), 20 << 20);
    assert_eq!(good("max_split_size_mb:18446744073709551615").max_split_size(), Some(u64::MAX));
    assert_eq!(good("garbage_collection_threshold:1e-9").garbage_collection_threshold(), Some(1e-9));
    assert!(good("roundup_power2_divisions:1").rounding().is_none());
    assert!(good("roundup_power2_divisions:[256:0,>:1]").rounding().is_none());
}

#[test]
fn a_fraction_is_taken_of_the_total() {
    for key in ["memory_fraction", "per_process_memory_fraction"] {
        let conf = good(&format!("{key}:0.25"));
        assert_eq!(conf.limit_for(0, 80 * GIB), Limit { bytes: 20 * GIB, capped: true });
    }
    let whole = good("memory_fraction:1");
    // A total that floating point cannot hold, rounded down if it is multiplied.
    assert_eq!(whole.limit_for(0, (1 << 60) + 1), Limit { bytes: (1 << 60) + 1, capped: false });
}

#[test]
fn zero_admits_nothing_and_is_never_no_limit() {
    for text in [
        "memory_limit:0",
        "memory_limit:0GiB",
        "memory_fraction:0",
        "memory_fraction:0.0",
        "memory_limit:[0:0]",
    ] {
        assert_eq!(good(text).limit_for(0, 80 * GIB), Limit { bytes: 0, capped: true }, "{text}");
    }
}

#[test]
fn a_limit_above_the_total_is_the_total() {
    assert_eq!(good("memory_limit:100GiB").limit_for(0, 80 * GIB), Limit { bytes: 80 * GIB, capped: false });
}

#[test]
fn of_two_caps_the_smaller_holds() {
    let conf = good("memory_fraction:0.5,memory_limit:8GiB");
    assert_eq!(conf.limit_for(0, 80 * GIB).bytes, 8 * GIB);
    assert_eq!(conf.limit_for(0, 10 * GIB).bytes, 5 * GIB);
}

#[test]
fn caps_may_differ_by_device_and_in_form() {
    let total = 80 * GIB;
    for key in ["memory_fraction", "memory_limit"] {
        let conf = good(&format!("{key}:[0:0.5,1:8GiB,10:512MiB]"));
        let bytes: Vec<_> = [0, 1, 10, 2].map(|device| conf.limit_for(device, total).bytes).into();
        assert_eq!(bytes, [40 * GIB, 8 * GIB, GIB / 2, total], "{key}");
        assert!(!conf.limit_for(2, total).capped);
    }
    // A bare whole number is what the key stands for.
    assert_eq!(good("memory_limit:[0:4194304]").limit_for(0, total).bytes, 4 << 20);
    assert_eq!(good("memory_fraction:[0:1]").limit_for(0, total).bytes, total);
}

#[test]
fn white_space_has_no_meaning_anywhere() {
    assert_eq!(good(" memory_limit : 8 GiB ").limit_for(0, 80 * GIB).bytes, 8 * GIB);
}

#[test]
fn a_bad_value_is_an_error_that_names_variable_key_value_and_accepted_form() {
    for (text, value, accepted) in [
        ("memory_limit:8GB", "8GB", "8GiB"),
        ("memory_limit:1e9", "1e9", "plain bytes"),
        ("memory_limit:[0:1]", "`1` means 1 B", "8GiB"),
        ("memory_limit:2097151", "2097151", "from 2MiB on"),
        ("memory_limit:512KiB", "`512KiB` means 512.00 KiB", "from 2MiB on"),
        ("memory_fraction:[0:1KiB]", "`1KiB` means 1.00 KiB", "0 to 1"),
        ("memory_limit:0m", "0m", "8GiB"),
        ("memory_limit:-1", "-1", "8GiB"),
        ("memory_limit:0.5", "0.5", "8GiB"),
        ("memory_limit:99999999999GiB", "99999999999GiB", "8GiB"),
        ("memory_limit:[0:8GB]", "8GB", "8GiB"),
        ("memory_limit:[0:1GiB,0:2GiB]", "0:1GiB", "8GiB"),
        ("memory_limit:[a:1GiB]", "`a`", "8GiB"),
        ("memory_limit:[4294967296:1GiB]", "4294967296", "8GiB"),
        ("memory_fraction:1.01", "1.01", "0 to 1"),
        ("memory_fraction:-0.1", "-0.1", "0 to 1"),
        ("memory_fraction:-0", "-0", "0 to 1"),
        ("memory_fraction:nan", "nan", "0 to 1"),
        ("memory_fraction:inf", "inf", "0 to 1"),
        ("memory_fraction:80%", "80%", "0 to 1"),
        ("memory_fraction:8GiB", "8GiB", "0 to 1"),
        ("per_process_memory_fraction:2", "per_process_memory_fraction:2", "0 to 1"),
        ("garbage_collection_threshold:0", "0", "above 0 and below 1"),
        ("garbage_collection_threshold:1.0", "1.0", "above 0 and below 1"),
        ("garbage_collection_threshold:[0:0.5]", "[0:0.5]", "above 0 and below 1"),
        ("max_split_size_mb:19", "19", "at least 20"),
        ("max_split_size_mb:1.5", "1.5", "at least 20"),
        ("max_split_size_mb:+20", "+20", "at least 20"),
        ("max_non_split_rounding_mb:1", "1", "at least 20"),
        ("roundup_power2_divisions:3", "3", "power of two"),
        ("roundup_power2_divisions:0", "0", "power of two"),
        ("roundup_power2_divisions:[3:1]", "3", "power of two"),
        ("roundup_power2_divisions:[256:3]", "3", "power of two"),
        ("free_sync:true", "true", "True or False"),
        ("free_sync:1", "1", "True or False"),
        ("expandable_segments:yes", "yes", "True or False"),
    ] {
        let parsed = own(text);
        let message = the_error(&parsed);
        let key = text.split(':').next().unwrap();
        for part in ["GPUCACHE_CONF", key, value, "accepted: ", accepted] {
            assert!(message.contains(part), "{text}: {message} lacks {part}");
        }
        assert_eq!(parsed.conf.limit_for(0, GIB), Limit { bytes: GIB, capped: false }, "{text}");
    }
}

#[test]
fn the_message_reads_well() {
    assert_eq!(
        the_error(&own("memory_limit:8GB")),
        "GPUCACHE_CONF: memory_limit:8GB: `8GB` has a unit that is not known; \
         accepted: 8GiB, 8192MiB or plain bytes from 2MiB on, 0 to admit nothing, or one for each device: \
         [0:0.5,1:8GiB]"
    );
    assert_eq!(
        the_error(&own("memory_limit=8GiB")),
        "GPUCACHE_CONF: `memory_limit=8GiB`: a colon must stand between a key and its value; \
         accepted: key:value,key:[name:value,name:value]"
    );
    assert_eq!(
        the_error(&read(&[("GPUCACHE_LOG", "loud")])),
        "GPUCACHE_LOG: loud: `loud` is none of these; accepted: off, error, warn, info, debug or trace"
    );
}

#[test]
fn a_message_is_one_line_whatever_the_value_holds() {
    let parsed = read(&[("GPUCACHE_LOG", "a\nb\u{1b}[31m"), ("GPUCACHE_CONF", "x\u{7}y:1,free_sync:\u{1b}")]);
    assert_eq!((parsed.errors.len(), parsed.warnings.len()), (2, 1));
    assert!(parsed.errors.iter().chain(&parsed.warnings).all(|message| !message.contains(char::is_control)));
}

#[test]
fn a_departure_from_the_grammar_is_an_error_in_our_variable() {
    for text in [
        "memory_limit",
        "memory_limit:",
        "memory_limit=8GiB",
        "memory_limit:[0:1GiB",
        "a:1;b:2",
        ":",
        "free_sync:True,,",
    ] {
        assert!(!own(text).errors.is_empty(), "{text}");
    }
}

#[test]
fn a_key_given_twice_is_an_error_that_names_both() {
    for (text, both) in [
        ("memory_limit:1GiB,memory_limit:2GiB", ["memory_limit:1GiB", "memory_limit:2GiB"]),
        (
            "memory_fraction:1,per_process_memory_fraction:0.5",
            ["memory_fraction:1", "per_process_memory_fraction:0.5"],
        ),
    ] {
        let parsed = own(text);
        let message = the_error(&parsed);
        assert!(both.iter().all(|part| message.contains(part)), "{message}");
    }
}

#[test]
fn every_error_is_reported_and_not_only_the_first() {
    assert_eq!(own("memory_limit:8GB,free_sync:yes,x=1").errors.len(), 3);
}

#[test]
fn an_unknown_key_warns_with_the_nearest_known_one() {
    let parsed = own("memory_limt:8GiB");
    assert_eq!(parsed.errors, [""; 0]);
    assert_eq!(parsed.warnings, ["GPUCACHE_CONF: unknown key memory_limt; did you mean memory_limit?"]);
    let far = own("colour:red").warnings;
    assert!(far.len() == 1 && far[0].contains("known are memory_fraction, memory_limit"), "{far:?}");
}

#[test]
fn keys_of_pytorchs_own_warn_in_our_variable_and_pass_in_pytorchs() {
    let text = "backend:native,pinned_use_background_threads:True,large_segment_size_mb:40,\
                expandable_segments_reserve:0.5,throw_on_cudamalloc_oom:True,expandable_segments:True";
    for variable in ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"] {
        assert_eq!(read(&[(variable, text)]), read(&[]), "{variable}");
    }
    let parsed = own("backend:native");
    assert_eq!((parsed.errors.len(), parsed.warnings.len()), (0, 1));
    assert!(parsed.warnings[0].contains("backend has no effect here"), "{:?}", parsed.warnings);
}

#[test]
fn expandable_segments_are_taken_and_what_they_make_void_is_said() {
    let parsed = own("expandable_segments:True");
    assert_eq!((parsed.errors.len(), parsed.warnings.len()), (0, 0));
    assert!(parsed.conf.expandable_segments() && !read(&[]).conf.expandable_segments());
    let reported =
        parsed.conf.settings().into_iter().find(|setting| setting.key == "expandable_segments").unwrap();
    assert_eq!(reported.value, "True");
    let both = own("max_split_size_mb:128,expandable_segments:True").warnings;
    assert!(both.len() == 1 && both[0].contains("max_split_size_mb has no effect"), "{both:?}");
    assert_eq!(own("max_split_size_mb:128,expandable_segments:False").warnings, [""; 0]);
}

#[test]
fn fallback_is_key_by_key() {
    let parsed = read(&[
        ("GPUCACHE_CONF", "garbage_collection_threshold:0.5"),
        ("PYTORCH_CUDA_ALLOC_CONF", "garbage_collection_threshold:0.6,max_split_size_mb:64"),
        ("PYTORCH_ALLOC_CONF", "max_split_size_mb:128,per_process_memory_fraction:0.5"),
    ]);
    assert_eq!((&parsed.errors[..], &parsed.warnings[..]), (&[][..], &[][..]));
    let conf = &parsed.conf;
    assert_eq!(conf.garbage_collection_threshold(), Some(0.5));
    assert_eq!(conf.max_split_size(), Some(64 << 20));
    assert_eq!(conf.limit_for(0, 80 * GIB).bytes, 40 * GIB);
    let settings = conf.settings();
    let source = |key: &str| {
        let setting = settings.iter().find(|setting| setting.key == key).unwrap();
        (setting.value.as_str(), setting.source.as_str())
    };
    assert_eq!(source("garbage_collection_threshold"), ("0.5", "GPUCACHE_CONF"));
    assert_eq!(source("max_split_size_mb"), ("64", "PYTORCH_CUDA_ALLOC_CONF"));
    assert_eq!(source("memory_fraction"), ("0.5", "PYTORCH_ALLOC_CONF"));
    assert_eq!(source("max_non_split_rounding_mb"), ("20", "default"));
}

#[test]
fn a_fault_in_pytorchs_variable_warns_and_costs_that_key_only() {
    let parsed = read(&[(
        "PYTORCH_CUDA_ALLOC_CONF",
        "max_split_size_mb:5,garbage_collection_threshold=0.5,roundup_power2_divisions:8,newer_key:1,nonsense",
    )]);
    assert_eq!(parsed.errors, [""; 0]);
    assert_eq!(parsed.warnings.len(), 2, "{:?}", parsed.warnings);
    assert!(parsed.warnings.iter().all(|warning| warning.contains("ignored")));
    assert_eq!(*parsed.conf.rounding(), Rounding::uniform(8));
    assert_eq!(parsed.conf.max_split_size(), None);
}

#[test]
fn a_bad_value_does_not_hide_the_good_one_of_the_next_variable() {
    let parsed = read(&[
        ("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:5"),
        ("PYTORCH_ALLOC_CONF", "max_split_size_mb:50"),
    ]);
    assert_eq!(parsed.conf.max_split_size(), Some(50 << 20));
}

#[test]
fn our_own_keys_in_pytorchs_variable_warn_because_they_have_no_effect_there() {
    for entry in ["memory_limit:8GiB", "memory_fraction:0.5", "free_sync:True"] {
        let parsed = read(&[("PYTORCH_ALLOC_CONF", entry)]);
        assert_eq!(parsed.conf, Conf::default(), "{entry}");
        assert!(parsed.warnings.len() == 1 && parsed.warnings[0].contains("GPUCACHE_CONF"), "{parsed:?}");
    }
}

#[test]
fn the_log_level_is_read() {
    for (text, level) in
        [("off", LogLevel::Off), ("", LogLevel::Warn), ("trace", LogLevel::Trace), ("INFO", LogLevel::Info)]
    {
        assert_eq!(read(&[("GPUCACHE_LOG", text)]).conf.log(), level);
    }
    assert!(!read(&[("GPUCACHE_LOG", "verbose")]).errors.is_empty());
}

#[test]
fn only_1_disables() {
    for (text, disabled) in [("1", true), ("0", false), ("", false)] {
        let parsed = read(&[("GPUCACHE_DISABLE", text)]);
        assert_eq!((parsed.conf.is_disabled(), parsed.errors.len()), (disabled, 0), "{text}");
    }
    for text in ["true", "yes", "2"] {
        let parsed = read(&[("GPUCACHE_DISABLE", text)]);
        assert!(the_error(&parsed).contains(text) && !parsed.conf.is_disabled());
    }
}

#[test]
fn bytes_that_are_no_text_are_an_error_in_our_variables_and_a_warning_in_pytorchs() {
    for (variable, errors, warnings) in [
        ("GPUCACHE_CONF", 1, 0),
        ("GPUCACHE_REPORT", 1, 0),
        ("GPUCACHE_LOG", 1, 0),
        ("GPUCACHE_DISABLE", 1, 0),
        ("PYTORCH_CUDA_ALLOC_CONF", 0, 1),
    ] {
        let parsed = Conf::from_env(|name| (name == variable).then(|| OsString::from_vec(vec![b'a', 0xff])));
        assert_eq!((parsed.errors.len(), parsed.warnings.len()), (errors, warnings), "{variable}");
        assert!(parsed.errors.iter().chain(&parsed.warnings).all(|message| message.contains(variable)));
    }
}

#[test]
fn unknown_variables_warn_with_the_nearest() {
    let warnings = unknown_variables([
        "PATH",
        "GPUCACHE_CONF",
        "GPUCACHE_LIB",
        "GPUCACHE_CONFIG",
        "GPUCACHE_REPROT",
        "GPUCACHE_XYZZY",
        "GPUCACHE",
    ]);
    assert_eq!(
        warnings,
        [
            "unknown variable GPUCACHE_CONFIG; did you mean GPUCACHE_CONF?",
            "unknown variable GPUCACHE_REPROT; did you mean GPUCACHE_REPORT?",
            "unknown variable GPUCACHE_XYZZY; known are GPUCACHE_CONF, GPUCACHE_REPORT, GPUCACHE_PROM, \
             GPUCACHE_ALERT_FILE, GPUCACHE_ALERT_COMMAND, GPUCACHE_LOG, GPUCACHE_DISABLE",
        ]
    );
}

proptest! {
    #[test]
    fn no_environment_panics_and_no_limit_exceeds_the_total(
        own in "[a-z_:,.0-9\\[\\]GiBM ]{0,48}", fallback in "\\PC{0,32}", total in any::<u64>()
    ) {
        let parsed = read(&[("GPUCACHE_CONF", &own), ("PYTORCH_ALLOC_CONF", &fallback)]);
        prop_assert!(parsed.conf.limit_for(0, total).bytes <= total);
    }

    #[test]
    fn a_limit_once_written_is_in_force_or_an_error(value in "[0-9.eGiMBK-]{1,8}") {
        let parsed = own(&format!("memory_limit:{value}"));
        prop_assert_eq!(parsed.conf.has_cap(), parsed.errors.is_empty());
    }
}
