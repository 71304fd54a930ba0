//! Wrong, cut-off and incomplete model folders: one line that names file, tensor, expected and found shape.

use std::fs;
use std::path::Path;

use engine::config::{ModelConfig, StorageDtype, expected_tensors};
use engine::weights::{Checkpoint, Tensors};
use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensors, serialize};

use crate::support::{checkpoint_folder, copied_checkpoint};

const LM: &str = "model.safetensors";
const CODEC: &str = "tokenizer-e351c8d8-checkpoint125.safetensors";
const TOKENIZER: &str = "tokenizer_spm_32k_3.model";

/// One tensor of a file that is about to be written again.
struct Owned {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

fn rewrite(file: &Path, change: impl FnOnce(&mut Vec<Owned>)) {
    let bytes = fs::read(file).unwrap();
    let mut tensors: Vec<Owned> = SafeTensors::deserialize(&bytes)
        .unwrap()
        .iter()
        .map(|(name, view)| Owned {
            name: name.into(),
            dtype: view.dtype(),
            shape: view.shape().to_vec(),
            bytes: view.data().to_vec(),
        })
        .collect();
    change(&mut tensors);
    let views = tensors.iter().map(|tensor| {
        let view = TensorView::new(tensor.dtype, tensor.shape.clone(), &tensor.bytes).unwrap();
        (tensor.name.as_str(), view)
    });
    fs::write(file, serialize(views, None).unwrap()).unwrap();
}

fn find<'a>(tensors: &'a mut [Owned], name: &str) -> &'a mut Owned {
    let found = tensors.iter_mut().find(|tensor| tensor.name == name);
    found.unwrap()
}

#[test]
fn the_recorded_folder_opens() {
    let checkpoint = Checkpoint::open(&checkpoint_folder()).unwrap();
    let (lm, codec) = expected_tensors(checkpoint.config());
    for spec in &lm {
        assert_eq!(checkpoint.lm(&spec.name).unwrap().dtype, StorageDtype::Bf16);
    }
    for spec in &codec {
        assert_eq!(
            checkpoint.codec(&spec.name).unwrap().dtype,
            StorageDtype::F32
        );
    }
    assert!(checkpoint.lm("transformer.layers.99.norm1.alpha").is_err());
}

