//! Reads the recorded reference.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use engine::weights::Checkpoint;
use safetensors::SafeTensors;

/// The recorded checkpoint and its outputs.
pub const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tiny2");

pub fn checkpoint_folder() -> PathBuf {
    Path::new(FIXTURE).join("checkpoint")
}

pub fn checkpoint() -> Checkpoint {
    Checkpoint::open(&checkpoint_folder()).expect("the fixture is a whole checkpoint")
}

/// A copy of the checkpoint that a test may break.
pub fn copied_checkpoint() -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    fs::create_dir(copy.path().join("voices")).unwrap();
    for folder in ["", "voices"] {
        for entry in fs::read_dir(checkpoint_folder().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let target = copy.path().join(folder).join(path.file_name().unwrap());
                fs::write(target, fs::read(&path).unwrap()).unwrap();
            }
        }
    }
    copy
}

/// One recorded topic.
pub struct Golden {
    bytes: Vec<u8>,
    pub metadata: HashMap<String, String>,
}

impl Golden {
    pub fn read(topic: &str) -> Self {
        let path = Path::new(FIXTURE).join(format!("goldens/{topic}.safetensors"));
        let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        let metadata = header.metadata().clone().unwrap_or_default();
        Self { bytes, metadata }
    }

    /// Rows of an integer tensor; one of a single axis is one row.
    pub fn integers(&self, name: &str) -> Vec<Vec<i64>> {
        self.rows(name, |chunk| i64::from_le_bytes(*chunk))
    }

    pub fn floats(&self, name: &str) -> Vec<Vec<f32>> {
        self.rows(name, |chunk| f32::from_le_bytes(*chunk))
    }

    fn rows<const N: usize, T: Clone>(
        &self,
        name: &str,
        value: impl Fn(&[u8; N]) -> T,
    ) -> Vec<Vec<T>> {
        let tensors = SafeTensors::deserialize(&self.bytes).unwrap();
        let tensor = tensors
            .tensor(name)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let width = *tensor.shape().last().unwrap();
        let values: Vec<T> = tensor.data().as_chunks::<N>().0.iter().map(value).collect();
        assert_eq!(values.len() * N, tensor.data().len());
        values.chunks(width).map(<[T]>::to_vec).collect()
    }
}
