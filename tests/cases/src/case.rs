//! The form of a case, and the faults as changes of text.
//!
//! A fault is text to find and text to put in its place, not a patch by line numbers: it survives edits elsewhere in the
//! file, and where the text it names has changed it does not apply, which is said.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// One row of the table, as `tests/cases/ID.toml` has it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// R, M or P and a number: resolution, memory, processes.
    pub id: String,
    /// Where users reported it, for looking up.
    pub seen: String,
    /// What the program does.
    pub input: String,
    /// What must come of it.
    pub right: String,
    /// The tests that hold it, and scripts that look at what is built.
    #[serde(default)]
    pub held_by: Vec<String>,
    /// Steps of `scripts/gpu.sh` that show it on a real GPU.
    #[serde(default)]
    pub gpu: Vec<String>,
    /// Why the row is not shown yet, if it is not.
    pub pending: Option<String>,
    /// Faults of this kind.
    #[serde(default)]
    pub fault: Vec<Fault>,
}

/// A fault to put in.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// What is wrong with it in.
    pub what: String,
    /// Tests of `held_by` that must fail, each by itself.
    pub red: Vec<String>,
    /// The changes that put it in.
    pub edit: Vec<Edit>,
}

/// One change of one file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    /// The file, from the root.
    pub file: String,
    /// Text that is in it exactly once.
    pub find: String,
    /// What takes its place.
    pub put: String,
}

impl Fault {
    /// The changed files with their whole new text.
    ///
    /// # Errors
    /// A file is missing, or a text to find is not in it exactly once.
    pub fn apply(&self, root: &Path) -> Result<BTreeMap<String, String>, String> {
        let mut changed = BTreeMap::new();
        for edit in &self.edit {
            let text = match changed.remove(&edit.file) {
                Some(text) => text,
                None => {
                    fs::read_to_string(root.join(&edit.file)).map_err(|e| format!("{}: {e}", edit.file))?
                }
            };
            let times = text.matches(&edit.find).count();
            if edit.find.trim().is_empty() || times != 1 {
                return Err(format!("{}: found {times} times, not once:\n{}", edit.file, edit.find));
            }
            let new = text.replacen(&edit.find, &edit.put, 1);
            if new == text {
                return Err(format!("{}: changes nothing:\n{}", edit.file, edit.find));
            }
            changed.insert(edit.file.clone(), new);
        }
        if changed.is_empty() { Err("without a change".to_owned()) } else { Ok(changed) }
    }
}

/// All ids that there are, in the table's order.
pub fn ids() -> Vec<String> {
    [('R', 9), ('M', 25), ('P', 12)]
        .iter()
        .flat_map(|(l, n)| (1..=*n).map(move |i| format!("{l}{i}")))
        .collect()
}

/// All cases in the table's order.
///
/// # Errors
/// A file is not understood, or an id has no file or a file no id.
pub fn load(root: &Path) -> Result<Vec<Case>, String> {
    let folder = root.join("tests/cases");
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))? {
        let path = entry.map_err(|e| e.to_string())?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(stem) = name.strip_suffix(".toml").filter(|stem| *stem != "Cargo") else { continue };
        let text = fs::read_to_string(&path).map_err(|e| format!("{name}: {e}"))?;
        let case: Case = toml::from_str(&text).map_err(|e| format!("{name}: {e}"))?;
        if case.id != stem {
            return Err(format!("{name} has the id {}", case.id));
        }
        found.insert(case.id.clone(), case);
    }
    let cases = ids()
        .iter()
        .map(|id| found.remove(id).ok_or(format!("{id} has no file")))
        .collect::<Result<_, _>>()?;
    match found.keys().next() {
        Some(id) => Err(format!("{id}.toml is no row of the table")),
        None => Ok(cases),
    }
}
