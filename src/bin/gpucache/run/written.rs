//! Which report files a run has left. The library expands the template in each process that reports, so the names are known
//! only by what they can look like; and by their age, because earlier runs left files of the same form.

use crate::report::Template;
use crate::report::template::Facts;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Stands where a placeholder stood: cannot be part of a file name.
const ANYTHING: char = '\0';

/// Files that the template may have led to, written since `begun`, oldest first.
pub fn since(template: &Template, begun: SystemTime) -> Vec<PathBuf> {
    let form = form(template);
    // File systems keep times more coarsely than the clock.
    let begun = begun.checked_sub(Duration::from_secs(1)).unwrap_or(begun);
    let mut found: Vec<(SystemTime, PathBuf)> = matching(Path::new(&form))
        .into_iter()
        .filter_map(|path| {
            let meta = fs::metadata(&path).ok().filter(fs::Metadata::is_file)?;
            let at = meta.modified().ok()?;
            (at >= begun).then_some((at, path))
        })
        .collect();
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
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
        assert!(fits("r-a-b.1-50%-.json", name), "an unset variable is nothing");
        for other in ["r-node7-train.4242-50%-3.html", "s-node7-train.4242-50%-3.json", "r-node7-4242.json"] {
            assert!(!fits(other, name), "{other}");
        }
    }

    #[test]
    fn only_files_of_this_run_are_taken() {
        let folder = std::env::temp_dir().join(format!("gpucache-written-{}", std::process::id()));
        fs::create_dir_all(folder.join("sub")).unwrap();
        let old = fs::File::create(folder.join("r-1.json")).unwrap();
        old.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1)).unwrap();
        for name in ["r-2.json", "sub/r-3.json", ".r-4.json", "other.json"] {
            fs::write(folder.join(name), "").unwrap();
        }
        let begun = SystemTime::now() - Duration::from_secs(60);
        let found =
            |text: &str| since(&Template::parse(&format!("{}/{text}", folder.display())).unwrap(), begun);
        assert_eq!(found("r-%p.json"), [folder.join("r-2.json")]);
        assert_eq!(found("%e/r-%p.json"), [folder.join("sub/r-3.json")]);
        assert_eq!(found("other.json"), [folder.join("other.json")]);
        assert_eq!(found("r-1.json"), [""; 0].map(PathBuf::from));
        fs::remove_dir_all(&folder).unwrap();
    }
}
