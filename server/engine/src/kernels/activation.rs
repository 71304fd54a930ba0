//! Activations, elementwise.

#![allow(unsafe_code)]

use super::functions::{erf, exp, exp_m1};
use super::lanes::{LANES, Lanes, Level, kernel};
use super::pool::Pool;

/// `y = silu(a) * b`, where each vector of `ab` holds `a` and then `b`, of `hidden` elements each: `ab` is
/// `[n, 2 * hidden]`, `y` is `[n, hidden]`.
///
/// # Panics
/// When the sizes do not fit.
pub fn silu_gate(pool: &Pool, ab: &[f32], hidden: usize, y: &mut [f32]) {
    let hidden = hidden.max(1);
    let fits = ab.len() == 2 * y.len() && y.len().is_multiple_of(hidden);
    assert!(fits, "ab must be [n, 2 * hidden], y [n, hidden]");
    pool.pieces(y, LANES, &|start, mut y| {
        let mut at = start;
        while !y.is_empty() {
            let (vector, column) = (at / hidden, at % hidden);
            let (now, later) = y.split_at_mut(y.len().min(hidden - column));
            let from = vector * 2 * hidden + column;
            let (a, b) = (&ab[from..][..now.len()], &ab[from + hidden..][..now.len()]);
            // SAFETY: the level is available, all three have one length.
            unsafe { silu_gate_one(Level::best(), a, b, now) }
            at += now.len();
            y = later;
        }
    });
}

/// `x = x / 2 * (1 + erf(x / sqrt(2)))`, the exact form.
pub fn gelu_erf(pool: &Pool, x: &mut [f32]) {
    // SAFETY: the level is available.
    pool.pieces(x, LANES, &|_, x| unsafe { gelu_all(Level::best(), x) });
}

/// `x = x > 0 ? x : exp(x) - 1`.
pub fn elu(pool: &Pool, x: &mut [f32]) {
    // SAFETY: the level is available.
    pool.pieces(x, LANES, &|_, x| unsafe { elu_all(Level::best(), x) });
}

kernel! { fn silu_gate_one = silu_gate_lanes(a: &[f32], b: &[f32], y: &mut [f32]) }
kernel! { fn gelu_all = map::<Gelu>(x: &mut [f32]) }
kernel! { fn elu_all = map::<Elu>(x: &mut [f32]) }

/// A function of one number, on lanes.
trait Function {
    /// # Safety
    /// As for [`Lanes`].
    unsafe fn of<L: Lanes>(x: L::F) -> L::F;
}

struct Gelu;

impl Function for Gelu {
    #[inline(always)]
    unsafe fn of<L: Lanes>(x: L::F) -> L::F {
        // SAFETY: the caller's promise.
        unsafe {
            let erf = erf::<L>(L::mul(x, L::splat(std::f32::consts::FRAC_1_SQRT_2)));
            L::mul(L::mul(x, L::splat(0.5)), L::add(L::splat(1.0), erf))
        }
    }
}

struct Elu;

impl Function for Elu {
    #[inline(always)]
    unsafe fn of<L: Lanes>(x: L::F) -> L::F {
        // SAFETY: the caller's promise.
        unsafe {
            // A sum of both branches, one of which is 0: a choice would be compiled to masked stores, which are
            // slow on some processors. In this order a lane that is not a number stays one.
            let zero = L::splat(0.0);
            L::add(L::max(zero, x), exp_m1::<L>(L::min(zero, x)))
        }
    }
}

/// # Safety
/// As for [`Lanes`].
#[inline(always)]
unsafe fn map<L: Lanes, M: Function>(x: &mut [f32]) {
    let mut chunks = x.chunks_exact_mut(LANES);
    for chunk in &mut chunks {
        // SAFETY: a chunk is a whole register; the rest is the caller's promise.
        unsafe { L::store(chunk.as_mut_ptr(), M::of::<L>(L::load(chunk.as_ptr()))) }
    }
    let rest = chunks.into_remainder();
    let mut padded = [0.0f32; LANES];
    padded[..rest.len()].copy_from_slice(rest);
    // SAFETY: as above.
    unsafe { L::store(padded.as_mut_ptr(), M::of::<L>(L::load(padded.as_ptr()))) }
    rest.copy_from_slice(&padded[..rest.len()]);
}

/// # Safety
/// As for [`Lanes`]; the three slices have one length.
#[inline(always)]
unsafe fn silu_gate_lanes<L: Lanes>(a: &[f32], b: &[f32], y: &mut [f32]) {
    let whole = y.len() / LANES * LANES;
    // SAFETY: every pointer has a whole register behind it; the rest is the caller's promise.
    unsafe {
        for at in (0..whole).step_by(LANES) {
            let gated = silu_times::<L>(L::load(a.as_ptr().add(at)), L::load(b.as_ptr().add(at)));
            L::store(y.as_mut_ptr().add(at), gated);
        }
        let rest = y.len() - whole;
        let (mut tail_a, mut tail_b) = ([0.0f32; LANES], [0.0f32; LANES]);
        tail_a[..rest].copy_from_slice(&a[whole..]);
        tail_b[..rest].copy_from_slice(&b[whole..]);
        let gated = silu_times::<L>(L::load(tail_a.as_ptr()), L::load(tail_b.as_ptr()));
        L::store(tail_a.as_mut_ptr(), gated);
        y[whole..].copy_from_slice(&tail_a[..rest]);
    }
}

