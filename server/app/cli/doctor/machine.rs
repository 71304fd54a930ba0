//! What the machine has: processor, memory.
//!
//! Lives here: reading `/proc` and `/sys`. May not live here: what the settings ask for.

use std::fs;
use std::path::{Path, PathBuf};

use super::checks::Check;
use crate::cli::disk::bytes_text;

/// Below this even the demo with a few slots does not fit.
const MEMORY_BYTES_MIN: u64 = 300_000_000;

/// Cores this process may use, and the instructions the engine's kernels choose from.
pub fn cpu() -> Check {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let model = cpu_name();
    let features = features();
    let finding = format!(
        "{model}, {cores} cores for this process, {}",
        features.join(" ")
    );
    match cfg!(target_arch = "x86_64") && !features.contains(&"avx2") {
        true => Check::note(
            "cpu",
            finding,
            "without AVX2 the engine is several times slower",
        ),
        false => Check::ok("cpu", finding),
    }
}

/// What the processor calls itself.
pub fn cpu_name() -> String {
    let name = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    });
    name.unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

#[cfg(target_arch = "x86_64")]
fn features() -> Vec<&'static str> {
    let all = [
        ("avx2", is_x86_feature_detected!("avx2")),
        ("fma", is_x86_feature_detected!("fma")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("avx512vnni", is_x86_feature_detected!("avx512vnni")),
        ("avx512bf16", is_x86_feature_detected!("avx512bf16")),
        ("avxvnni", is_x86_feature_detected!("avxvnni")),
    ];
    all.into_iter()
        .filter_map(|(name, is_there)| is_there.then_some(name))
        .collect()
}

#[cfg(target_arch = "aarch64")]
fn features() -> Vec<&'static str> {
    use std::arch::is_aarch64_feature_detected;
    let all = [
        ("neon", is_aarch64_feature_detected!("neon")),
        ("dotprod", is_aarch64_feature_detected!("dotprod")),
        ("bf16", is_aarch64_feature_detected!("bf16")),
        ("i8mm", is_aarch64_feature_detected!("i8mm")),
    ];
    all.into_iter()
        .filter_map(|(name, is_there)| is_there.then_some(name))
        .collect()
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn features() -> Vec<&'static str> {
    Vec::new()
}

/// Memory this process can still get.
pub fn memory() -> Check {
    let Some(memory) = Memory::of_this_machine() else {
        return Check::ok("memory", "this system does not say how much is available");
    };
    let finding = match memory.limit_bytes {
        Some(limit) => format!(
            "{} available (the machine has {} free, this container may use {} more)",
            bytes_text(memory.available()),
            bytes_text(memory.machine_bytes),
            bytes_text(limit)
        ),
        None => format!("{} available", bytes_text(memory.machine_bytes)),
    };
    match memory.available() < MEMORY_BYTES_MIN {
        true => {
            let least = bytes_text(MEMORY_BYTES_MIN);
            Check::fail("memory", finding, format!("the demo needs about {least}"))
        }
        false => Check::ok("memory", finding),
    }
}

/// Available memory, from the machine and from the limits of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    machine_bytes: u64,
    /// What the tightest control group leaves; `None`: none has a limit.
    limit_bytes: Option<u64>,
}

impl Memory {
    /// As this machine says it; `None` where it does not.
    pub fn of_this_machine() -> Option<Self> {
        Self::read(Path::new("/proc"), Path::new("/sys/fs/cgroup"))
    }

    /// Reads `meminfo` and `self/cgroup` under `proc`, and the groups' limits under `cgroup`.
    pub fn read(proc: &Path, cgroup: &Path) -> Option<Self> {
        let meminfo = fs::read_to_string(proc.join("meminfo")).ok()?;
        let line = meminfo
            .lines()
            .find_map(|line| line.strip_prefix("MemAvailable:"))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        let groups = fs::read_to_string(proc.join("self/cgroup")).unwrap_or_default();
        let limits = groups.lines().filter_map(|line| {
            // "0::/path" in version 2, "4:memory:/path" in version 1.
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let (base, limit, usage) = match controllers {
                "" => (cgroup.to_owned(), "memory.max", "memory.current"),
                _ if controllers.split(',').any(|c| c == "memory") => {
                    let base = cgroup.join("memory");
                    (base, "memory.limit_in_bytes", "memory.usage_in_bytes")
                }
                _ => return None,
            };
            tightest(&base, path, limit, usage)
        });
        // Version 1 says "no limit" with a number near 2^63.
        let limit_bytes = limits.min().filter(|limit| *limit < 1 << 60);
        Some(Self {
            machine_bytes: kib.saturating_mul(1_024),
            limit_bytes,
        })
    }

    /// What this process can still get.
    pub fn available(self) -> u64 {
        self.limit_bytes
            .map_or(self.machine_bytes, |limit| limit.min(self.machine_bytes))
    }
}

/// The least that any group from `path` up to the root leaves. Inside a container the path may be the outer one, which
/// does not exist here; its parents then lead to the root, which is the container's own group.
fn tightest(base: &Path, path: &str, limit: &str, usage: &str) -> Option<u64> {
    let number = |file: PathBuf| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    let groups = Path::new(path).ancestors().filter_map(|group| {
        let dir = base.join(group.strip_prefix("/").unwrap_or(group));
        let limit = number(dir.join(limit))?;
        Some(limit.saturating_sub(number(dir.join(usage)).unwrap_or(0)))
    });
    groups.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_group_counts() {
        type Files<'a> = &'a [(&'a str, &'a str)];
        let cases: [(&str, &str, Files<'_>, Option<u64>); 6] = [
            ("no groups", "", &[], None),
            ("no limit", "0::/a\n", &[("a/memory.max", "max\n")], None),
            (
                "a limit less what is used",
                "0::/a\n",
                &[("a/memory.max", "1000\n"), ("a/memory.current", "400\n")],
                Some(600),
            ),
            (
                "the parent is tighter",
                "0::/a/b\n",
                &[("a/b/memory.max", "1000\n"), ("a/memory.max", "500\n")],
                Some(500),
            ),
            (
                "in a container the root is the own group",
                "0::/outer/unknown\n",
                &[("memory.max", "700\n")],
                Some(700),
            ),
            (
                "version 1",
                "5:cpu:/x\n4:memory:/a\n",
                &[
                    ("memory/a/memory.limit_in_bytes", "800"),
                    ("memory/memory.limit_in_bytes", "9223372036854771712"),
                ],
                Some(800),
            ),
        ];
        for (name, groups, files, limit_bytes) in cases {
            let root = tempfile::tempdir().expect("a temp folder");
            let write = |path: &str, text: &str| {
                let path = root.path().join(path);
                fs::create_dir_all(path.parent().expect("it has one")).expect("writable");
                fs::write(path, text).expect("writable");
            };
            write("proc/meminfo", "MemTotal: 9 kB\nMemAvailable:       2 kB\n");
            write("proc/self/cgroup", groups);
            for (path, text) in files {
                write(&format!("cgroup/{path}"), text);
            }
            let memory = Memory::read(&root.path().join("proc"), &root.path().join("cgroup"));
            assert_eq!(
                memory,
                Some(Memory {
                    machine_bytes: 2_048,
                    limit_bytes
                }),
                "{name}"
            );
        }
    }
}
