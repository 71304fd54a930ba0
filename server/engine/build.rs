//! Compiles the GPU kernels: for the host always, as C; for GPUs with the feature `cuda`, by NVIDIA's compiler.

use std::path::Path;

const KERNELS: &str = "src/cuda/kernels";

fn main() {
    println!("cargo:rerun-if-changed={KERNELS}");
    for (order, flag) in [("forward_", None), ("backward_", Some("BACKWARD"))] {
        let mut build = cc::Build::new();
        build
            .include(KERNELS)
            .std("c11")
            // Never fused, and fast even in debug builds: the tests run whole conversations through them.
            .opt_level(2)
            .flag("-ffp-contract=off")
            .flag("-Wno-unused-parameter")
            .define("ORDER", order);
        if let Some(flag) = flag {
            build.define(flag, None);
        }
        build
            .file(Path::new(KERNELS).join("host.c"))
            .compile(&format!("{order}kernels"));
    }
}
