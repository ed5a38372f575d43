//! Standing between a program and whoever started the tool, as if nobody stood there: signals reach the program, a stop stops
//! both, and the tool ends as the program has ended.

use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, getpid, kill_process, setrlimit, waitid,
};
use signal_hook::consts::{
    SIGALRM, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH,
};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::emulate_default_handler;
use signal_hook::low_level::siginfo::Cause;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::{Arc, Mutex};

/// What is passed on. Not those that the kernel sends for the tool's own faults, nor the real-time ones.
const PASSED_ON: [i32; 10] =
    [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGTSTP, SIGCONT, SIGWINCH];

/// Runs the program to its end; its number, which is free again, and how it ended.
pub fn run(mut command: Command) -> io::Result<(u32, ExitStatus)> {
    // Handlers first: a signal from here on must not end the tool and leave the program. One that whoever started the tool
    // has it ignore (nohup, `&` in a script) is left so until the program has begun, which ignores it, too, in the beginning;
    // it may handle it later, and then is to get it.
    let ignored = ignored();
    let (late, watched): (Vec<i32>, Vec<i32>) =
        PASSED_ON.into_iter().partition(|signal| ignored >> (signal - 1) & 1 == 1);
    let mut signals = SignalsInfo::<WithOrigin>::new(watched)?;
    let watching = signals.handle();
    let mut child = command.spawn()?;
    // Without SIGCHLD among them the kernel would not keep how the program has ended. From here on no failure may leave it alone:
    // what cannot be watched is not passed on.
    let kept = (ignored >> (SIGCHLD - 1) & 1 == 1).then_some(SIGCHLD);
    for signal in late.into_iter().chain(kept) {
        let _ = watching.add_signal(signal);
    }
    let pid = Pid::from_child(&child);
    // Once the program is reaped its number may be another's.
    let reaped = Arc::new(Mutex::new(false));
    let forwarder = std::thread::spawn({
        let reaped = Arc::clone(&reaped);
        move || {
            for origin in &mut signals {
                // What the terminal sends, it sends to the program as well.
                if matches!(origin.cause, Cause::Kernel) || origin.signal == SIGCHLD {
                    continue;
                }
                let reaped = reaped.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                if let Some(signal) = Signal::from_named_raw(origin.signal)
                    && !*reaped
                {
                    // A program that has just ended needs no signal.
                    let _ = kill_process(pid, signal);
                }
            }
        }
    });
    wait(pid)?;
    let status = reap(&mut child, &reaped)?;
    watching.close();
    let _ = forwarder.join();
    Ok((child.id(), status))
}

/// Waits for the end without reaping. A stop of the program is passed on to the tool's own job, as the shell sees only that.
fn wait(pid: Pid) -> io::Result<()> {
    loop {
        let either = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
        let status = match waitid(WaitId::Pid(pid), either) {
            Ok(Some(status)) => status,
            Ok(None) | Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        if !status.stopped() {
            return Ok(());
        }
        // Taken notice of, so that the next look does not find the same stop.
        let _ = waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG);
        let _ = kill_process(getpid(), Signal::STOP);
    }
}

fn reap(child: &mut Child, reaped: &Mutex<bool>) -> io::Result<ExitStatus> {
    let mut reaped = reaped.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let status = child.wait()?;
    *reaped = true;
    Ok(status)
}

/// The signals that this process ignores, as bits.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// The status to end with; does not return if the program was ended by a signal.
pub fn end_like(status: ExitStatus) -> ExitCode {
    let Some(signal) = status.signal() else {
        return ExitCode::from(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1));
    };
    // The program has left its core file, if it was to.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let _ = emulate_default_handler(signal);
    // Only real-time signals are left, for which there is no such call: a shell's word for the same.
    ExitCode::from(u8::try_from(128 + signal).unwrap_or(255))
}