#[test]
fn a_broken_folder_is_refused_in_one_line_that_says_what_is_wrong() {
    type Break = fn(&Path);
    let cases: [(&str, Break, &str); 15] = [
        (
            "no weights",
            |at| fs::remove_file(at.join(LM)).unwrap(),
            "model.safetensors: No such file",
        ),
        (
            "no codec",
            |at| fs::remove_file(at.join(CODEC)).unwrap(),
            "checkpoint125.safetensors: No such file",
        ),
        (
            "no tokenizer",
            |at| fs::remove_file(at.join(TOKENIZER)).unwrap(),
            "32k_3.model: No such file",
        ),
        (
            "empty weights",
            |at| fs::write(at.join(LM), b"").unwrap(),
            "model.safetensors: is empty",
        ),
        (
            "a folder in place of weights",
            |at| {
                fs::remove_file(at.join(LM)).unwrap();
                fs::create_dir(at.join(LM)).unwrap();
            },
            "model.safetensors: is not a file",
        ),
        (
            "cut off in the numbers",
            |at| {
                let bytes = fs::read(at.join(CODEC)).unwrap();
                fs::write(at.join(CODEC), &bytes[..bytes.len() - 1]).unwrap();
            },
            "checkpoint125.safetensors: is cut off: it has ",
        ),
        (
            "cut off in the header",
            |at| {
                let bytes = fs::read(at.join(LM)).unwrap();
                fs::write(at.join(LM), &bytes[..100]).unwrap();
            },
            "is cut off or not a safetensors file: it has 100 bytes",
        ),
        (
            "an error page in place of weights",
            |at| fs::write(at.join(LM), b"<!doctype html>").unwrap(),
            "model.safetensors: is",
        ),
        (
            "a tensor less",
            |at| {
                rewrite(&at.join(LM), |tensors| {
                    tensors.retain(|tensor| tensor.name != "out_norm.alpha")
                })
            },
            "model.safetensors: tensor out_norm.alpha is missing, expected shape [1, 1, 48]",
        ),
        (
            "a tensor more",
            |at| {
                rewrite(&at.join(LM), |tensors| {
                    find(tensors, "emb.3.weight").name = "emb.16.weight".into()
                })
            },
            "model.safetensors: tensor emb.3.weight is missing, expected shape [191, 48]",
        ),
        (
            "one that does not belong",
            |at| {
                rewrite(&at.join(CODEC), |tensors| {
                    tensors.push(Owned {
                        name: "extra".into(),
                        dtype: Dtype::F32,
                        shape: vec![2, 3],
                        bytes: vec![0; 24],
                    })
                })
            },
            "checkpoint125.safetensors: tensor extra with shape [2, 3] is not part of the model, expected ",
        ),
        (
            "another shape",
            |at| {
                rewrite(&at.join(LM), |tensors| {
                    find(tensors, "emb.3.weight").shape.swap(0, 1)
                })
            },
            "model.safetensors: tensor emb.3.weight has shape [48, 191], expected [191, 48]",
        ),
        (
            "another type",
            |at| {
                rewrite(&at.join(LM), |tensors| {
                    find(tensors, "emb.3.weight").dtype = Dtype::I16
                })
            },
            "model.safetensors: tensor emb.3.weight is stored as I16, expected BF16 (or BF16, F16, F32)",
        ),
        (
            "another model's numbers",
            |at| fs::remove_file(at.join("config.json")).unwrap(),
            "model.safetensors: tensor text_emb.weight has shape [441, 48], expected [32001, 4096]",
        ),
        (
            "a broken configuration",
            |at| fs::write(at.join("config.json"), b"{").unwrap(),
            "config.json: not JSON",
        ),
    ];
    for (name, break_it, message) in cases {
        let copy = copied_checkpoint();
        Checkpoint::open(copy.path()).expect("the copy is whole");
        break_it(copy.path());
        let error = Checkpoint::open(copy.path()).expect_err(name).to_string();
        assert!(error.contains(message), "{name}: {error}");
        assert!(
            error.starts_with(copy.path().to_str().unwrap()),
            "{name}: {error}"
        );
        assert!(!error.contains('\n'), "{name}: {error}");
    }
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let error = Checkpoint::open(Path::new("no/such/folder")).unwrap_err();
    assert_eq!(error.to_string(), "no/such/folder: is not a folder");
}

#[test]
fn weights_may_be_stored_as_any_float() {
    let copy = copied_checkpoint();
    let before = Checkpoint::open(copy.path()).unwrap();
    let name = "transformer.layers.0.norm1.alpha";
    let numbers = before.lm(name).unwrap().to_f32();
    let digest = before.digest();
    drop(before);
    rewrite(&copy.path().join(LM), |tensors| {
        let tensor = find(tensors, name);
        tensor.dtype = Dtype::F32;
        tensor.bytes = numbers
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect();
    });
    let after = Checkpoint::open(copy.path()).unwrap();
    let tensor = after.lm(name).unwrap();
    assert_eq!(tensor.to_f32(), numbers);
    assert_eq!(tensor.bf16_bits(), None);
    assert_ne!(after.digest(), digest, "another file is another checkpoint");
}

#[test]
fn random_weights_have_every_shape_and_are_the_same_for_the_same_seed() {
    let config = Checkpoint::open(&checkpoint_folder())
        .unwrap()
        .config()
        .clone();
    let [one, again, other] =
        [1, 1, 2].map(|seed| Checkpoint::random(config.clone(), seed).unwrap());
    let (lm, codec) = expected_tensors(&config);
    for spec in &lm {
        let tensor = one.lm(&spec.name).unwrap();
        assert_eq!(tensor.shape, spec.shape);
        assert_eq!(tensor.to_f32().len(), spec.elements());
    }
    for spec in &codec {
        let numbers = one.codec(&spec.name).unwrap().to_f32();
        assert!(numbers.iter().all(|number| number.is_finite()));
    }
    let numbers = |checkpoint: &Checkpoint| checkpoint.lm("emb.0.weight").unwrap().to_f32();
    assert_eq!(numbers(&one), numbers(&again));
    assert_ne!(numbers(&one), numbers(&other));
    assert!(one.voices().is_empty());
}

#[test]
fn the_published_size_costs_no_memory_before_it_is_read() {
    let (lm, codec) = expected_tensors(&ModelConfig::published());
    assert_eq!(Tensors::random(lm, 1).bytes(), 16_742_817_792);
    assert_eq!(Tensors::random(codec, 1).bytes(), 384_605_572);
}
