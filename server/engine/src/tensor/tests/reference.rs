//! Every recorded topic through tensors.

use std::path::Path;

use candle_core::Device;

use crate::backend::KvDtype;
use crate::kernels::Dtype;
use crate::tensor::TensorBackend;
use crate::verify::verify;

#[test]
fn every_recorded_topic_is_met_in_f32_and_in_bf16() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny2");
    for (dtype, kv_dtype) in [(Dtype::F32, KvDtype::F32), (Dtype::Bf16, KvDtype::Bf16)] {
        let mut make = || TensorBackend::new(Device::Cpu, dtype, kv_dtype);
        let report =
            verify(&dir, dtype, &mut make, &mut |_| ()).expect("everything can be compared");
        let failed: Vec<_> = report
            .checks
            .iter()
            .filter(|check| !check.passed())
            .collect();
        assert!(report.passed(), "{dtype:?}: {failed:#?}");
    }
}
