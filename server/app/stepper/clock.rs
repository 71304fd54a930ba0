//! The clock of the tick: microseconds since it was made, and sleeping until one of them.
//!
//! Lives here: [`Clock`], [`RealClock`], and [`HandClock`], which tests move by hand.
//! May not live here: when a tick is due (`slots::pace`).

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Time as the stepping thread sees it: microseconds, starting near 0, never going back.
pub trait Clock: Send + Sync + 'static {
    /// Microseconds since the clock was made.
    fn now_us(&self) -> u64;

    /// Sleeps until `due_us`. May return early, and does when the thread is unparked; the caller looks at the time again.
    fn sleep_until_us(&self, due_us: u64);
}

/// The monotonic clock of the machine.
#[derive(Debug)]
pub struct RealClock {
    origin: Instant,
}

impl RealClock {
    /// A clock that starts now.
    pub fn new() -> Self {
        Self {
            origin: Instant::now(),
        }
    }
}

impl Default for RealClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for RealClock {
    fn now_us(&self) -> u64 {
        self.origin.elapsed().as_micros() as u64
    }

    fn sleep_until_us(&self, due_us: u64) {
        let left_us = due_us.saturating_sub(self.now_us());
        if left_us > 0 {
            thread::park_timeout(Duration::from_micros(left_us));
        }
    }
}

/// A clock that moves only by hand. Sleeping moves it on by itself, up to the limit that [`HandClock::allow_us`] set;
/// whoever wants to sleep beyond the limit waits. So a test plays an hour as fast as the machine can, and nothing
/// depends on how fast that is.
#[derive(Debug)]
pub struct HandClock {
    // Locked by the test and by every thread that tells the time or sleeps on this clock, for a few instructions.
    // Only tests and benches use it, never the real tick.
    state: Mutex<HandState>,
    moved: Condvar,
}

#[derive(Debug)]
struct HandState {
    now_us: u64,
    limit_us: u64,
    blocked: usize,
}

impl HandClock {
    /// A clock at 0 on which nobody can sleep before time is allowed.
    pub fn new() -> Self {
        Self::with_limit_us(0)
    }

    /// A clock without a limit: every sleep ends at once, at the instant it asked for.
    pub fn free_running() -> Self {
        Self::with_limit_us(u64::MAX)
    }

    fn with_limit_us(limit_us: u64) -> Self {
        Self {
            state: Mutex::new(HandState {
                now_us: 0,
                limit_us,
                blocked: 0,
            }),
            moved: Condvar::new(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HandState> {
        // A test that panicked elsewhere must not hide its own message behind a poisoned clock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets sleepers go `us` further than now allowed.
    pub fn allow_us(&self, us: u64) {
        let mut state = self.lock();
        state.limit_us = state.limit_us.saturating_add(us);
        drop(state);
        self.moved.notify_all();
    }

    /// Lets `us` pass: what work on this clock costs.
    pub fn spend_us(&self, us: u64) {
        self.lock().now_us += us;
    }

    /// Waits until `sleepers` threads want to sleep beyond the limit, that is until all they had to do is done.
    pub fn wait_for_sleepers(&self, sleepers: usize) {
        let mut state = self.lock();
        while state.blocked < sleepers {
            state = self
                .moved
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Default for HandClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for HandClock {
    fn now_us(&self) -> u64 {
        self.lock().now_us
    }

    fn sleep_until_us(&self, due_us: u64) {
        let mut state = self.lock();
        if due_us > state.limit_us {
            state.blocked += 1;
            self.moved.notify_all();
            while due_us > state.limit_us {
                state = self
                    .moved
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            state.blocked -= 1;
        }
        state.now_us = state.now_us.max(due_us);
    }
}
