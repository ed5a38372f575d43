//! Where live files lie, whose they are, and whether their processes still live. Safe to use on folders that somebody else
//! has filled: what is not a private file of the calling user is refused.

use super::{BYTES, Refusal, View, at};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How long the file of a dead process is kept.
pub const STALE_KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// How many files of dead processes are kept in a folder.
pub const MOST_STALE: usize = 64;

/// What has become of the process that a live file is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It runs.
    Running,
    /// It is gone, and had no time to remove its file: killed, or crashed.
    Gone,
    /// It has become another program by `exec`.
    Replaced,
    /// It is, or was, in another container, from where nothing can be said about it.
    Elsewhere,
}

/// One file in a folder of live files.
#[derive(Debug)]
pub struct Found {
    /// The file.
    pub path: PathBuf,
    /// What it says, or why it is not believed.
    pub view: Result<View, Refusal>,
    /// What has become of its process; for a file that is not believed: [`Fate::Elsewhere`].
    pub fate: Fate,
}

/// The folders that may hold live files of the calling user, in the order in which a process tries them.
pub fn folders() -> Vec<PathBuf> {
    folders_for(std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from), uid())
}

pub(super) fn folders_for(runtime: Option<PathBuf>, uid: u32) -> Vec<PathBuf> {
    let runtime = runtime.filter(|path| path.is_absolute()).map(|path| path.join("gpucache"));
    let own = format!("gpucache-{uid}");
    runtime.into_iter().chain([Path::new("/dev/shm").join(&own), Path::new("/tmp").join(own)]).collect()
}

/// The folders to look into for live files of the calling user: those in which processes make them, and that of a login
/// session, whose variable `sudo`, cron jobs and batch systems do not pass on.
pub fn places() -> Vec<PathBuf> {
    let uid = uid();
    let mut places = folders();
    let session = Path::new("/run/user").join(uid.to_string()).join("gpucache");
    if !places.contains(&session) {
        places.push(session);
    }
    places
}

/// The effective user.
fn uid() -> u32 {
    fs::metadata("/proc/self").map_or(u32::MAX, |status| status.uid())
}

/// The file's name for a process.
pub fn name_of(pid: u32, start: u64) -> String {
    format!("{pid}-{start}.live")
}

/// Whether only the owner has any right.
fn is_private(mode: u32) -> bool {
    mode.trailing_zeros() >= 6
}

fn is_name(name: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let parts = name.strip_suffix(".live").and_then(|stem| stem.split_once('-'));
    parts.is_some_and(|(pid, start)| number(pid) && number(start))
}

