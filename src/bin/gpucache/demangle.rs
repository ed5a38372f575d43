//! Names of functions as their language writes them. The library keeps them as they stand in the object: nothing that only a
//! reader needs is to be in every process.

use crate::report::Report;

/// Longer names are left as they are: some of C++ take more than they are worth.
const LONGEST: usize = 2000;

/// Puts the names in a report into a readable form.
pub fn demangle(report: &mut Report) {
    let sites = report.devices.iter_mut().filter_map(|device| device.sites.as_mut());
    for frame in sites.flat_map(|sites| sites.frames.iter_mut()).filter(|frame| !frame.is_python()) {
        if let Some(readable) = frame.function.as_deref().and_then(readable) {
            frame.function = Some(readable);
        }
    }
}

/// The readable form of a name; none if it has none.
fn readable(name: &str) -> Option<String> {
    if name.len() > LONGEST {
        return None;
    }
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        // Without the hash at its end.
        return Some(format!("{rust:#}"));
    }
    if !name.starts_with("_Z") {
        return None;
    }
    // Without parameters, which say little and take much room.
    let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
    cpp_demangle::Symbol::new(name).ok()?.demangle_with_options(&options).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn names_of_rust_and_of_cpp_become_readable_and_others_stay() {
        for (name, expected) in [
            ("_ZN8gpucache3abi7runtime6malloc17hc92ab1421c8b3878E", Some("gpucache::abi::runtime::malloc")),
            ("_ZN3c104cuda20CUDACachingAllocator3getEv", Some("c10::cuda::CUDACachingAllocator::get")),
            ("_ZN2at5emptyIfEEvRKSt6vectorIlSaIlEE", Some("at::empty<float>")),
            ("_RNvC3foo3bar", Some("foo::bar")),
            ("main", None),
            ("_Z", None),
            ("_ZNSt", None),
        ] {
            assert_eq!(readable(name).as_deref(), expected, "{name}");
        }
        assert_eq!(readable(&format!("_Z{}", "N1a".repeat(5000))), None);
    }

    #[test]
    fn a_report_is_gone_through() {
        let mut report = sample::training();
        report.devices[0].sites = Some(sample::sites());
        demangle(&mut report);
        let sites = report.devices[0].sites.as_ref().unwrap();
        assert_eq!(sites.words(&sites.frames[3]), "at::empty in libtorch.so");
        assert_eq!(sites.words(&sites.frames[0]), "remember (train.py:41)");
    }
}
