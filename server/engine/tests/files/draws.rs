//! The distribution that temperature and top-k leave, against the recorded one.

use engine::sampling::probabilities;

use crate::support::Golden;

/// The recorded probabilities were rounded to f32 once and summed in another order.
const TOLERANCE: f32 = 1e-6;

#[test]
fn recorded_logits_leave_the_recorded_probabilities() {
    let golden = Golden::read("sampling");
    for name in ["audio", "text", "cold", "all"] {
        let temperature = golden.floats(&format!("{name}.temperature"))[0][0];
        let top_k = golden.integers(&format!("{name}.top_k"))[0][0] as u32;
        let logits = golden.floats(&format!("{name}.logits"));
        let recorded = golden.floats(&format!("{name}.probabilities"));
        for (logits, recorded) in logits.iter().zip(&recorded) {
            let ours = probabilities(logits, temperature, top_k).unwrap();
            for (token, (ours, recorded)) in ours.iter().zip(recorded).enumerate() {
                assert!((ours - recorded).abs() <= TOLERANCE, "{name} token {token}");
                assert_eq!(*ours == 0.0, *recorded == 0.0, "{name} token {token}");
            }
        }
    }
}
