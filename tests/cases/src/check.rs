//! What can be known of the cases without a build: that each is whole, names tests which exist, and applies.

use crate::case::{Case, ids, load};
use std::fs;
use std::path::{Path, PathBuf};

/// Everything that is wrong with the cases of the tree at `root`; empty if nothing is.
pub fn faults(root: &Path) -> Vec<String> {
    match load(root) {
        Ok(cases) => {
            debug_assert_eq!(cases.len(), ids().len());
            cases.iter().flat_map(|case| of_one(root, case)).collect()
        }
        Err(why) => vec![why],
    }
}

fn of_one(root: &Path, case: &Case) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, text) in [("input", &case.input), ("right", &case.right), ("seen", &case.seen)] {
        if text.trim().is_empty() {
            wrong.push(format!("`{name}` is empty"));
        }
    }
    if case.fault.is_empty() && case.gpu.is_empty() && case.pending.is_none() {
        wrong.push("neither a fault, nor a step on a GPU, nor a reason why there is none".to_owned());
    }
    if case.held_by.is_empty() && case.gpu.is_empty() && case.pending.is_none() {
        wrong.push("held by no test".to_owned());
    }
    wrong
        .extend(case.held_by.iter().filter(|test| !exists(root, test)).map(|test| format!("no test {test}")));
    wrong.extend(
        case.gpu.iter().filter(|step| !is_step(root, step)).map(|step| format!("no GPU step {step}")),
    );
    for fault in &case.fault {
        if fault.red.is_empty() {
            wrong.push(format!("no test goes red: {}", fault.what));
        }
        for test in fault.red.iter().filter(|test| !case.held_by.contains(test)) {
            wrong.push(format!("{test} goes red, but `held_by` does not name it"));
        }
        if let Err(why) = fault.apply(root) {
            wrong.push(format!("does not apply: {}: {why}", fault.what));
        }
    }
    wrong.into_iter().map(|text| format!("{}: {text}", case.id)).collect()
}

/// A test by name: `FILE::NAME` of `tests/FILE.rs`, or `lib::MODULE::NAME` of the library's own; or a script by its path.
fn exists(root: &Path, test: &str) -> bool {
    if test.starts_with("scripts/") {
        return root.join(test).is_file();
    }
    let words: Vec<&str> = test.split("::").collect();
    let [within @ .., name] = words.as_slice() else { return false };
    let places: Vec<PathBuf> = match within {
        ["lib", modules @ ..] => {
            let whole = root.join("src").join(modules.join("/"));
            let outer = root.join("src").join(modules[..modules.len().saturating_sub(1)].join("/"));
            vec![
                whole.with_extension("rs"),
                whole.join("mod.rs"),
                outer.with_extension("rs"),
                outer.join("mod.rs"),
            ]
        }
        [file] => vec![root.join("tests").join(file).with_extension("rs")],
        _ => return false,
    };
    places.iter().filter_map(|place| fs::read_to_string(place).ok()).any(|text| has_test(&text, name))
}

fn has_test(text: &str, name: &str) -> bool {
    let head = format!("fn {name}(");
    text.split("#[test]").skip(1).any(|rest| {
        rest.lines().find(|line| line.contains("fn ")).is_some_and(|line| line.trim().starts_with(&head))
    })
}

fn is_step(root: &Path, step: &str) -> bool {
    let head = format!("step_{}()", step.replace('-', "_"));
    ["steps.sh", "steps_more.sh", "steps_expandable.sh"].iter().any(|file| {
        fs::read_to_string(root.join("tests/gpu").join(file))
            .is_ok_and(|text| text.lines().any(|line| line.starts_with(&head)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{Edit, Fault};

    fn root() -> PathBuf {
        crate::root()
    }

    #[test]
    fn every_row_is_there_and_every_fault_applies() {
        let wrong = faults(&root());
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    type Spoil = fn(&mut Case);

    /// A case that is right, for the next test to spoil.
    fn good() -> Case {
        let edit =
            Edit { file: "src/lib.rs".to_owned(), find: "pub mod abi;\n".to_owned(), put: String::new() };
        let test = "memory::info_takes_null_pointers".to_owned();
        let fault = Fault { what: "x".to_owned(), red: vec![test.clone()], edit: vec![edit] };
        Case {
            id: "M1".to_owned(),
            seen: "x".to_owned(),
            input: "x".to_owned(),
            right: "x".to_owned(),
            held_by: vec![test],
            gpu: vec!["race".to_owned()],
            pending: None,
            fault: vec![fault],
        }
    }

    #[test]
    fn what_is_wrong_with_a_case_is_found() {
        assert_eq!(of_one(&root(), &good()), [""; 0]);
        let spoilt: [(&str, Spoil); 10] = [
            ("no test memory::no_such", |case| case.held_by.push("memory::no_such".to_owned())),
            ("no test lib::pool::no_such", |case| case.held_by.push("lib::pool::no_such".to_owned())),
            ("no test scripts/no-such.sh", |case| case.held_by.push("scripts/no-such.sh".to_owned())),
            ("no GPU step", |case| case.gpu.push("no-such".to_owned())),
            ("does not name it", |case| case.held_by = vec!["memory::handles_are_charged_once".to_owned()]),
            ("found 0 times", |case| "pub mod nothing;".clone_into(&mut case.fault[0].edit[0].find)),
            ("not once", |case| "pub mod".clone_into(&mut case.fault[0].edit[0].find)),
            ("changes nothing", |case| case.fault[0].edit[0].put = case.fault[0].edit[0].find.clone()),
            ("no test goes red", |case| case.fault[0].red.clear()),
            ("neither a fault", |case| {
                case.fault.clear();
                case.gpu.clear();
            }),
        ];
        for (what, spoil) in spoilt {
            let mut case = good();
            spoil(&mut case);
            let wrong = of_one(&root(), &case);
            assert!(wrong.iter().any(|text| text.contains(what)), "{what}: {wrong:?}");
        }
    }

    #[test]
    fn only_tests_count_as_tests() {
        let text = "#[test]\n#[ignore]\nfn one() {}\nfn two() {}\n";
        assert!(has_test(text, "one") && !has_test(text, "two") && !has_test(text, "on"));
    }
}