/// When the process of this number started, in the kernel's ticks; `None` if there is none, or only its remains.
pub fn started_at(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name stands in brackets and may hold anything.
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?;
    if ["Z", "X", "x"].contains(&state) {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// A number for this boot of the machine.
pub fn boot() -> u64 {
    let id = fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// A number for this namespace of process ids; 0 if it is not known.
pub fn namespace() -> u64 {
    let link = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let text = link.to_string_lossy();
    text.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(0)
}

/// What has become of a file's process, which may be a copy.
pub fn fate(view: &View) -> Fate {
    let identity = &view.identity;
    let gone = if view.replaced { Fate::Replaced } else { Fate::Gone };
    if identity.boot != boot() {
        return gone;
    }
    if identity.namespace != namespace() {
        return Fate::Elsewhere;
    }
    if started_at(identity.pid) != Some(identity.start) {
        return gone;
    }
    // `exec` keeps number and start, but not the mapping.
    let name = name_of(identity.pid, identity.start);
    match fs::read(format!("/proc/{}/maps", identity.pid)) {
        Ok(maps) if !String::from_utf8_lossy(&maps).contains(&name) && !maps.is_empty() => Fate::Replaced,
        _ => Fate::Running,
    }
}

/// The same of a file where its process has put it. That it has become another program can only be seen while that program runs,
/// so who sees it leaves word in the file.
pub fn fate_and_word(path: &Path, view: &View) -> Fate {
    let fate = fate(view);
    if fate == Fate::Replaced && !view.replaced {
        // For others to know; who may not write the file knows it for himself.
        let _ = leave_word(path, view);
    }
    fate
}

/// Writes into the file that its process has become another program; not into the file of that program, should it have made
/// one of the same name meanwhile.
fn leave_word(path: &Path, view: &View) -> Result<(), Refusal> {
    let unreadable = |error: std::io::Error| Refusal::Unreadable(error.to_string());
    let file = open(path, true)?;
    let mut started = [0; 8];
    file.read_exact_at(&mut started, at::STARTED as u64 * 8).map_err(unreadable)?;
    if u64::from_ne_bytes(started) == view.identity.started {
        file.write_all_at(&1_u64.to_ne_bytes(), at::REPLACED as u64 * 8).map_err(unreadable)?;
    }
    Ok(())
}

/// Opens a file of the calling user's, and nobody else's.
pub(super) fn open(path: &Path, writable: bool) -> Result<File, Refusal> {
    let unreadable = |error: std::io::Error| Refusal::Unreadable(error.to_string());
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file =
        OpenOptions::new().read(true).write(writable).custom_flags(flags).open(path).map_err(unreadable)?;
    let status = file.metadata().map_err(unreadable)?;
    if !status.is_file() {
        return Err(Refusal::Foreign("it is not a plain file"));
    }
    if status.uid() != uid() {
        return Err(Refusal::Foreign("it belongs to another user"));
    }
    if !is_private(status.mode()) {
        return Err(Refusal::Foreign("others may read or write it"));
    }
    if status.len() > 16 * BYTES as u64 {
        return Err(Refusal::Size(status.len()));
    }
    Ok(file)
}

/// Reads one live file.
///
/// # Errors
/// Why it is not believed.
pub fn read(path: &Path) -> Result<View, Refusal> {
    let unreadable = |error: std::io::Error| Refusal::Unreadable(error.to_string());
    let file = open(path, false)?;
    let length = file.metadata().map_err(unreadable)?.len() as usize;
    let all = || {
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, 0).map(|()| bytes).map_err(unreadable)
    };
    let word = |at: usize| {
        let mut word = [0; 8];
        file.read_exact_at(&mut word, at as u64 * 8).map(|()| u64::from_ne_bytes(word)).map_err(unreadable)
    };
    View::of(all, word)
}

/// The files in a folder that have the name of a live file, in order. None if the folder is not there.
///
/// # Errors
/// The folder is not the calling user's alone, or cannot be read.
pub fn paths(folder: &Path) -> Result<Vec<PathBuf>, Refusal> {
    let entries = fs::symlink_metadata(folder).and_then(|status| {
        let why = match () {
            () if !status.is_dir() => "it is not a folder",
            () if status.uid() != uid() => "it belongs to another user",
            () if !is_private(status.mode()) => "others may enter it",
            () => return fs::read_dir(folder).map(Ok),
        };
        Ok(Err(Refusal::Foreign(why)))
    });
    let entries = match entries {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Refusal::Unreadable(error.to_string())),
        Ok(entries) => entries?,
    };
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().is_some_and(|name| is_name(&name.to_string_lossy())))
        .collect();
    paths.sort();
    Ok(paths)
}

/// The live files in a folder, by name; none if the folder is not there or is not the calling user's alone.
pub fn list(folder: &Path) -> Vec<Found> {
    let found = |path: PathBuf| {
        let view = read(&path);
        let fate = view.as_ref().map_or(Fate::Elsewhere, |view| fate_and_word(&path, view));
        Found { path, view, fate }
    };
    paths(folder).unwrap_or_default().into_iter().map(found).collect()
}

/// The live files of the calling user, in all folders.
pub fn list_all() -> Vec<Found> {
    places().iter().flat_map(|folder| list(folder)).collect()
}

/// Removes files of processes that are gone for longer than `kept`, and the oldest of them beyond `most`; also files that
/// are not believed once they are that old. Returns what was removed.
pub fn sweep(folder: &Path, kept: Duration, most: usize) -> Vec<PathBuf> {
    let now = SystemTime::now();
    let age = |found: &Found| match &found.view {
        Ok(view) => {
            let updated = SystemTime::UNIX_EPOCH + Duration::from_nanos(view.updated);
            now.duration_since(updated).unwrap_or_default()
        }
        Err(_) => fs::symlink_metadata(&found.path)
            .and_then(|status| status.modified())
            .map_or(Duration::ZERO, |modified| now.duration_since(modified).unwrap_or_default()),
    };
    let gone = |found: &Found| match &found.view {
        Ok(_) => matches!(found.fate, Fate::Gone | Fate::Replaced),
        Err(_) => age(found) > kept,
    };
    let mut stale: Vec<(Duration, PathBuf)> =
        list(folder).into_iter().filter(gone).map(|found| (age(&found), found.path)).collect();
    stale.sort();
    let gone = stale.into_iter().enumerate().filter(|(at, (age, _))| *at >= most || *age > kept);
    gone.map(|(_, (_, path))| path).filter(|path| fs::remove_file(path).is_ok()).collect()
}
