//! Settings from the environment. A bad value ends the process at once with a message: a test that runs under other
//! settings than it asked for proves nothing.

use std::collections::HashMap;

/// Which calls of one function fail, and how.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Exported symbol, such as `cuMemAlloc_v2`.
    pub name: String,
    /// The call that fails, counting from 1.
    pub nth: u64,
    /// Whether every later call fails too.
    pub onwards: bool,
    /// Result code handed back.
    pub code: i32,
}

/// All settings; see the crate documentation for the variables' grammar.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a variable of its own")]
pub struct Config {
    /// Bytes of memory of each device.
    pub memory: u64,
    /// Number of devices.
    pub devices: i32,
    /// CUDA version of the driver, as 1000 × major + 10 × minor.
    pub version: i32,
    /// Costs of calls in ns that replace the built-in ones.
    pub costs: HashMap<String, u64>,
    /// Whether the devices can map physical memory.
    pub mapping: bool,
    /// Whether a call really takes the time that it costs.
    pub real_cost: bool,
    /// Whether fresh memory is filled with 0xCB.
    pub poison: bool,
    /// Whether a call after the driver's exit handler ends the process with status 99.
    pub trap_at_exit: bool,
    /// Whether a thread that ends takes the captures on its default streams with it; unknown of the real driver.
    pub thread_captures_end: bool,
    /// Failures to inject.
    pub failures: Vec<Failure>,
    /// File that gets one line a call.
    pub trace: Option<String>,
    /// File that gets the counts at exit.
    pub stats: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            memory: 8 << 30,
            devices: 1,
            version: if cfg!(feature = "old-driver") { 11_080 } else { 13_000 },
            costs: HashMap::new(),
            mapping: true,
            real_cost: false,
            poison: false,
            trap_at_exit: false,
            thread_captures_end: false,
            failures: Vec::new(),
            trace: None,
            stats: None,
        }
    }
}

impl Config {
    /// Reads the environment; ends the process when a value cannot be understood.
    pub fn from_env() -> Config {
        match Config::parse(|name| std::env::var(name).ok()).and_then(Config::check_names) {
            Ok(config) => config,
            Err(message) => {
                eprintln!("simcuda: {message}");
                std::process::abort();
            }
        }
    }

    /// A misspelt function would never fail and never cost anything, and the test would pass for no reason.
    fn check_names(self) -> Result<Config, String> {
        let exports = crate::procaddress::exports();
        let names = self.costs.keys().chain(self.failures.iter().map(|f| &f.name));
        match names.into_iter().find(|n| !exports.contains_key(n.as_str())) {
            Some(name) => {
                Err(format!("{name} in SIMCUDA_FAIL or SIMCUDA_CALL_COST is not an exported function"))
            }
            None => Ok(self),
        }
    }

    /// Parses settings from `get`, which answers by variable name.
    pub fn parse(get: impl Fn(&str) -> Option<String>) -> Result<Config, String> {
        let mut config = Config::default();
        if let Some(text) = get("SIMCUDA_MEMORY") {
            config.memory = size(&text)
                .filter(|n| *n <= 4 << 40)
                .ok_or(format!("SIMCUDA_MEMORY={text}: want bytes or e.g. 80GiB, at most 4TiB"))?;
        }
        if let Some(text) = get("SIMCUDA_DEVICES") {
            config.devices = text
                .parse()
                .ok()
                .filter(|n| (0..=64).contains(n))
                .ok_or(format!("SIMCUDA_DEVICES={text}: want 0 to 64"))?;
        }
        if let Some(text) = get("SIMCUDA_DRIVER_VERSION") {
            config.version = text
                .parse()
                .ok()
                .filter(|n| (2000..100_000).contains(n))
                .ok_or(format!("SIMCUDA_DRIVER_VERSION={text}: want e.g. 12050"))?;
        }
        if let Some(text) = get("SIMCUDA_CALL_COST") {
            for part in text.split(',').filter(|p| !p.is_empty()) {
                let (name, ns) = part
                    .split_once('=')
                    .and_then(|(name, ns)| Some((name.trim(), ns.trim().parse().ok()?)))
                    .ok_or(format!("SIMCUDA_CALL_COST: {part}: want NAME=ns"))?;
                config.costs.insert(name.to_owned(), ns);
            }
        }
        config.mapping = !flag(&get, "SIMCUDA_NO_MAPPING")?;
        config.real_cost = flag(&get, "SIMCUDA_REAL_COST")?;
        config.poison = flag(&get, "SIMCUDA_POISON")?;
        config.trap_at_exit = flag(&get, "SIMCUDA_TRAP_AT_EXIT")?;
        config.thread_captures_end = flag(&get, "SIMCUDA_THREAD_CAPTURES_END")?;
        if let Some(text) = get("SIMCUDA_FAIL") {
            config.failures = failures(&text)?;
        }
        config.trace = get("SIMCUDA_TRACE").filter(|t| !t.is_empty());
        config.stats = get("SIMCUDA_STATS").filter(|t| !t.is_empty());
        Ok(config)
    }
}

