//! A program that does what it is told, while something looks at it or asks it for something.

use super::{Outcome, Program, Running, build};
use std::path::PathBuf;

/// `talker`, with a folder for live files of its own.
pub struct Talk {
    /// The process, until it has ended.
    pub running: Option<Running>,
    /// The folder that stands in `XDG_RUNTIME_DIR`.
    pub runtime: PathBuf,
    /// Lines that it was told.
    pub lines: u32,
}

impl Talk {
    /// Starts a program, with a name for its folder that no other test has.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn new(program: &Program, name: &str) -> Talk {
        let runtime = build::programs().join("run").join(format!("live-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&runtime).unwrap();
        let program = program.clone().env("XDG_RUNTIME_DIR", runtime.to_str().unwrap());
        Talk { running: Some(program.start()), runtime, lines: 0 }
    }

    /// `talker` on the library.
    pub fn default(name: &str) -> Talk {
        Talk::new(&Program::new("talker").preload(), name)
    }

    /// Tells it something without waiting.
    pub fn say(&mut self, line: &str) -> &mut Talk {
        self.lines += 1;
        self.running.as_mut().unwrap().tell(line);
        self
    }

    /// Tells it something, and waits until that is done.
    pub fn tell(&mut self, line: &str) -> &mut Talk {
        self.say(line);
        let lines = self.lines;
        let running = self.running.as_mut().unwrap();
        let done = running.folder.join(format!("done-{lines}"));
        running.until(|| done.exists().then_some(()));
        self
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.running.as_ref().unwrap().child.id()
    }

    /// Where its live file is.
    pub fn folder(&self) -> PathBuf {
        self.runtime.join("gpucache")
    }

    /// Kills it by SIGKILL.
    pub fn kill(&mut self) -> Outcome {
        self.running.take().unwrap().kill()
    }

    /// Ends its input, and waits for its end.
    pub fn finish(&mut self) -> Outcome {
        self.running.take().unwrap().finish()
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            let _ = running.kill();
        }
        let _ = std::fs::remove_dir_all(&self.runtime);
    }
}
