//! Activations, elementwise.

/// `y = silu(a) * b`, where each vector of `ab` holds `a` and then `b`: `ab` is `[n, 2h]`, `y` is `[n, h]`.
///
/// `h` is the size of a half, so the call needs it: it is `hidden`.
///
/// # Panics
/// When the sizes do not fit.
pub fn silu_gate(ab: &[f32], hidden: usize, y: &mut [f32]) {
    assert!(ab.len() == 2 * y.len() && y.len().is_multiple_of(hidden.max(1)));
    for (ab, y) in ab.chunks_exact(2 * hidden).zip(y.chunks_exact_mut(hidden)) {
        let (a, b) = ab.split_at(hidden);
        for ((y, a), b) in y.iter_mut().zip(a).zip(b) {
            *y = a / (1.0 + (-a).exp()) * b;
        }
    }
}

/// `x = x / 2 * (1 + erf(x / sqrt(2)))`, the exact form.
pub fn gelu_erf(x: &mut [f32]) {
    for x in x {
        // Abramowitz and Stegun 7.1.26, good to 1.5e-7 in f64.
        let z = f64::from(*x) / std::f64::consts::SQRT_2;
        let t = 1.0 / (1.0 + 0.327_591_1 * z.abs());
        let poly =
            ((((1.061_405_429 * t - 1.453_152_027) * t) + 1.421_413_741) * t - 0.284_496_736) * t
                + 0.254_829_592;
        let erf = (1.0 - poly * t * (-z * z).exp()).copysign(z);
        *x = (f64::from(*x) / 2.0 * (1.0 + erf)) as f32;
    }
}

/// `x = x > 0 ? x : exp(x) - 1`.
pub fn elu(x: &mut [f32]) {
    for x in x {
        if *x < 0.0 {
            *x = x.exp_m1();
        }
    }
}