fn flag(get: impl Fn(&str) -> Option<String>, name: &str) -> Result<bool, String> {
    match get(name).as_deref() {
        None | Some("" | "0") => Ok(false),
        Some("1") => Ok(true),
        Some(other) => Err(format!("{name}={other}: want 0 or 1")),
    }
}

fn size(text: &str) -> Option<u64> {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    for (unit, shift) in units {
        if let Some(number) = text.strip_suffix(unit) {
            return number.trim().parse::<u64>().ok()?.checked_mul(1 << shift);
        }
    }
    text.parse().ok()
}

/// Parses `NAME:N[+][:CODE][,…]`.
pub fn failures(text: &str) -> Result<Vec<Failure>, String> {
    let one = |part: &str| -> Option<Failure> {
        let mut fields = part.trim().split(':');
        let name = fields.next()?.to_owned();
        let nth = fields.next()?;
        let (nth, onwards) = nth.strip_suffix('+').map_or((nth, false), |n| (n, true));
        let nth = nth.parse().ok().filter(|n| *n > 0)?;
        let code = match fields.next() {
            Some(code) => code.parse().ok()?,
            None if is_allocator(&name) => crate::codes::OUT_OF_MEMORY,
            None => crate::codes::UNKNOWN,
        };
        (name.starts_with("cu") && fields.next().is_none()).then_some(Failure { name, nth, onwards, code })
    };
    text.split(',')
        .filter(|p| !p.trim().is_empty())
        .map(|part| one(part).ok_or(format!("SIMCUDA_FAIL: {part}: want NAME:N[+][:CODE]")))
        .collect()
}

fn is_allocator(name: &str) -> bool {
    name.contains("Alloc")
        || name.starts_with("cuMemCreate")
        || name.contains("ArrayCreate")
        || name.contains("Array3DCreate")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(name: &'static str, value: &'static str) -> Result<Config, String> {
        Config::parse(|n| (n == name).then(|| value.to_owned()))
    }

    #[test]
    fn sizes_and_failures_parse_and_bad_ones_are_named() {
        assert_eq!(parse("SIMCUDA_MEMORY", "80GiB").unwrap().memory, 80 << 30);
        assert!(parse("SIMCUDA_MEMORY", "80GB").unwrap_err().contains("SIMCUDA_MEMORY"));
        let f = failures("cuMemAlloc_v2:3,cuMemMap:1+,cuCtxSynchronize:2:700").unwrap();
        assert_eq!((f[0].nth, f[0].onwards, f[0].code), (3, false, 2));
        assert_eq!((f[1].onwards, f[1].code), (true, 999));
        assert_eq!(f[2].code, 700);
        assert!(failures("cuMemAlloc_v2").is_err());
        assert!(failures("cuMemAlloc_v2:0").is_err());
    }
}
