//! The process, under the names that every Prometheus client library uses. Linux tells these figures; elsewhere they stay at zero.

use std::{fs, sync::atomic::AtomicU64, time::Duration};

use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};

use super::registry::BeforeScrape;
use crate::open_files;

/// Clock ticks a second in `/proc`: part of the kernel's interface on every machine that Rust has `std` for, whatever its timer does.
const TICKS: f64 = 100.0;

/// Registers the series and brings them up to date before each scrape.
pub(super) fn register(before_scrape: &BeforeScrape, registry: &mut Registry) {
    let cpu = Counter::<f64, AtomicU64>::default();
    let (resident, open, most_open) = (Gauge::<i64>::default(), Gauge::<i64>::default(), Gauge::<i64>::default());
    let (virtual_memory, data, threads) = (Gauge::<i64>::default(), Gauge::<i64>::default(), Gauge::<i64>::default());
    let started = Gauge::<f64, AtomicU64>::default();
    registry.register("process_cpu_seconds", "Time that the process spent computing", cpu.clone());
    registry.register("process_resident_memory_bytes", "Memory of the process that is in RAM", resident.clone());
    registry.register("process_virtual_memory_bytes", "Memory that the process has reserved", virtual_memory.clone());
    registry.register(
        "process_data_memory_bytes",
        "Memory that the process has reserved for its heap and its stacks",
        data.clone(),
    );
    registry.register("process_threads", "Threads of the process", threads.clone());
    registry.register("process_open_fds", "Files and connections that are open", open.clone());
    registry.register("process_max_fds", "Files and connections that may be open", most_open.clone());
    registry.register("process_start_time_seconds", "When the process was started, since 1970", started.clone());
    before_scrape.add(move || {
        if let Some(stat) = read("/proc/self/stat").as_deref().and_then(stat) {
            // A counter only goes up; both are whole ticks, so nothing is lost on the way.
            cpu.inc_by((stat.cpu.as_secs_f64() - cpu.get()).max(0.0));
            let boot = read("/proc/stat").as_deref().and_then(boot_time).unwrap_or_default();
            started.set((boot + stat.started_after_boot).as_secs_f64());
        }
        let status = read("/proc/self/status").unwrap_or_default();
        resident.set(kibibytes(&status, "VmRSS:").unwrap_or_default());
        virtual_memory.set(kibibytes(&status, "VmSize:").unwrap_or_default());
        data.set(kibibytes(&status, "VmData:").unwrap_or_default());
        threads.set(number(&status, "Threads:").unwrap_or_default());
        most_open.set(open_files::limit().and_then(|limit| i64::try_from(limit).ok()).unwrap_or_default());
        // One of them is the folder itself, while it is read.
        let count = fs::read_dir("/proc/self/fd").map_or(0, |files| files.count().saturating_sub(1));
        open.set(i64::try_from(count).unwrap_or(i64::MAX));
        true
    });
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

#[derive(Debug, PartialEq)]
struct Stat {
    cpu: Duration,
    started_after_boot: Duration,
}

/// Fields 14, 15 and 22, counted from behind the name of the program, which may have spaces and brackets in it.
fn stat(text: &str) -> Option<Stat> {
    let (_, fields) = text.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = |number: usize| {
        let ticks: u32 = fields.get(number - 3)?.parse().ok()?;
        Some(Duration::from_secs_f64(f64::from(ticks) / TICKS))
    };
    Some(Stat { cpu: ticks(14)? + ticks(15)?, started_after_boot: ticks(22)? })
}

fn boot_time(text: &str) -> Option<Duration> {
    let seconds = text.lines().find_map(|line| line.strip_prefix("btime "))?;
    Some(Duration::from_secs(seconds.trim().parse().ok()?))
}

/// A figure that the kernel gives in kibibytes, in bytes.
fn kibibytes(status: &str, field: &str) -> Option<i64> {
    Some(number(status, field)? * 1024)
}

fn number(status: &str, field: &str) -> Option<i64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn the_name_of_the_program_may_be_anything() {
        let text = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 9 0 12345 1 1 1";
        let expected = Stat { cpu: Duration::from_secs(2), started_after_boot: Duration::from_millis(123_450) };
        assert_eq!(stat(text), Some(expected));
        assert_eq!(stat("7 (a) S 1"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_figures_are_those_of_this_process() {
        let own = stat(&read("/proc/self/stat").unwrap()).unwrap();
        let started = boot_time(&read("/proc/stat").unwrap()).unwrap() + own.started_after_boot;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        // The kernel tells the boot in whole seconds.
        let age = now.as_secs_f64() - started.as_secs_f64();
        assert!((-2.0..3600.0).contains(&age), "{age}");
        let status = read("/proc/self/status").unwrap();
        let [resident, data, all] = ["VmRSS:", "VmData:", "VmSize:"].map(|field| kibibytes(&status, field).unwrap());
        assert!(0 < resident && 0 < data && resident < all && data < all, "{resident} {data} {all}");
        assert!(number(&status, "Threads:").unwrap() > 0);
        assert!(open_files::limit().is_none_or(|limit| limit > 0));
    }
}
