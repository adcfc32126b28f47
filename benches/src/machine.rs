//! What the machine says of this process: CPU time of a thread, resident memory.

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// CPU time that the calling thread has used.
pub(crate) fn thread_cpu_time() -> Duration {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(used.tv_sec.unsigned_abs(), used.tv_nsec as u32)
}

/// CPU time that this process has used.
pub(crate) fn process_cpu_time() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec.unsigned_abs(), used.tv_nsec as u32)
}

/// Resident memory in bytes; 0 where the system does not say.
pub(crate) fn resident_bytes() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|statm| {
            let resident = statm.split_whitespace().nth(1)?;
            resident.parse::<u64>().ok()
        });
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

/// Lets the calling thread go before others of the same process where the system allows it: the
/// generator must be on time on a machine whose every core is busy.
pub(crate) fn prefer_this_thread() {
    // Refused without the right to; the generator's lateness is measured either way.
    let _refused = rustix::process::setpriority_process(None, -10);
}
