//! What the system says of this process, and real-time scheduling for it.
//!
//! Lives here: processor time, resident memory, [`Boost`]; each with an answer for systems that have no such thing.
//! May not live here: what is measured.

use std::io;
use std::time::Duration;

/// Processor time of all threads since the process began.
#[cfg(unix)]
#[allow(unsafe_code)] // the only way to ask; see SAFETY
pub fn cpu_time() -> Option<Duration> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a whole `timespec` to write to.
    let rc = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    let seconds = u64::try_from(time.tv_sec).ok()?;
    let nanos = u32::try_from(time.tv_nsec).ok()?;
    (rc == 0).then(|| Duration::new(seconds, nanos))
}

/// Processor time of all threads since the process began.
#[cfg(not(unix))]
pub fn cpu_time() -> Option<Duration> {
    None
}

/// Bytes of this process that are in memory now.
pub fn resident_bytes() -> Option<u64> {
    resident(&std::fs::read_to_string("/proc/self/status").ok()?)
}

fn resident(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1_024)
}

/// All threads of the process under real-time scheduling (first in, first out), until dropped: nobody's ordinary
/// thread takes their time slices.
#[derive(Debug)]
pub struct Boost(());

impl Boost {
    /// Asks the system for it.
    ///
    /// # Errors
    /// The system's refusal, usually that the process lacks CAP_SYS_NICE; then no thread is changed.
    pub fn start() -> io::Result<Self> {
        let boost = Self(());
        // A refusal for a later thread drops `boost`, which sets the earlier ones back.
        schedule::all_threads(true).map(|()| boost)
    }
}

impl Drop for Boost {
    fn drop(&mut self) {
        // Giving a privilege up is never refused.
        let _ = schedule::all_threads(false);
    }
}

#[cfg(target_os = "linux")]
mod schedule {
    use std::{fs, io};

    /// The lowest real-time priority: above every ordinary thread, below whatever the system itself needs.
    const PRIORITY: i32 = 1;

    #[allow(unsafe_code)] // the only way to ask; see SAFETY
    pub fn all_threads(boosted: bool) -> io::Result<()> {
        let (policy, priority) = match boosted {
            true => (libc::SCHED_FIFO, PRIORITY),
            false => (libc::SCHED_OTHER, 0),
        };
        for entry in fs::read_dir("/proc/self/task")? {
            let name = entry?.file_name();
            let Some(thread) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let parameters = libc::sched_param {
                sched_priority: priority,
            };
            // SAFETY: the call reads `parameters`, which outlives it, and touches no memory of ours.
            if unsafe { libc::sched_setscheduler(thread, policy, &parameters) } != 0 {
                let error = io::Error::last_os_error();
                // A thread that has ended since it was listed needs nothing any more.
                if error.raw_os_error() != Some(libc::ESRCH) {
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

#[cfg(not(target_os = "linux"))]
mod schedule {
    use std::io;

    pub fn all_threads(_boosted: bool) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_in_bytes() {
        let status = "Name:\tvivavoce\nVmHWM:\t  900 kB\nVmRSS:\t  123 kB\nThreads:\t3\n";
        assert_eq!(resident(status), Some(123 * 1_024));
        assert_eq!(resident("Name:\tvivavoce\n"), None);
    }

    #[cfg(unix)]
    #[test]
    fn processor_time_grows_with_work() {
        let before = cpu_time().expect("this system tells");
        let mut sum = 0u64;
        while cpu_time().expect("this system tells") == before {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(cpu_time() > Some(before));
    }
}
