//! Bad sound and bad numbers end at most the call they belong to.

use std::fs;

use engine::weights::Checkpoint;
use safetensors::SafeTensors;
use slots::call::Sampling;
use slots::engine::{FrameKind, RowFault};

use crate::callers::{CALLERS, CONTEXT, Caller, FIXTURE, POISON, fixture_folder};
use crate::switchboard::{Call, Machine, Switchboard, assert_same, text_tokens};

const FRAMES: usize = 3 * CONTEXT;

fn alone(guest: &Caller) -> Call {
    Switchboard::new(&FIXTURE, Machine::f32(1), 1).whole_call(0, guest, FRAMES)
}

/// A frame of the microphone and what it is to be heard as.
type Spoil = fn(usize, &mut [f32]);

#[test]
fn a_frame_that_is_no_number_is_heard_as_silence_and_harms_nobody() {
    let spoils: [(&str, Spoil, Spoil); 4] = [
        (
            "NaN from frame 10 to 12",
            |frame, mic| {
                if (10..13).contains(&frame) {
                    mic.fill(f32::NAN)
                }
            },
            |frame, mic| {
                if (10..13).contains(&frame) {
                    mic.fill(0.0)
                }
            },
        ),
        (
            "the very first frame is infinite",
            |frame, mic| {
                if frame == 0 {
                    mic.fill(f32::INFINITY)
                }
            },
            |frame, mic| {
                if frame == 0 {
                    mic.fill(0.0)
                }
            },
        ),
        (
            "single samples in every frame",
            |_, mic| mic[7..9].copy_from_slice(&[f32::NEG_INFINITY, f32::NAN]),
            |_, mic| mic[7..9].fill(0.0),
        ),
        (
            "from frame 30 on",
            |frame, mic| {
                if frame >= 30 {
                    mic.fill(-f32::NAN)
                }
            },
            |frame, mic| {
                if frame >= 30 {
                    mic.fill(0.0)
                }
            },
        ),
    ];
    let neighbour = &CALLERS[3];
    let neighbours_call = alone(neighbour);
    for (what, spoil, as_heard) in spoils {
        let expected = alone(&Caller {
            spoil: as_heard,
            ..CALLERS[1].clone()
        });
        let mut board = Switchboard::new(&FIXTURE, Machine::f32(1), 2);
        board.join(
            0,
            &Caller {
                spoil,
                ..CALLERS[1].clone()
            },
        );
        board.join(1, neighbour);
        (0..FRAMES).for_each(|_| board.tick(&[0, 1]));
        assert_same(&board.leave(0), &expected, what);
        assert_same(&board.leave(1), &neighbours_call, what);
    }
}

#[test]
fn absurdly_loud_sound_harms_nobody_and_the_next_holder_of_the_row_never_knows() {
    let neighbour = &CALLERS[3];
    for (what, spoil) in [
        (
            "as loud as a number can be",
            (|_, mic| mic.fill(f32::MAX)) as Spoil,
        ),
        ("clipped", |_, mic| {
            mic.iter_mut().for_each(|v| *v = 100.0 * v.signum())
        }),
    ] {
        let mut board = Switchboard::new(&FIXTURE, Machine::f32(1), 2);
        board.join(
            0,
            &Caller {
                spoil,
                ..CALLERS[1].clone()
            },
        );
        board.join(1, neighbour);
        (0..FRAMES).for_each(|_| board.tick(&[0, 1]));
        for heard in board.leave(0) {
            assert_eq!(
                heard.kind,
                FrameKind::Live,
                "{what}: codes are numbers whatever was said"
            );
        }
        assert_same(&board.leave(1), &alone(neighbour), what);
        assert_same(
            &board.whole_call(0, &CALLERS[0], FRAMES),
            &alone(&CALLERS[0]),
            what,
        );
    }
}

#[test]
fn a_row_whose_prompt_holds_nan_fails_alone_and_keeps_its_reason() {
    let neighbour = &CALLERS[0];
    let mut board = Switchboard::new(&FIXTURE, Machine::f32(2), 3);
    board.join(1, neighbour);
    board.join(0, &POISON);
    board.join(2, &POISON);
    (0..FRAMES).for_each(|_| board.tick(&[0, 1, 2]));
    assert_same(
        &board.leave(1),
        &alone(neighbour),
        "between two failed rows",
    );
    for row in [0, 2] {
        for heard in board.leave(row) {
            assert_eq!(heard.kind, FrameKind::Fault(RowFault::NotFinite));
            assert!(heard.text.is_empty() && heard.pcm().all(|sample| sample == 0.0));
        }
    }
}

/// The fixture with NaN where one text token's embedding was.
fn checkpoint_with_nan_for(token: u32) -> (tempfile::TempDir, Checkpoint) {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("voices")).unwrap();
    for part in ["", "voices"] {
        for entry in fs::read_dir(fixture_folder().join(part)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                fs::copy(
                    &path,
                    folder.path().join(part).join(path.file_name().unwrap()),
                )
                .unwrap();
            }
        }
    }
    let path = folder.path().join("model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    let (start, len) = {
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let tensor = tensors.tensor("text_emb.weight").unwrap();
        let row_bytes = tensor.data().len() / tensor.shape()[0];
        let start = tensor.data().as_ptr() as usize - bytes.as_ptr() as usize;
        (start + token as usize * row_bytes, row_bytes)
    };
    // All bits set is NaN in every floating type.
    bytes[start..start + len].fill(0xff);
    fs::write(&path, bytes).unwrap();
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    (folder, checkpoint)
}

#[test]
fn weights_that_give_nan_in_the_middle_of_a_call_end_that_call_and_no_other() {
    let [victim, neighbour] = [&CALLERS[0], &CALLERS[1]].map(|caller| {
        caller.with_sampling(Sampling {
            text_temperature: 1.5,
            text_top_k: 400,
            ..caller.sampling
        })
    });
    let [said, also_said] = [&victim, &neighbour].map(|caller| {
        let board = Switchboard::new(&FIXTURE, Machine::f32(1), 1);
        text_tokens(board, caller, FRAMES)
    });
    // A token that the victim says for the first time once the window has wrapped, and that nobody else reads.
    let first_said_late = |at: &usize| {
        let token = &said[*at];
        !said[..*at].contains(token)
            && !also_said.contains(token)
            && !victim.prompt.text_ids.contains(token)
    };
    let at = (CONTEXT + 5..FRAMES - 5)
        .find(first_said_late)
        .expect("somebody says something new");
    let (_folder, doctored) = checkpoint_with_nan_for(said[at]);

    let (expected, neighbours_call) = (alone(&victim), alone(&neighbour));
    let mut board = Switchboard::new(&doctored, Machine::f32(2), 2);
    board.join(0, &victim);
    board.join(1, &neighbour);
    (0..FRAMES).for_each(|_| board.tick(&[0, 1]));
    let heard = board.leave(0);
    // Call `at` says the token, the next one reads it; call `n` belongs to the caller's frame `n - 1`.
    assert_same(&heard[..at], &expected[..at], "before the fault");
    for heard in &heard[at..] {
        assert_eq!(heard.kind, FrameKind::Fault(RowFault::NotFinite));
        assert!(heard.text.is_empty() && heard.pcm().all(|sample| sample == 0.0));
    }
    assert_same(&board.leave(1), &neighbours_call, "the neighbour");
    assert_same(
        &board.whole_call(0, &neighbour, FRAMES),
        &neighbours_call,
        "the next holder",
    );
}
