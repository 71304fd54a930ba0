//! A row's bits do not depend on what happens in the others, at whatever moment it happens.

use std::collections::HashMap;

use engine::backend::KvDtype;
use engine::kernels::Dtype;
use engine::model::RingRule;
use engine::voice_model::{EngineOptions, Order};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use slots::engine::{FrameKind, Readiness};

use crate::callers::{CALLERS, CONTEXT, Caller, FIXTURE, POISON};
use crate::switchboard::{Call, Machine, Switchboard, assert_same, difference};

const ROWS: usize = 4;
/// The window wraps three times while live.
const FRAMES: usize = 3 * CONTEXT + 4;
/// Ticks of a schedule: room for a late join, the prompt and the pauses of a call of [`FRAMES`].
const TICKS: usize = FRAMES + 2 * CONTEXT;

/// What a row does before a tick, and whether it takes part in it.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// Somebody sits down here, whoever sat here before.
    Seat(usize),
    /// A chunk of the prompt is read, if one is left.
    Read,
    /// Takes part in the tick, if live.
    Speak,
    /// Stands still for a tick.
    Pause,
    Leave,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (0..=CALLERS.len()).prop_map(Act::Seat),
        6 => Just(Act::Read),
        24 => Just(Act::Speak),
        3 => Just(Act::Pause),
        1 => Just(Act::Leave),
    ]
}

/// Who sits in a row, and how many frames they got.
struct Seat {
    caller: &'static Caller,
    ready: Readiness,
    frames: usize,
}

/// The caller of [`Act::Seat`]; the last one's row fails.
fn by_number(number: usize) -> &'static Caller {
    CALLERS.get(number).unwrap_or(&POISON)
}

/// How an engine is built for a test.
#[derive(Clone, Copy)]
struct Setup {
    machine: Machine,
    options: fn(&mut EngineOptions),
}

impl Setup {
    fn board(self, rows: usize) -> Switchboard {
        Switchboard::with(&FIXTURE, self.machine, rows, self.options)
    }
}

/// As it is served, with chunks so short that others can come between.
fn serving(machine: Machine) -> Setup {
    let options = |options: &mut EngineOptions| options.prefill_chunk = 16;
    Setup { machine, options }
}

/// What every caller hears alone, on an engine of one row that nobody has used.
fn alone(setup: Setup) -> HashMap<&'static str, Call> {
    let alone = |number| {
        let caller = by_number(number);
        let call = setup.board(1).whole_call(0, caller, TICKS);
        (caller.name, call)
    };
    (0..=CALLERS.len()).map(alone).collect()
}

/// Plays `schedule`, a row of acts for each tick, and compares every call that took place, whole or cut short.
fn play(
    setup: Setup,
    expected: &HashMap<&str, Call>,
    schedule: &[[Act; ROWS]],
) -> Result<(), TestCaseError> {
    let mut board = setup.board(ROWS);
    let mut seats: [Option<Seat>; ROWS] = [const { None }; ROWS];
    let hang_up = |board: &mut Switchboard, row: usize, seat: Option<Seat>| {
        let Some(Seat { caller, frames, .. }) = seat else {
            return Ok(());
        };
        match difference(&board.leave(row), &expected[caller.name][..frames]) {
            None => Ok(()),
            Some(what) => Err(TestCaseError::fail(format!(
                "{} in row {row}: {what}",
                caller.name
            ))),
        }
    };
    for acts in schedule {
        let mut live = Vec::new();
        for (row, act) in acts.iter().enumerate() {
            match (*act, &mut seats[row]) {
                (Act::Seat(number), _) => {
                    hang_up(&mut board, row, seats[row].take())?;
                    let caller = by_number(number);
                    let ready = board.seat(row, caller);
                    seats[row] = Some(Seat {
                        caller,
                        ready,
                        frames: 0,
                    });
                }
                (Act::Leave, _) => hang_up(&mut board, row, seats[row].take())?,
                (Act::Pause, _) | (_, None) => {}
                (Act::Speak, Some(seat)) if seat.ready == Readiness::Live => {
                    live.push(row);
                    seat.frames += 1;
                }
                (Act::Read | Act::Speak, Some(seat)) => seat.ready = board.prefill(row),
            }
        }
        board.tick(&live);
    }
    let mut seats = seats.into_iter().enumerate();
    seats.try_for_each(|(row, seat)| hang_up(&mut board, row, seat))
}

