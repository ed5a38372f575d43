//! What may be asked of the running process: by itself, through the functions of `include/gpucache.h`, or from outside,
//! through the mailbox of its live file. A question from outside is taken up by a thread that allocates or frees and
//! happens to come by, where it holds nothing that an answer could need.

use super::exit::Written;
use super::{contexts, exit, live, phases, process};
use crate::driver::books::{Change, DeviceBooks};
use crate::report::cap::{CapFrom, SetBy};
use crate::report::model::EndedBy;
use crate::report::units::human;
use crate::stats::live::{Answer, Command, Mailbox, Why};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Caps that were asked for, by device; all ones for none. Kept because the device's books may be opened later.
static WANTED: [AtomicU64; contexts::DEVICES] = [const { AtomicU64::new(u64::MAX) }; contexts::DEVICES];
/// Who has asked for them, as numbers.
static SETTERS: [AtomicU64; contexts::DEVICES] = [const { AtomicU64::new(0) }; contexts::DEVICES];
/// Held while a cap is changed, so that it and its setter belong together; around no call.
static CHANGING: Mutex<()> = Mutex::new(());
static ATTENDING: AtomicBool = AtomicBool::new(false);

/// The cap that was asked for a device, if any was.
pub fn wanted_limit(device: u32) -> Option<u64> {
    let wanted = WANTED.get(device as usize)?.load(Ordering::Acquire);
    (wanted != u64::MAX).then_some(wanted)
}

/// Keeps a cap for a device whose books are not open yet; whether there can be such a device.
pub fn want_limit(device: u32, bytes: u64, by: SetBy) -> bool {
    let (Some(wanted), Some(setter)) = (WANTED.get(device as usize), SETTERS.get(device as usize)) else {
        return false;
    };
    setter.store(SetBy::code(Some(by)), Ordering::Release);
    wanted.store(bytes, Ordering::Release);
    true
}

/// Who has last changed the cap of a device, if anybody has.
pub fn setter(device: u32) -> Option<SetBy> {
    SetBy::from_code(SETTERS.get(device as usize)?.load(Ordering::Acquire))
}

/// What is behind the cap of a device.
pub fn cap_from(books: &DeviceBooks) -> Option<CapFrom> {
    let [memory_fraction_bytes, memory_limit_bytes] =
        process::conf()?.caps_for(books.device, books.account.total_bytes());
    Some(CapFrom { memory_fraction_bytes, memory_limit_bytes, set_by: setter(books.device) })
}

/// Gives all idle memory back to the driver, which waits for the device; returns the bytes.
pub fn empty_cache() -> u64 {
    contexts::opened_books().map(|books| contexts::reclaim(books.device, u64::MAX)).sum()
}

/// Changes the cap of a device, to no more than was configured; `u64::MAX` is that again. Idle memory beyond it goes back
/// at once. Returns what holds now; `None` for a device that cannot be, or if it is not known yet.
pub fn set_limit(device: u32, bytes: u64, by: SetBy) -> Option<u64> {
    let changing = CHANGING.lock();
    if !want_limit(device, bytes, by) {
        return None;
    }
    let books = contexts::known_books(device)?;
    let limit = books.account.set_limit(bytes);
    drop(changing);
    tracing::info!("the cap of GPU {device} is {} from now on", human(limit));
    let excess = books.account.excess();
    if excess > 0 {
        contexts::reclaim(device, excess);
    }
    // Who looks at the live file now is to see what holds now.
    live::changed(device, Change::Held);
    Some(limit)
}

/// Where a cap was lowered below what is held, memory that has become idle since goes back.
pub fn keep_to_the_cap(books: &DeviceBooks) {
    let excess = books.account.excess();
    if excess > 0 && (books.reclaimable)(books.device) > 0 {
        contexts::reclaim(books.device, excess);
    }
}

/// Carries out what is asked in the mailbox, unless another thread does.
#[cold]
pub fn attend(mailbox: Mailbox) {
    if ATTENDING.swap(true, Ordering::AcqRel) {
        return;
    }
    if let Some((ticket, command)) = mailbox.take() {
        let answer = command.map_or(Answer::Refused(Why::Unknown), carry_out);
        mailbox.answer(ticket, &answer);
    }
    ATTENDING.store(false, Ordering::Release);
}

fn carry_out(command: Command) -> Answer {
    tracing::info!("asked from outside: {command:?}");
    match command {
        Command::EmptyCache => Answer::Done(empty_cache()),
        Command::Report => match exit::write(EndedBy::Running) {
            // Who asks stands in another folder.
            Written::File(path) => Answer::Written(
                std::path::absolute(&path).map_or(path, |path| path.to_string_lossy().into_owned()),
            ),
            Written::Stderr => Answer::Done(0),
            Written::Off => Answer::Refused(Why::ReportOff),
            Written::Elsewhere => Answer::Refused(Why::ReportFailed),
        },
        Command::ResetPeak => {
            phases::reset(None);
            Answer::Done(0)
        }
        // Of a device that is not in use nothing is kept: who asks and is refused must not be obeyed later.
        Command::Limit { device, bytes } => contexts::known_books(device)
            .and_then(|_| set_limit(device, bytes, SetBy::Ctl))
            .map_or(Answer::Refused(Why::Device), Answer::Done),
    }
}

/// Whether the process is one that can be asked: it serves, and the caller is not within a call of the pool's own.
pub fn can_be_asked() -> bool {
    process::is_active() && !crate::driver::real::inside()
}
