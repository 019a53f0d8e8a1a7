//! Information of the system about the machine.

use ir::units::Bytes;

/// A host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Name of the processor, as the system reports it.
    pub processor: String,
    /// Number of cores that this process may use.
    pub cores: u32,
    /// Memory; none where the system does not report it.
    pub memory: Option<Bytes>,
    /// Swap space.
    pub swap: Bytes,
}

/// The machine that this process runs on.
pub fn machine() -> Machine {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let (processors, memory) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
    let named = processors.lines().find_map(|line| line.strip_prefix("model name"));
    let named = named.map(|rest| rest.trim_start_matches([' ', '\t', ':']).trim().to_owned());
    let bytes = |name: &str| {
        let line = memory.lines().find_map(|line| line.strip_prefix(name))?;
        let kibibytes = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?;
        Some(Bytes::new(kibibytes.saturating_mul(1024)))
    };
    Machine {
        processor: named.filter(|name| !name.is_empty()).unwrap_or_else(|| "processor".to_owned()),
        cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
        memory: bytes("MemTotal:"),
        swap: bytes("SwapTotal:").unwrap_or_default(),
    }
}