/// Rows that do what they like, beside one caller who stays; the stayer's row and first tick are random too.
fn schedules() -> impl Strategy<Value = Vec<[Act; ROWS]>> {
    let others = prop::collection::vec([act(), act(), act(), act()], TICKS);
    let pauses = prop::collection::vec(prop::bool::weighted(0.1), TICKS);
    (others, pauses, 0..ROWS, 0..12_usize, 0..CALLERS.len()).prop_map(
        |(mut schedule, pauses, row, joins_at, caller)| {
            for (tick, (acts, pause)) in schedule.iter_mut().zip(pauses).enumerate().skip(joins_at)
            {
                acts[row] = match (tick == joins_at, pause) {
                    (true, _) => Act::Seat(caller),
                    (_, true) => Act::Pause,
                    (_, false) => Act::Speak,
                };
            }
            schedule
        },
    )
}

fn check(setup: Setup, cases: u32) {
    let expected = alone(setup);
    for caller in &*CALLERS {
        let call = &expected[caller.name];
        assert!(call.iter().all(|heard| heard.kind == FrameKind::Live));
    }
    let mut runner = TestRunner::new(Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    });
    let result = runner.run(&schedules(), |schedule| play(setup, &expected, &schedule));
    if let Err(error) = result {
        panic!("{:?}: {error}", setup.machine);
    }
}

#[test]
fn a_call_is_the_same_alone_and_beside_rows_that_come_and_go_on_one_thread() {
    check(serving(Machine::f32(1)), 20);
}

#[test]
fn a_call_is_the_same_alone_and_beside_rows_that_come_and_go_on_two_threads() {
    check(serving(Machine::f32(2)), 10);
}

#[test]
fn a_call_is_the_same_in_any_company_with_every_option_turned() {
    let turned = |options: &mut EngineOptions| {
        options.order = Order::Overlapped;
        options.ring = RingRule::Short;
        options.pin_prompt = true;
        options.depformer_steps = FIXTURE.config().depformer.steps;
        options.prefill_chunk = 7;
        options.prompt_cache_bytes = 0;
    };
    let machine = Machine::f32(1);
    check(
        Setup {
            machine,
            options: turned,
        },
        8,
    );
}

#[test]
fn half_precision_rows_keep_to_themselves() {
    let half = Machine {
        dtype: Dtype::Bf16,
        kv_dtype: KvDtype::Bf16,
        threads: 2,
    };
    check(serving(half), 6);
}

#[test]
fn eight_bit_rows_keep_to_themselves() {
    let eight_bit = Machine {
        dtype: Dtype::Q8_0,
        kv_dtype: KvDtype::Bf16,
        threads: 1,
    };
    check(serving(eight_bit), 6);
}

#[test]
fn the_number_of_threads_and_of_idle_rows_changes_nothing() {
    let expected = alone(serving(Machine::f32(1)));
    for (threads, rows, row) in [(2, 1, 0), (1, 8, 0), (1, 8, 7), (2, 3, 1)] {
        let mut board = Switchboard::new(&FIXTURE, Machine::f32(threads), rows);
        for caller in &*CALLERS {
            let what = format!("{}, {threads} threads, row {row} of {rows}", caller.name);
            let call = board.whole_call(row, caller, FRAMES);
            assert_same(&call, &expected[caller.name][..FRAMES], &what);
        }
    }
}

#[test]
fn callers_are_told_apart_by_what_they_hear() {
    // Without this the tests above could not fail.
    let expected = alone(serving(Machine::f32(1)));
    for (at, a) in CALLERS.iter().enumerate() {
        for b in &CALLERS[at + 1..] {
            let (heard_a, heard_b) = (&expected[a.name], &expected[b.name]);
            assert!(heard_a != heard_b, "{} and {}", a.name, b.name);
        }
    }
}
