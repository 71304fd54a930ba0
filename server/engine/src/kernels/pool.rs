//! A few persistent threads that share out one loop at a time with little delay.
//!
//! Workers spin for some microseconds after a job, because the next one usually follows at once, and then park:
//! an idle pool costs no CPU. The calling thread takes part in every job.

#![allow(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

/// How long a worker looks for the next job before it parks. Longer than the gap between two products of a layer,
/// far shorter than a tick.
const SPIN: Duration = Duration::from_micros(50);
/// Looks at the ticket between two looks at the clock while spinning.
const LOOKS_PER_CLOCK: u32 = 64;
/// Looks at the count of finished tasks before the caller starts to give its time slice away.
const LOOKS_BEFORE_YIELD: u32 = 20_000;

/// Fewest elements that are a piece of their own: some microseconds of copying.
const PIECE_MIN: usize = 8_192;
/// Pieces per thread, so that a thread that is held up does not hold up the others.
const PIECES_PER_THREAD: usize = 4;

type Job<'a> = &'a (dyn Fn(usize) + Sync);

/// Threads that run the tasks of one job together with the thread that asks for it.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<Worker>,
    /// Held during a job. A second caller, or a task that asks again, finds it taken and runs its tasks alone.
    busy: Mutex<()>,
}

struct Worker {
    thread: Thread,
    handle: Option<JoinHandle<()>>,
}

struct Shared {
    /// `next << 32 | tasks`: one compare-and-swap claims a task. A claim that succeeds belongs to the job that is
    /// published now, and that job cannot end before the claimed task has.
    ticket: AtomicU64,
    /// Points at the `Job` on the caller's stack. Read only after a claim.
    job: AtomicPtr<()>,
    finished: AtomicUsize,
    panicked: AtomicBool,
    stop: AtomicBool,
    parked: Vec<AtomicBool>,
}

impl Pool {
    /// A pool of `threads` threads in all, the calling one included; 0 means 1.
    ///
    /// If the system refuses a thread, the pool is smaller; see [`Pool::threads`].
    pub fn new(threads: usize) -> Pool {
        let wanted = threads.max(1) - 1;
        let shared = Arc::new(Shared {
            ticket: AtomicU64::new(0),
            job: AtomicPtr::new(std::ptr::null_mut()),
            finished: AtomicUsize::new(0),
            panicked: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            parked: (0..wanted).map(|_| AtomicBool::new(false)).collect(),
        });
        let mut workers = Vec::with_capacity(wanted);
        for index in 0..wanted {
            let own = Arc::clone(&shared);
            let spawned = thread::Builder::new()
                .name(format!("kernels-{}", index + 1))
                .spawn(move || own.work(index));
            match spawned {
                Ok(handle) => workers.push(Worker {
                    thread: handle.thread().clone(),
                    handle: Some(handle),
                }),
                Err(_) => break,
            }
        }
        Pool {
            shared,
            workers,
            busy: Mutex::new(()),
        }
    }

    /// Threads that take part in a job, the calling one included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `f(0)` to `f(tasks - 1)`, each once, in any order and on any thread, and returns when all are done.
    ///
    /// # Panics
    /// When a task panics, after every other claimed task has ended.
    pub fn run(&self, tasks: usize, f: &(dyn Fn(usize) + Sync)) {
        if tasks <= 1 || self.workers.is_empty() || tasks >= u32::MAX as usize {
            return (0..tasks).for_each(f);
        }
        let Ok(_busy) = self.busy.try_lock() else {
            return (0..tasks).for_each(f);
        };
        let shared = &*self.shared;
        let job: Job<'_> = f;
        shared.finished.store(0, Ordering::Relaxed);
        shared
            .job
            .store((&raw const job).cast_mut().cast(), Ordering::Relaxed);
        shared.ticket.store(tasks as u64, Ordering::SeqCst);
        for (worker, parked) in self.workers.iter().zip(&shared.parked) {
            if parked.swap(false, Ordering::SeqCst) {
                worker.thread.unpark();
            }
        }
        let own = catch_unwind(AssertUnwindSafe(|| {
            while let Some(index) = shared.claim() {
                // A panic must leave the count right, so the task is counted first by the guard.
                let _count = CountOnDrop(&shared.finished);
                f(index);
            }
        }));
        let mut looks = 0;
        if own.is_err() {
            // Take what nobody has claimed, so that the wait below ends.
            while shared.claim().is_some() {
                shared.finished.fetch_add(1, Ordering::Release);
            }
        }
        while shared.finished.load(Ordering::Acquire) != tasks {
            looks += 1;
            if looks < LOOKS_BEFORE_YIELD {
                std::hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
        let panicked = shared.panicked.swap(false, Ordering::Relaxed);
        drop(_busy);
        match own {
            Err(payload) => resume_unwind(payload),
            Ok(()) if panicked => panic!("a task of the pool panicked"),
            Ok(()) => {}
        }
    }
}

/// Where a slice starts that tasks take disjoint pieces of.
struct Start<T>(*mut T);

// SAFETY: only disjoint pieces are made of it, each in one task.
unsafe impl<T: Send> Sync for Start<T> {}

impl Pool {
    /// Cuts `data` into pieces of whole `unit`s, the last one shorter where they do not come out, and calls
    /// `f(start, piece)` for each. What is short stays one piece, since waking somebody takes longer.
    pub fn pieces<T: Send>(
        &self,
        data: &mut [T],
        unit: usize,
        f: &(dyn Fn(usize, &mut [T]) + Sync),
    ) {
        let len = data.len();
        if self.threads() == 1 || len < 2 * PIECE_MIN {
            return f(0, data);
        }
        let wanted = len.div_ceil(self.threads() * PIECES_PER_THREAD);
        let piece = wanted.max(PIECE_MIN).next_multiple_of(unit.max(1));
        let start = Start(data.as_mut_ptr());
        self.run(len.div_ceil(piece), &|index| {
            let from = index * piece;
            let to = len.min(from + piece);
            // Taken whole, so that the closure shares the wrapper.
            let start = &start;
            // SAFETY: inside `data`, which is borrowed until all tasks are done, and no other task has this index.
            f(from, unsafe {
                std::slice::from_raw_parts_mut(start.0.add(from), to - from)
            });
        });
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for worker in &mut self.workers {
            worker.thread.unpark();
            if let Some(handle) = worker.handle.take() {
                // A worker catches the panics of its tasks, so there is nothing to report here.
                let _ = handle.join();
            }
        }
    }
}

struct CountOnDrop<'a>(&'a AtomicUsize);

impl Drop for CountOnDrop<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

impl Shared {
    fn has_work(&self) -> bool {
        let ticket = self.ticket.load(Ordering::SeqCst);
        (ticket >> 32) < (ticket & u64::from(u32::MAX))
    }

