//! The terminal: taken over, read for keys, and given back as it was, also after a signal, a suspension or a panic.

use super::draw;
use super::view::{Then, View};
use super::watcher::Watcher;
use crate::args::Top;
use crate::failure::Failure;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, enable_raw_mode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long a signal may have to wait.
const STEP: Duration = Duration::from_millis(100);

/// Shows the processes until it is told to quit.
pub fn run(watcher: Watcher, args: &Top) -> Result<ExitCode, Failure> {
    let fail = |error: io::Error| Failure::new(format!("the terminal: {error}"));
    let signal = Arc::new(AtomicUsize::new(0));
    for number in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register_usize(number, Arc::clone(&signal), number as usize).map_err(fail)?;
    }
    let mut view = View::new(watcher, args);
    view.look();
    // Puts a hook before panics that gives the terminal back.
    let mut terminal = ratatui::try_init().map_err(fail)?;
    let done = watch(&mut terminal, &mut view, &signal);
    let restored = give_back(&mut terminal);
    match signal.load(Ordering::Relaxed) {
        0 => done.and(restored).map(|()| ExitCode::SUCCESS).map_err(fail),
        // Ends as one who has not caught it; the terminal may be gone.
        number => {
            let _ = signal_hook::low_level::emulate_default_handler(number as i32);
            Ok(ExitCode::from(128 + number as u8))
        }
    }
}

fn give_back(terminal: &mut DefaultTerminal) -> io::Result<()> {
    ratatui::try_restore()?;
    terminal.show_cursor()
}

fn watch(terminal: &mut DefaultTerminal, view: &mut View, signal: &AtomicUsize) -> io::Result<()> {
    // Asked once: one that is gone is no terminal any more.
    let keys = Keys { of_terminal: io::stdin().is_terminal() };
    let mut looked = Instant::now();
    loop {
        if std::mem::take(&mut view.anew) {
            // Not `clear`: that asks the terminal where its cursor is, and waits for the answer.
            terminal.resize(terminal.size()?.into())?;
        }
        terminal.draw(|frame| draw::draw(frame, view))?;
        loop {
            if signal.load(Ordering::Relaxed) != 0 {
                return Ok(());
            }
            let left = view.pause().saturating_sub(looked.elapsed());
            if left.is_zero() && !view.paused {
                view.look();
                looked = Instant::now();
                break;
            }
            if keys.are_typed(if view.paused { STEP } else { left.min(STEP) })? {
                match keys.take(view)? {
                    Then::Quit => return Ok(()),
                    Then::Suspend => suspend(terminal, view)?,
                    Then::GoOn => {}
                }
                break;
            }
        }
    }
}

/// Where keys come from: stdin, or where that is something else the controlling terminal.
struct Keys {
    of_terminal: bool,
}

impl Keys {
    /// Whether there is an event, waiting for one so long. Not every terminal that goes sends a signal, and one that is gone can be
    /// read from without an end, which `event::poll` would do: so it is not asked then.
    fn are_typed(&self, wait: Duration) -> io::Result<bool> {
        if !self.of_terminal {
            return event::poll(wait);
        }
        let input = io::stdin();
        let mut asked = [PollFd::new(&input, PollFlags::IN)];
        let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
        match poll(&mut asked, Some(&wait)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if asked[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) {
            return Err(io::Error::other("it is gone"));
        }
        event::poll(Duration::ZERO)
    }

    /// Takes all that has been typed, so that a slow line does not draw each key by itself.
    fn take(&self, view: &mut View) -> io::Result<Then> {
        loop {
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => match view.key(key) {
                    Then::GoOn => {}
                    then => return Ok(then),
                },
                _ => {}
            }
            if !self.are_typed(Duration::ZERO)? {
                return Ok(Then::GoOn);
            }
        }
    }
}

/// Stops as any program does at Ctrl-Z, which raw mode has made an ordinary key, and goes on where it was.
fn suspend(terminal: &mut DefaultTerminal, view: &mut View) -> io::Result<()> {
    give_back(terminal)?;
    kill_process(getpid(), Signal::TSTP)?;
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen)?;
    view.anew = true;
    Ok(())
}
