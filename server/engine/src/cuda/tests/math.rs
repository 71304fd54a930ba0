//! Products, norms, activations, lookups, quantization.

use super::{HALF, Numbers, SAME, assert_close, bits, down, gpu, half_gpu, native, up};
use crate::backend::{Backend, Data};

/// Every elementwise operation, norm and product on the same numbers, one after the other.
fn all_operations<B: Backend>(b: &mut B) -> Vec<(&'static str, Vec<f32>)> {
    let (n, width, out) = (3, 12, 10);
    let mut numbers = Numbers(7);
    let x = numbers.take(n * width);
    let mut x = up(b, &x, width);
    let weight = numbers.take(out * width);
    let w = b
        .weight(out, width, Data::F32((&weight[..]).into()))
        .expect("weight");
    let scale = b.vector(&numbers.take(out)).expect("vector");
    let alpha = b.vector(&numbers.take(width)).expect("vector");
    let bias = b.vector(&numbers.take(width)).expect("vector");
    let mut found = Vec::new();
    let mut y = B::Buf::default();
    let mut note = |b: &mut B, what, buf: &B::Buf| found.push((what, down(b, buf)));

    b.linear(&w, &x, &mut y).expect("linear");
    note(b, "linear", &y);
    b.linear_add(&w, &x, Some(&scale), &mut y)
        .expect("linear_add");
    note(b, "scaled linear_add", &y);
    b.linear_add(&w, &x, None, &mut y).expect("linear_add");
    note(b, "linear_add", &y);
    b.rms_norm(&x, &alpha, 1e-8, &mut y).expect("rms_norm");
    note(b, "rms_norm", &y);
    b.layer_norm(&x, &alpha, &bias, 1e-5, &mut y)
        .expect("layer_norm");
    note(b, "layer_norm", &y);
    b.silu_gate(&x, width / 2, &mut y).expect("silu_gate");
    note(b, "silu_gate", &y);
    b.copy(&x, &mut y).expect("copy");
    b.gelu(&mut y).expect("gelu");
    note(b, "gelu", &y);
    b.add(&x, &mut y).expect("add");
    note(b, "add", &y);
    b.elu(&mut x).expect("elu");
    note(b, "elu", &x);
    found
}

#[test]
fn every_plain_operation_gives_the_cpu_kernels_numbers() {
    let expected = all_operations(&mut native());
    for ((what, found), (_, expected)) in all_operations(&mut gpu()).iter().zip(&expected) {
        assert_close(found, expected, SAME, what);
    }
    for ((what, found), (_, expected)) in all_operations(&mut half_gpu()).iter().zip(&expected) {
        assert_close(found, expected, 12.0 * HALF, what);
    }
}

#[test]
fn bf16_bits_of_a_file_are_taken_as_they_are() {
    let bits: Vec<u16> = Numbers(3)
        .take(8)
        .iter()
        .map(|v| (v.to_bits() >> 16) as u16)
        .collect();
    let exact = Data::Bf16((&bits[..]).into()).to_f32().into_owned();
    for mut b in [gpu(), half_gpu()] {
        let table = b
            .table(2, 4, Data::Bf16((&bits[..]).into()))
            .expect("table");
        let mut y = Default::default();
        b.embed_sum(&[&table], &[1, 0], &mut y).expect("embed_sum");
        let found = down(&mut b, &y);
        assert_eq!((&found[..4], &found[4..]), (&exact[4..], &exact[..4]));
        // A product with the identity gives the matrix.
        let w = b
            .weight(2, 4, Data::Bf16((&bits[..]).into()))
            .expect("weight");
        let identity: Vec<f32> = (0..16)
            .map(|at| if at % 5 == 0 { 1.0 } else { 0.0 })
            .collect();
        let x = up(&mut b, &identity, 4);
        b.linear(&w, &x, &mut y).expect("linear");
        let found = down(&mut b, &y);
        let transposed: Vec<f32> = (0..8).map(|at| exact[at % 2 * 4 + at / 2]).collect();
        assert_eq!(found, transposed);
    }
}

fn sums<B: Backend>(b: &mut B) -> Vec<f32> {
    let mut numbers = Numbers(11);
    let tables: Vec<B::Table> = [5, 4, 7]
        .map(|rows| {
            let data = numbers.take(rows * 6);
            b.table(rows, 6, Data::F32(data.into())).expect("table")
        })
        .into();
    let tables: Vec<&B::Table> = tables.iter().collect();
    let mut y = B::Buf::default();
    let ids = [0, 3, 6, 4, -1, 2, -1, -1, -1, -1, 0, -1];
    b.embed_sum(&tables, &ids, &mut y).expect("embed_sum");
    b.embed_add(tables[0], &[2, -1, 1, 0], &mut y)
        .expect("embed_add");
    down(b, &y)
}

#[test]
fn lookups_are_summed_in_order_and_minus_one_adds_nothing_to_the_bit() {
    assert_eq!(bits(&sums(&mut gpu())), bits(&sums(&mut native())));
}

#[test]
fn an_id_past_the_table_is_an_error_and_not_another_entry() {
    let mut b = gpu();
    let table = b
        .table(3, 2, Data::F32(vec![1.0; 6].into()))
        .expect("table");
    for id in [3, 4, i32::MAX] {
        assert!(
            b.embed_sum(&[&table], &[id], &mut Default::default())
                .is_err(),
            "{id}"
        );
    }
}

fn quantized<B: Backend>(
    b: &mut B,
    entries: &[f32],
    dim: usize,
    residual: &[f32],
) -> (Vec<u32>, Vec<f32>) {
    let book = b
        .codebook(entries.len() / dim, dim, entries)
        .expect("codebook");
    let mut x = up(b, residual, dim);
    let mut all = Vec::new();
    for _ in 0..2 {
        let mut codes = Vec::new();
        b.quantize(&book, &mut x, &mut codes).expect("quantize");
        all.extend(codes);
    }
    (all, down(b, &x))
}

#[test]
fn the_nearest_entry_is_taken_off_layer_by_layer() {
    let mut numbers = Numbers(5);
    let (entries, residual) = (numbers.take(40 * 6), numbers.take(9 * 6));
    let (expected_codes, expected) = quantized(&mut native(), &entries, 6, &residual);
    let (codes, rest) = quantized(&mut gpu(), &entries, 6, &residual);
    assert_eq!(codes, expected_codes);
    assert_close(&rest, &expected, SAME, "residual");
}

#[test]
fn a_tie_goes_to_the_lowest_index_and_a_nan_stays_in_range() {
    // Entries 1, 2 and 2,000 are equal and nearest.
    let mut entries = vec![9.0; 2_048 * 2];
    for entry in [1, 2, 2_000] {
        entries[2 * entry..][..2].fill(0.5);
    }
    let (codes, rest) = quantized(&mut gpu(), &entries, 2, &[0.5, 0.5, f32::NAN, 0.0]);
    assert_eq!(codes[..2], [1, 0]);
    assert!(rest[2].is_nan(), "a failure stays visible");
}