    /// Takes the next task of the published job, if one is left.
    fn claim(&self) -> Option<usize> {
        let mut ticket = self.ticket.load(Ordering::Acquire);
        loop {
            let (next, tasks) = (ticket >> 32, ticket & u64::from(u32::MAX));
            if next >= tasks {
                return None;
            }
            match self.ticket.compare_exchange_weak(
                ticket,
                ticket + (1 << 32),
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return Some(next as usize),
                Err(seen) => ticket = seen,
            }
        }
    }

    fn work(&self, index: usize) {
        let mut idle_since = Instant::now();
        let mut looks = 0u32;
        while !self.stop.load(Ordering::Relaxed) {
            if let Some(task) = self.claim() {
                // SAFETY: the claim succeeded, so `run` is waiting for this task and its `Job` is alive. The
                // pointer was stored before the ticket that the claim acquired.
                let job = unsafe { *self.job.load(Ordering::Relaxed).cast::<Job<'_>>() };
                if catch_unwind(AssertUnwindSafe(|| job(task))).is_err() {
                    self.panicked.store(true, Ordering::Relaxed);
                }
                self.finished.fetch_add(1, Ordering::Release);
                (idle_since, looks) = (Instant::now(), 0);
                continue;
            }
            looks += 1;
            std::hint::spin_loop();
            if looks.is_multiple_of(LOOKS_PER_CLOCK) && idle_since.elapsed() > SPIN {
                self.parked[index].store(true, Ordering::SeqCst);
                // The flag is up before this last look, so a job published later finds the flag and wakes us.
                if !self.has_work() && !self.stop.load(Ordering::SeqCst) {
                    thread::park();
                }
                self.parked[index].store(false, Ordering::SeqCst);
                (idle_since, looks) = (Instant::now(), 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_whole_units_and_cover_everything_once() {
        for threads in 1..4 {
            let pool = Pool::new(threads);
            for (len, unit) in [(0, 1), (1, 7), (16_383, 5), (100_003, 48), (40_000, 39_999)] {
                let mut data = vec![0usize; len];
                pool.pieces(&mut data, unit, &|start, piece| {
                    assert!(start.is_multiple_of(unit));
                    assert!(piece.len().is_multiple_of(unit) || start + piece.len() == len);
                    for (at, value) in piece.iter_mut().enumerate() {
                        *value += start + at + 1;
                    }
                });
                assert!((1..=len).eq(data), "{threads} threads, {len} by {unit}");
            }
        }
    }

    #[test]
    fn every_task_runs_once_whatever_the_number_of_threads() {
        for threads in 0..5 {
            let pool = Pool::new(threads);
            for tasks in [0, 1, 2, 3, 17, 400] {
                let counts: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                pool.run(tasks, &|index| {
                    counts[index].fetch_add(1, Ordering::Relaxed);
                });
                assert!(
                    counts.iter().all(|c| c.load(Ordering::Relaxed) == 1),
                    "{threads} threads, {tasks} tasks"
                );
            }
        }
    }

    #[test]
    fn many_short_jobs_in_a_row_lose_nothing_while_workers_park_between_them() {
        let pool = Pool::new(3);
        let total = AtomicUsize::new(0);
        for round in 0..2_000 {
            pool.run(5, &|_| {
                total.fetch_add(1, Ordering::Relaxed);
            });
            if round % 500 == 0 {
                // Long enough for the workers to park; the count below holds either way.
                let until = Instant::now() + 4 * SPIN;
                while Instant::now() < until {
                    thread::yield_now();
                }
            }
        }
        assert_eq!(total.into_inner(), 10_000);
    }

    #[test]
    fn a_task_that_asks_the_same_pool_again_is_served() {
        let pool = Pool::new(2);
        let total = AtomicUsize::new(0);
        pool.run(4, &|_| {
            pool.run(3, &|_| {
                total.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert_eq!(total.into_inner(), 12);
    }

    #[test]
    fn a_panic_in_a_task_reaches_the_caller_and_the_pool_lives_on() {
        let pool = Pool::new(2);
        for bad in 0..8 {
            let result = catch_unwind(AssertUnwindSafe(|| {
                pool.run(8, &|index| assert_ne!(index, bad));
            }));
            assert!(result.is_err());
        }
        let total = AtomicUsize::new(0);
        pool.run(8, &|_| {
            total.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(total.into_inner(), 8);
    }
}
