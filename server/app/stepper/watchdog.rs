//! The watchdog: notices a tick that never ends.
//!
//! Lives here: [`Watch`], which decides, and the thread that looks at the board for it.
//! May not live here: what is done about it; that is the hook's, and the process ends.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

use super::board::{Board, Phase};
use super::handle::Wishes;

/// Looks in a row at the same tick after which it counts as hung.
pub const WATCHDOG_LOOKS: u32 = 20;
/// Time between two looks. With [`WATCHDOG_LOOKS`], a tick may take 20 s.
pub const WATCHDOG_PERIOD: Duration = Duration::from_secs(1);

/// Counts how often the same tick was seen. Looks are counted, not time, so that a process that was itself stopped for
/// a minute does not take that for a hung device.
#[derive(Debug, Default)]
struct Watch {
    tick: u64,
    looks: u32,
}

impl Watch {
    /// One look; true once the tick counts as hung.
    fn look(&mut self, phase: Phase, tick: u64) -> bool {
        let ticking = matches!(phase, Phase::Ready | Phase::Draining);
        if !ticking || tick != self.tick {
            *self = Self { tick, looks: 0 };
            return false;
        }
        self.looks += 1;
        self.looks >= WATCHDOG_LOOKS
    }
}

/// Looks every `period` until the stepping thread is done; calls `on_hang` at most once.
pub(super) fn run(
    board: Arc<Board>,
    wishes: Arc<Wishes>,
    period: Duration,
    on_hang: impl FnOnce(u64),
) {
    let mut watch = Watch::default();
    while !wishes.closed.load(SeqCst) {
        thread::park_timeout(period);
        let tick = board.ticks();
        if watch.look(board.phase(), tick) {
            tracing::error!(tick, looks = WATCHDOG_LOOKS, "the tick does not end");
            return on_hang(tick);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_hung_after_twenty_looks_and_loading_may_take_for_ever() {
        let looks = |phase, tick_at: fn(u32) -> u64, n| {
            let mut watch = Watch::default();
            (0..n).find(|&look| watch.look(phase, tick_at(look)))
        };
        let cases = [
            (
                "ticking",
                Phase::Ready,
                (|look| look.into()) as fn(u32) -> u64,
                None,
            ),
            ("hung at its first tick", Phase::Ready, |_| 0, Some(19)),
            ("hung later", Phase::Ready, |_| 7, Some(20)),
            ("hung while draining", Phase::Draining, |_| 7, Some(20)),
            (
                "a tick of 19 s",
                Phase::Ready,
                |look| (look / 19).into(),
                None,
            ),
            ("loading", Phase::Loading, |_| 0, None),
            ("stopped", Phase::Stopped, |_| 7, None),
        ];
        for (name, phase, tick_at, hung_at) in cases {
            assert_eq!(looks(phase, tick_at, 1_000), hung_at, "{name}");
        }
    }
}
