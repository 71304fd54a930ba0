//! Compiles the GPU kernels: for the host always, as C; for GPUs with the feature `cuda`, by NVIDIA's compiler.

use std::env;
use std::path::Path;
use std::process::{Command, exit};

const KERNELS: &str = "src/cuda/kernels";
/// Architectures that kernels are compiled for; later ones compile the PTX when they load it.
const ARCHITECTURES: [&str; 6] = ["80", "86", "89", "90a", "100a", "120a"];
const PTX_FOR: &str = "80";

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
    if env::var_os("CARGO_FEATURE_CUDA").is_some() {
        fatbin();
    }
}

/// One file with the kernels of all architectures. `NVCC` names the compiler; empty: none, and what is built can only be
/// checked, not run on a GPU.
fn fatbin() {
    println!("cargo:rerun-if-env-changed=NVCC");
    let out = env::var_os("OUT_DIR").expect("cargo sets it");
    let out = Path::new(&out).join("kernels.fatbin");
    let nvcc = env::var("NVCC").unwrap_or_else(|_| "nvcc".to_owned());
    if nvcc.is_empty() {
        std::fs::write(out, []).expect("the build's folder can be written");
        return;
    }
    let mut command = Command::new(&nvcc);
    command.args(["-std=c++17", "-O3", "--threads", "0", "-fatbin", "-o"]);
    command.arg(&out);
    for architecture in ARCHITECTURES {
        let code = format!("arch=compute_{architecture},code=sm_{architecture}");
        command.args(["-gencode", &code]);
    }
    let ptx = format!("arch=compute_{PTX_FOR},code=compute_{PTX_FOR}");
    command.args(["-gencode", &ptx]);
    command.arg(Path::new(KERNELS).join("all.cu"));
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => {
            eprintln!("{nvcc} did not compile the kernels: {status}");
            exit(1);
        }
        Err(error) => {
            eprintln!(
                "the feature cuda needs NVIDIA's compiler, and {nvcc} cannot be run: {error}\n\
                 .ci/setup-cuda -- cargo build --release --features cuda    brings it (104 MB)\n\
                 NVCC= cargo check --features cuda                          only checks types"
            );
            exit(1);
        }
    }
}
