//! The published dimensions, and the tensors that follow from them.

use std::collections::BTreeSet;
use std::io::Read;

use engine::config::{ModelConfig, TensorSpec, expected_tensors};

const CONFIG: &[u8] = include_bytes!("../data/published_config.json");
const TENSORS: &[u8] = include_bytes!("../data/published_tensors.txt.gz");

fn lines(file: &str, specs: &[TensorSpec]) -> BTreeSet<String> {
    let line = |spec: &TensorSpec| {
        let shape: Vec<String> = spec.shape.iter().map(usize::to_string).collect();
        let (name, dtype) = (&spec.name, spec.dtype.name());
        format!("{file} {name} {dtype} {}", shape.join(","))
    };
    specs.iter().map(line).collect()
}

#[test]
fn the_published_dimensions_give_the_published_list_of_tensors() {
    let config = ModelConfig::published();
    config.check().unwrap();
    let (lm, codec) = expected_tensors(&config);
    assert_eq!((lm.len(), codec.len()), (475, 318));
    let parameters = |specs: &[TensorSpec]| specs.iter().map(TensorSpec::elements).sum::<usize>();
    assert_eq!(parameters(&lm), 8_371_408_896);
    assert_eq!(parameters(&codec), 96_151_393);

    let mut published = String::new();
    let mut decoder = flate2::read::GzDecoder::new(TENSORS);
    decoder.read_to_string(&mut published).unwrap();
    let published: BTreeSet<String> = published.lines().map(String::from).collect();
    let mut ours = lines(&config.files.lm, &lm);
    ours.extend(lines(&config.files.mimi, &codec));
    assert_eq!(ours, published);
}

#[test]
fn a_config_without_our_schema_has_the_published_dimensions() {
    let published = ModelConfig::published();
    for text in ["{}", r#"{"model_type": "personaplex"}"#, r#"{"schema": 3}"#] {
        let config = ModelConfig::from_json(text.as_bytes()).unwrap();
        assert_eq!(config, published, "{text}");
    }
    assert_eq!(ModelConfig::from_json(CONFIG).unwrap(), published);
}

#[test]
fn a_config_that_cannot_work_is_refused_with_the_field_that_is_wrong() {
    let cases = [
        (
            "/lm/dim",
            "null",
            "lm.dim: expected a whole number, found null",
        ),
        (
            "/lm/dim",
            "4095",
            "lm.num_heads is 32, it must be a divisor of lm.dim = 4095",
        ),
        (
            "/lm/num_heads",
            "4096",
            "lm.num_heads is 4096, it must be such that",
        ),
        ("/lm/num_heads", "0", "lm.num_heads is 0"),
        (
            "/lm/num_layers",
            "4000000000",
            "lm.num_layers is 4000000000",
        ),
        (
            "/lm/context",
            "-1",
            "lm.context: expected a whole number, found -1",
        ),
        (
            "/lm/delays",
            "[0, 0]",
            "lm.delays is a list of 2, it must be a list of 1 + lm.audio_streams = 17",
        ),
        (
            "/lm/delays/3",
            "2",
            "lm.delays[3] is 2, it must be from 0 to 1",
        ),
        ("/lm/delays/0", "1", "lm.delays[0] is 1, it must be 0"),
        ("/lm/norm_eps", "0", "lm.norm_eps is 0"),
        ("/lm/audio_streams", "15", "lm.audio_streams is 15"),
        (
            "/depformer/steps",
            "7",
            "depformer.steps is 7, it must be from 8 to 16",
        ),
        (
            "/mimi/frame_size",
            "1919",
            "mimi.frame_size is 1919, it must be 1920",
        ),
        ("/mimi/frame_rate", "25.0", "mimi.frame_rate is 25"),
        (
            "/mimi/seanet/ratios",
            "[8, 6, 5, 5]",
            "mimi.seanet.ratios is [8, 6, 5, 5], it must be factors of",
        ),
        (
            "/mimi/transformer/dim",
            "256",
            "mimi.transformer.dim is 256, it must be 512",
        ),
        (
            "/mimi/quantizer/bins",
            "1024",
            "mimi.quantizer.bins is 1024, it must be 2048",
        ),
        ("/mimi/quantizer/n_q", "7", "mimi.quantizer.n_q is 7"),
        (
            "/text/silent_ids",
            "[32000]",
            "text.silent_ids is 32000, it must be below lm.text_card = 32000",
        ),
        (
            "/prompt/sine_tokens",
            "[1, 2]",
            "length of prompt.sine_tokens is 2, it must be 8",
        ),
        (
            "/prompt/silence_tokens/1",
            "2048",
            "prompt.silence_tokens is 2048",
        ),
        ("/prompt/silence_frames", "0", "prompt.silence_frames is 0"),
        ("/sampling/text_top_k", "0", "sampling.text_top_k is 0"),
        (
            "/sampling/text_temperature",
            "-0.1",
            "sampling.text_temperature is -0.1",
        ),
        (
            "/files/lm",
            "\"../model.safetensors\"",
            "files.lm is \"../model.safetensors\"",
        ),
        ("/files/voices", "\"..\"", "files.voices is \"..\""),
        ("/mimi", "3", "mimi: expected an object, found 3"),
    ];
    for (pointer, value, message) in cases {
        let mut config: serde_json::Value = serde_json::from_slice(CONFIG).unwrap();
        *config.pointer_mut(pointer).unwrap() = serde_json::from_str(value).unwrap();
        let error = ModelConfig::from_json(config.to_string().as_bytes()).unwrap_err();
        let line = error.to_string();
        assert!(line.starts_with(message), "{pointer} = {value}: {line}");
        assert!(!line.contains('\n'));
    }
}

#[test]
fn a_config_that_is_not_json_is_refused() {
    let error = ModelConfig::from_json(b"{\"schema\": ").unwrap_err();
    assert!(error.to_string().starts_with("not JSON: "));
}
