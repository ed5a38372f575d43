//! Processes by their live files: the one of a number, or of a file. What is not found is told by the likely cause.

use crate::failure::Failure;
use crate::stats::live::{self, Fate, View};
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A live file that is believed.
pub struct Process {
    pub path: PathBuf,
    pub view: View,
    pub fate: Fate,
}

/// The process number that an argument is, if it is one.
pub fn number(argument: &Path) -> Option<u32> {
    argument.to_str()?.parse().ok().filter(|pid| *pid > 0)
}

/// Whether an argument is a live file, by its name or by what is in it.
pub fn is_live_file(path: &Path) -> bool {
    use std::os::unix::fs::FileExt;
    let mut start = [0; 16];
    // A pipe must not be opened for this: its writer would take that for the reader.
    let starts = fs::metadata(path).is_ok_and(|meta| meta.is_file())
        && fs::File::open(path).is_ok_and(|file| file.read_exact_at(&mut start, 0).is_ok())
        && live::is_start(&start);
    starts || path.extension().is_some_and(|extension| extension == "live")
}

/// The live file at a path.
pub fn at(path: &Path) -> Result<Process, Failure> {
    let view = live::read(path).map_err(|why| Failure::new(format!("{}: {why}", path.display())))?;
    let fate = live::fate(&view);
    Ok(Process { path: path.to_owned(), view, fate })
}

/// The process that an argument means: the number of one, or its live file.
pub fn process(argument: &Path) -> Result<Process, Failure> {
    match number(argument) {
        Some(pid) if !argument.exists() => of(pid),
        None if !argument.exists() => Err(Failure::new(format!(
            "{}: it is neither the number of a process nor a file",
            argument.display()
        ))),
        _ => at(argument),
    }
}

/// The process of this number: the one that runs, or else the last that had it.
pub fn of(pid: u32) -> Result<Process, Failure> {
    let (mut best, mut refused) = (None::<Process>, String::new());
    for found in live::list_all() {
        match found.view {
            Ok(view) if view.identity.pid == pid => {
                let process = Process { path: found.path, view, fate: found.fate };
                if best.as_ref().is_none_or(|best| rank(&process) > rank(best)) {
                    best = Some(process);
                }
            }
            Ok(_) => {}
            Err(why) => {
                let name = found.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                if name.starts_with(&format!("{pid}-")) {
                    let _ = write!(refused, "\n{} is refused: {why}", found.path.display());
                }
            }
        }
    }
    best.ok_or_else(|| Failure::new(format!("{}{refused}", missing(pid))))
}

/// Which of two files of one number is meant.
fn rank(process: &Process) -> (u8, u64) {
    let alive = match process.fate {
        Fate::Running => 2,
        Fate::Gone | Fate::Replaced => 1,
        Fate::Elsewhere => 0,
    };
    (alive, process.view.updated)
}

/// Why there is no live file of a process.
fn missing(pid: u32) -> String {
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let Ok(status) = fs::metadata(&folder) else {
        return format!(
            "process {pid}: there is no such process, and none has left a live file under this number"
        );
    };
    let own = fs::metadata("/proc/self").map(|own| own.uid()).ok();
    if own != Some(status.uid()) {
        return format!(
            "process {pid} belongs to user {}: only its own user can look at it or ask it for anything",
            status.uid()
        );
    }
    let maps = fs::read(folder.join("maps")).unwrap_or_default();
    if !maps.is_empty() && !String::from_utf8_lossy(&maps).contains("libgpucache") {
        return format!("process {pid} runs without the library; `gpucache run` starts programs with it");
    }
    let places: Vec<_> = live::places().iter().map(|place| place.display().to_string()).collect();
    format!(
        "process {pid} has no live file in {}: it has made no CUDA call yet, or runs with live_file:False, or with \
         another XDG_RUNTIME_DIR",
        places.join(", ")
    )
}

/// What became of a process, in words.
pub fn fate_words(fate: Fate) -> &'static str {
    match fate {
        Fate::Running => "it runs",
        Fate::Gone => "it was killed or has crashed",
        Fate::Replaced => "it has become another program by exec",
        Fate::Elsewhere => "it is in another container",
    }
}
