//! Which report files a run has left. The library expands the template in each process that reports, so the names are known
//! only by what they can look like; and by what was there before, because earlier runs left files of the same form.

use crate::report::Template;
use crate::report::template::Facts;
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Stands where a placeholder stood: cannot be part of a file name.
const ANYTHING: char = '\0';

/// What tells a file from the one that took its place: reports are renamed into place, or written anew.
#[derive(PartialEq, Eq, Clone, Copy)]
struct Mark {
    inode: u64,
    /// Its last change, in seconds and nanoseconds: by the clock of the file system alone.
    changed: (i64, i64),
}

/// The files of a template as they were before a run.
pub struct Before {
    form: String,
    marks: HashMap<PathBuf, Mark>,
}

impl Before {
    /// Takes note of what is there.
    pub fn of(template: &Template) -> Before {
        let form = form(template);
        let marks = marked(&form).collect();
        Before { form, marks }
    }

    /// What has been written since, oldest first.
    pub fn since(&self) -> Vec<PathBuf> {
        let new = marked(&self.form).filter(|(path, mark)| self.marks.get(path) != Some(mark));
        let mut new: Vec<_> = new.map(|(path, mark)| (mark.changed, path)).collect();
        new.sort();
        new.into_iter().map(|(_, path)| path).collect()
    }
}

fn marked(form: &str) -> impl Iterator<Item = (PathBuf, Mark)> {
    matching(Path::new(form)).into_iter().filter_map(|path| {
        let meta = fs::metadata(&path).ok().filter(fs::Metadata::is_file)?;
        let mark = Mark { inode: meta.ino(), changed: (meta.ctime(), meta.ctime_nsec()) };
        Some((path, mark))
    })
}

/// The only file that a template leads to, where it is known before the program runs.
pub fn literal(template: &Template) -> Option<PathBuf> {
    let form = form(template);
    (!form.contains(ANYTHING)).then(|| form.into())
}

/// The template with [`ANYTHING`] for what each process fills in by itself. A process id of 0 stands for one there, as no
/// process has it; a host is a word like others.
fn form(template: &Template) -> String {
    let any = ANYTHING.to_string();
    let text = template.to_string();
    // The written form is read once more, with `%p` and `%t` as words that any text may stand for.
    let named =
        text.replace("%%", "\u{1}").replace("%p", "%q{P}").replace("%t", "%q{T}").replace('\u{1}', "%%");
    let Ok(template) = Template::parse(&named) else { return text };
    template.expand(&Facts {
        pid: 0,
        host: &any,
        executable: &any,
        unix_time: 0,
        variable: &|_| Some(any.clone()),
    })
}

/// The files whose path has the form.
fn matching(form: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for part in form.components() {
        let Some(name) = part.as_os_str().to_str().filter(|name| name.contains(ANYTHING)) else {
            for path in &mut found {
                path.push(part);
            }
            continue;
        };
        let mut next = Vec::new();
        for folder in found {
            let here = if folder.as_os_str().is_empty() { Path::new(".") } else { &folder };
            let entries = fs::read_dir(here).into_iter().flatten().flatten();
            let names = entries.map(|entry| entry.file_name());
            next.extend(names.filter(|n| n.to_str().is_some_and(|n| fits(n, name))).map(|n| folder.join(n)));
        }
        found = next;
    }
    found
}

/// Whether a name has the form: the pieces of the form in their order, the first at its start and the last at its end.
fn fits(name: &str, form: &str) -> bool {
    let mut pieces = form.split(ANYTHING);
    let (first, last) = (pieces.next().unwrap_or_default(), pieces.next_back().unwrap_or_default());
    let Some(mut rest) = name.strip_prefix(first).and_then(|rest| rest.strip_suffix(last)) else {
        return false;
    };
    for piece in pieces {
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    // Half-written files have a dot before their name.
    !name.starts_with('.') || form.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_match_what_templates_expand_to() {
        let form = form(&Template::parse("/x/r-%h-%e.%p-50%%-%q{RANK}.json").unwrap());
        let name = form.strip_prefix("/x/").unwrap();
        assert!(fits("r-node7-train.4242-50%-3.json", name));
        assert!(fits("r-a-b.1-50%-unset-RANK.json", name) && fits("r-a-b.1-50%-.json", name));
        for other in ["r-node7-train.4242-50%-3.html", "s-node7-train.4242-50%-3.json", "r-node7-4242.json"] {
            assert!(!fits(other, name), "{other}");
        }
    }

    #[test]
    fn only_files_of_this_run_are_taken() {
        let folder = std::env::temp_dir().join(format!("gpucache-written-{}", std::process::id()));
        fs::create_dir_all(folder.join("sub")).unwrap();
        for name in ["r-1.json", "r-2.json"] {
            fs::write(folder.join(name), "").unwrap();
        }
        let before =
            |text: &str| Before::of(&Template::parse(&format!("{}/{text}", folder.display())).unwrap());
        let texts = ["r-%p.json", "%e/r-%p.json", "other.json", "r-1.json"];
        let [each, within, other, one] = texts.map(before);
        for name in ["r-2.json", "sub/r-3.json", ".r-4.json", "other.json"] {
            crate::report::write_atomically(&folder.join(name), b"").unwrap();
        }
        assert_eq!(each.since(), [folder.join("r-2.json")], "the one that was replaced");
        assert_eq!(within.since(), [folder.join("sub/r-3.json")]);
        assert_eq!(other.since(), [folder.join("other.json")]);
        assert_eq!(one.since(), [""; 0].map(PathBuf::from));
        fs::remove_dir_all(&folder).unwrap();
    }
}
