//! The built-in model is a whole checkpoint.

use engine::config::expected_tensors;
use engine::prompt::{Prompt, live_positions_max};
use engine::weights::Checkpoint;

const BEHAVIOUR: &[u8] = include_bytes!("../../demo/behaviour.json");

#[test]
fn the_built_in_model_loads_and_takes_every_persona_and_voice() {
    let checkpoint = Checkpoint::demo().unwrap();
    let config = checkpoint.config();
    let names: Vec<&str> = checkpoint.voices().names().collect();
    assert_eq!(names, ["NATF0", "NATM0"]);
    assert!(checkpoint.voices().broken().is_empty());
    let behaviour: serde_json::Value = serde_json::from_slice(BEHAVIOUR).unwrap();
    let personas = behaviour["personas"].as_object().unwrap();
    assert_eq!(personas.len(), 4);
    for (persona, lines) in personas {
        for voice in &names {
            let text = lines["prompt"].as_str().unwrap();
            let prompt = Prompt::new(&checkpoint, Some(voice), text, live_positions_max(config));
            let prompt = prompt.unwrap_or_else(|error| panic!("{persona}: {error}"));
            let said: String = prompt
                .text_ids
                .iter()
                .map(|&id| checkpoint.tokenizer().name(id).unwrap())
                .collect();
            assert_eq!(
                said.trim(),
                format!("<system> {text} <system>"),
                "{persona}"
            );
        }
    }
}

#[test]
fn every_tensor_of_the_built_in_model_can_be_read() {
    let checkpoint = Checkpoint::demo().unwrap();
    let (lm, codec) = expected_tensors(checkpoint.config());
    for spec in &lm {
        let tensor = checkpoint.lm(&spec.name).unwrap();
        let values = tensor.to_f32();
        assert_eq!(values.len(), spec.elements(), "{}", spec.name);
        assert!(
            values.iter().all(|value| value.is_finite()),
            "{}",
            spec.name
        );
        let bits = tensor.bf16_bits().unwrap();
        assert_eq!(f32::from_bits(u32::from(bits[0]) << 16), values[0]);
    }
    for spec in &codec {
        let tensor = checkpoint.codec(&spec.name).unwrap();
        assert_eq!(tensor.shape, spec.shape);
        assert_eq!(tensor.f32_values().as_ref(), tensor.to_f32());
    }
}