/// # Safety
/// As for [`Lanes`].
#[inline(always)]
unsafe fn silu_times<L: Lanes>(a: L::F, b: L::F) -> L::F {
    // SAFETY: the caller's promise.
    unsafe {
        let one = L::splat(1.0);
        let silu = L::div(a, L::add(one, exp::<L>(L::sub(L::splat(0.0), a))));
        L::mul(silu, b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `erf` in double precision: its series, or the continued fraction of its complement.
    fn erf_f64(x: f64) -> f64 {
        if x.abs() < 3.0 {
            let (mut term, mut total) = (x, x);
            for n in 1..200 {
                term *= -x * x / f64::from(n);
                total += term / f64::from(2 * n + 1);
            }
            return total * 2.0 / std::f64::consts::PI.sqrt();
        }
        let mut fraction = 0.0;
        for n in (1..100).rev() {
            fraction = f64::from(n) / 2.0 / (x.abs() + fraction);
        }
        let complement = (-x * x).exp() / std::f64::consts::PI.sqrt() / (x.abs() + fraction);
        (1.0 - complement).copysign(x)
    }

    fn inputs() -> Vec<f32> {
        let dense = (-12_000..12_000).map(|i| i as f32 / 1000.0);
        let special = [0.0, -0.0, 1e-30, -1e-30, -1e-5, 100.0, -100.0, 1e30, -1e30];
        dense.chain(special).collect()
    }

    /// Runs `f` on every level, with lengths that leave a rest, and checks the error against `exact`.
    fn check(
        name: &str,
        f: impl Fn(Level, &mut [f32]),
        exact: impl Fn(f64) -> f64,
        tolerance: impl Fn(f64) -> f64,
    ) {
        let mut first: Option<Vec<u32>> = None;
        for level in Level::available() {
            let mut y = inputs();
            f(level, &mut y);
            for (x, y) in inputs().iter().zip(&y) {
                let exact = exact(f64::from(*x));
                let error = (f64::from(*y) - exact).abs();
                assert!(
                    error <= tolerance(exact),
                    "{name} {level:?}({x}) = {y}, not {exact}"
                );
            }
            let bits: Vec<u32> = y.iter().map(|y| y.to_bits()).collect();
            assert_eq!(first.get_or_insert(bits.clone()), &bits, "{level:?}");
            for len in 0..20 {
                let mut short = inputs()[..len].to_vec();
                f(level, &mut short);
                assert_eq!(short, y[..len], "{name} {level:?} of {len}");
            }
        }
    }

    #[test]
    fn elu_is_the_exact_function_to_seven_digits() {
        // SAFETY: the levels are available.
        let f = |level, x: &mut [f32]| unsafe { elu_all(level, x) };
        let exact = |x: f64| if x > 0.0 { x } else { x.exp_m1() };
        check("elu", f, exact, |y| 1e-7 * y.abs());
    }

    #[test]
    fn gelu_is_the_exact_function_to_seven_digits() {
        // SAFETY: the levels are available.
        let f = |level, x: &mut [f32]| unsafe { gelu_all(level, x) };
        let exact = |x: f64| x / 2.0 * (1.0 + erf_f64(x * std::f64::consts::FRAC_1_SQRT_2));
        check("gelu", f, exact, |y| 1.5e-7 * y.abs() + 2e-7);
    }

    #[test]
    fn the_gate_is_the_exact_function_to_seven_digits() {
        let f = |level, x: &mut [f32]| {
            let (a, b) = (x.to_vec(), vec![1.0; x.len()]);
            // SAFETY: the level is available, all three have one length.
            unsafe { silu_gate_one(level, &a, &b, x) }
        };
        check(
            "silu",
            f,
            |x| x / (1.0 + (-x).exp()),
            |y| 4e-7 * y.abs() + 1e-7,
        );
    }

    #[test]
    fn the_first_half_is_the_gate_and_the_second_the_value() {
        let mut y = [0.0; 4];
        silu_gate(
            &Pool::new(1),
            &[0.0, 50.0, 3.0, 4.0, 60.0, 0.0, -1.0, 5.0],
            2,
            &mut y,
        );
        assert_eq!(y, [0.0, 200.0, -60.0, 0.0]);
    }

    #[test]
    fn what_is_not_a_number_stays_so_and_spoils_no_neighbour() {
        let pool = Pool::new(1);
        let mut x = [1.0, f32::NAN, -1.0, 0.5];
        gelu_erf(&pool, &mut x);
        assert!(x[1].is_nan() && [x[0], x[2], x[3]].iter().all(|x| x.is_finite()));
        elu(&pool, &mut x);
        assert!(x[1].is_nan() && [x[0], x[2], x[3]].iter().all(|x| x.is_finite()));
    }
}
