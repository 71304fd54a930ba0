//! The promises on the kernels of a GPU, run on the host: ticks that are recorded and launched whole, tokens that are
//! chosen where the logits are.

use engine::backend::KvDtype;
use engine::cuda::{Cuda, Host};
use engine::kernels::Dtype;

use crate::callers::{CALLERS, CONTEXT, Caller, FIXTURE, POISON};
use crate::switchboard::{Call, Machine, Switchboard, assert_same, pcm, text};

const ROWS: usize = 3;
/// The window wraps three times while live.
const FRAMES: usize = 3 * CONTEXT + 4;

fn gpu(dtype: Dtype, kv_dtype: KvDtype) -> Cuda<Host> {
    Cuda::new(Host::default(), dtype, kv_dtype)
}

fn board(backend: Cuda<Host>) -> Switchboard<Cuda<Host>> {
    Switchboard::on(backend, &FIXTURE, ROWS, |options| {
        options.prefill_chunk = 16
    })
}

/// A call of `caller` in row 1 while others come, go, fall silent and fail beside it.
fn beside_others(
    mut board: Switchboard<Cuda<Host>>,
    caller: &Caller,
) -> (Call, Switchboard<Cuda<Host>>) {
    board.join(0, &CALLERS[0]);
    board.ticks(0, 5);
    board.join(1, caller);
    for frame in 0..FRAMES {
        match frame % 23 {
            4 => drop(board.join(2, &CALLERS[frame % CALLERS.len()])),
            9 => drop(board.leave(0)),
            13 => drop(board.join(0, &POISON)),
            20 => drop(board.leave(2)),
            _ => {}
        }
        let rows: &[usize] = match (frame % 23, frame % 7) {
            (_, 3) => &[1],
            (0..=4, _) => &[0, 1],
            (5..=9, _) => &[0, 1, 2],
            (10..=13, _) => &[1, 2],
            (14..=20, _) => &[0, 1, 2],
            _ => &[0, 1],
        };
        board.tick(rows);
    }
    (board.leave(1), board)
}

#[test]
fn a_call_is_the_same_alone_and_beside_others_on_ticks_that_are_launched_whole() {
    for (dtype, kv_dtype, callers) in [
        (Dtype::F32, KvDtype::F32, &CALLERS[..]),
        (Dtype::Bf16, KvDtype::Bf16, &CALLERS[..1]),
        (Dtype::Q8_0, KvDtype::Fp8, &CALLERS[1..2]),
    ] {
        for caller in callers {
            let alone = board(gpu(dtype, kv_dtype)).whole_call(1, caller, FRAMES);
            let (beside, board) = beside_others(board(gpu(dtype, kv_dtype)), caller);
            assert_same(&beside, &alone, caller.name);
            let ticks = board.model.backend().ticks();
            // The first ones warm up, and a chunk of a prompt that is longer than the batch makes buffers grow once.
            assert!(ticks.plain <= 8 && ticks.broken <= 2, "{ticks:?}");
            assert!(ticks.whole > FRAMES as u64 - 10, "{ticks:?}");
        }
    }
}

#[test]
fn a_tick_launched_whole_gives_what_its_operations_give_one_by_one() {
    let (whole, _) = beside_others(board(gpu(Dtype::F32, KvDtype::F32)), &CALLERS[1]);
    let one_by_one = board(gpu(Dtype::F32, KvDtype::F32).without_graph());
    let (plain, board) = beside_others(one_by_one, &CALLERS[1]);
    assert_same(&whole, &plain, "one by one");
    assert_eq!(board.model.backend().ticks().whole, 0);
}

/// Frames that two machines' last bits do not lead apart: these models have been trained on nothing, so every choice is
/// a near one.
const FRAMES_ALIKE: usize = 10;

#[test]
fn a_sampled_call_begins_with_the_same_tokens_as_on_the_cpu() {
    for caller in CALLERS.iter() {
        let on_cpu = Switchboard::with(&FIXTURE, Machine::f32(1), ROWS, |options| {
            options.prefill_chunk = 16;
        })
        .whole_call(1, caller, FRAMES_ALIKE);
        let on_gpu = board(gpu(Dtype::F32, KvDtype::F32)).whole_call(1, caller, FRAMES_ALIKE);
        assert_eq!(text(&on_gpu), text(&on_cpu), "{}", caller.name);
        let worst = pcm(&on_gpu)
            .iter()
            .zip(pcm(&on_cpu))
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f32::max);
        assert!(worst < 1e-4, "{}: samples differ by {worst}", caller.name);
    }
}
