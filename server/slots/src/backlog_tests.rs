//! Played against a queue of loudness values: what the caller hears of a burst, a stall, a slow device.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const LOUD: f32 = 1e-2;
const QUIET: f32 = 1e-7;

/// A row's queue as the tick reads it.
struct Line {
    backlog: Backlog,
    queue: VecDeque<f32>,
    cut: usize,
    skipped_loud: usize,
    skipped_quiet: usize,
    missing: usize,
}

impl Line {
    fn new() -> Self {
        Self {
            backlog: Backlog::at_start(),
            queue: VecDeque::new(),
            cut: 0,
            skipped_loud: 0,
            skipped_quiet: 0,
            missing: 0,
        }
    }

    /// A line on which a call has been going on for a while.
    fn settled() -> Self {
        let mut line = Self::new();
        for tick in 0..100 {
            line.arrive([speech(tick)]);
            line.tick();
        }
        line
    }

    fn arrive(&mut self, powers: impl IntoIterator<Item = f32>) {
        self.queue.extend(powers);
    }

    fn tick(&mut self) -> Option<f32> {
        let cut = self.backlog.cut(self.queue.len());
        self.queue.drain(..cut);
        self.cut += cut;
        while let Some(&power) = self.queue.front() {
            self.backlog.heard(power);
            if !self.backlog.skip(self.queue.len(), power) {
                break;
            }
            self.queue.pop_front();
            if power >= LOUD {
                self.skipped_loud += 1
            } else {
                self.skipped_quiet += 1
            }
        }
        let taken = self.queue.pop_front();
        self.missing += usize::from(taken.is_none());
        taken
    }
}

/// Ordinary speech: words of about a second with pauses of 240 ms.
fn speech(tick: usize) -> f32 {
    if tick % 15 < 12 { LOUD } else { QUIET }
}

#[test]
fn a_queue_that_is_too_long_at_a_tick_is_cut_by_the_rule_of_its_cause() {
    let stalled = || {
        let mut line = Line::settled();
        line.backlog.after_stall();
        line
    };
    let starved = |ticks| {
        let mut line = Line::settled();
        for _ in 0..ticks {
            line.tick();
        }
        line
    };
    // (name, line, loud frames that arrive at once, frames left after the tick)
    let cases = [
        ("a call's first frames", Line::new(), 2, 1),
        ("12 s held back until ready", Line::new(), 150, 1),
        ("a short burst in a call", Line::settled(), 7, 6),
        ("more than 25 in a call", Line::settled(), 40, 24),
        ("after a stall of the tick", stalled(), 62, 1),
        ("after a stall of the tick, in time", stalled(), 1, 0),
        ("the caller's connection stood for 2 s", starved(25), 25, 1),
        (
            "the caller's connection stood for 0.8 s",
            starved(10),
            10,
            9,
        ),
        ("speech after 20 s without any", starved(250), 5, 4),
    ];
    for (name, mut line, arriving, left) in cases {
        line.arrive(std::iter::repeat_n(LOUD, arriving));
        line.tick();
        assert_eq!(line.queue.len(), left, "{name}");
    }
}

#[test]
fn a_burst_that_comes_in_pieces_after_the_start_is_cut_as_well() {
    let mut line = Line::new();
    for tick in 0..12 {
        line.arrive(std::iter::repeat_n(LOUD, 12));
        line.tick();
        assert!(line.queue.len() < STANDING_FRAMES, "tick {tick}");
    }
}

#[test]
fn three_stalls_of_300_ms_in_speech_cost_only_quiet_frames_and_leave_no_delay() {
    let mut line = Line::settled();
    let mut said = 0;
    for _ in 0..3 {
        // The connection stands for four ticks, and what was said comes all at once.
        for _ in 0..4 {
            line.tick();
        }
        line.arrive((said..said + 4).map(speech));
        said += 4;
        for tick in 0..WORK_OFF_TICKS {
            line.arrive([speech(said)]);
            said += 1;
            line.tick();
            assert!(line.queue.len() <= 5, "tick {tick}");
        }
        assert!(line.queue.len() <= STANDING_FRAMES, "{}", line.queue.len());
    }
    assert_eq!((line.cut, line.skipped_loud), (0, 0));
    assert!(line.skipped_quiet > 0);
}

#[test]
fn a_row_whose_caller_sends_nothing_goes_on() {
    let mut line = Line::settled();
    for _ in 0..1_000 {
        assert_eq!(line.tick(), None);
    }
    assert_eq!(line.cut, 0);
    line.arrive([LOUD]);
    assert_eq!(line.tick(), Some(LOUD));
}

#[test]
fn a_device_that_takes_90_ms_a_tick_never_lags_far_behind_the_caller() {
    let mut line = Line::settled();
    let mut longest = 0;
    for tick in 0..750 {
        // Nine frames come in the time of eight ticks, without a single quiet one.
        line.arrive(std::iter::repeat_n(LOUD, 1 + usize::from(tick % 8 == 0)));
        line.tick();
        longest = longest.max(line.queue.len());
    }
    assert!(longest <= 8, "{longest}");
    assert!(line.cut + line.skipped_loud > 80);
}

#[test]
fn loud_frames_are_never_taken_for_quiet_ones_before_3_s() {
    let mut line = Line::settled();
    // A tone without pauses, for a minute: the estimate of the room's noise rises towards it.
    for _ in 0..750 {
        line.arrive([LOUD]);
        line.tick();
    }
    line.arrive([LOUD; 6]);
    for _ in 1..WORK_OFF_TICKS {
        line.arrive([LOUD]);
        line.tick();
    }
    assert_eq!((line.cut, line.skipped_loud), (0, 0));
    line.arrive([LOUD]);
    line.tick();
    assert_eq!(line.cut, 5, "after 3 s the oldest go");
}

proptest! {
    #[test]
    fn whatever_arrives_the_delay_is_back_to_two_frames_within_3_s(
        arrivals in prop::collection::vec((0usize..40, -8.0f32..0.0), 1..200),
        stall in 0usize..200,
    ) {
        let mut line = Line::new();
        for (tick, &(frames, power)) in arrivals.iter().enumerate() {
            if tick == stall {
                line.backlog.after_stall();
            }
            line.arrive(std::iter::repeat_n(10f32.powf(power), frames));
            line.tick();
            prop_assert!(line.queue.len() <= BACKLOG_FRAMES_MAX);
        }
        for _ in 0..WORK_OFF_TICKS {
            line.arrive([LOUD]);
            prop_assert!(line.tick().is_some(), "a frame is there and must be taken");
        }
        prop_assert!(line.queue.len() <= STANDING_FRAMES);
    }
}
