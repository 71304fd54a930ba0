//! The natural logarithm in f32, written out so that every device gives the same bits.
//!
//! Only additions, subtractions and multiplications in a fixed order, each rounded on its own: a device version must not
//! fuse them. Source of the polynomial: Cephes `logf`.

const COEFFICIENTS: [f32; 9] = [
    7.037_683_6e-2,
    -1.151_461e-1,
    1.167_699_9e-1,
    -1.242_014_1e-1,
    1.424_932_3e-1,
    -1.666_805_8e-1,
    2.000_071_5e-1,
    -2.499_999_4e-1,
    3.333_333e-1,
];
/// ln 2 in two parts; the first times any exponent is exact.
const LN_2_HIGH: f32 = 355.0 / 512.0;
const LN_2_LOW: f32 = -2.121_944_4e-4;

/// ln `x` of a normal number `x > 0`, within 1e-7 of it, relative or absolute whichever is larger.
#[inline]
pub fn ln(x: f32) -> f32 {
    // x = m * 2^e with m from sqrt(1/2) to sqrt(2).
    let bits = x.to_bits();
    let exponent = (bits >> 23) as i32 - 126;
    let m = f32::from_bits((bits & 0x007f_ffff) | 0x3f00_0000);
    let low = m < std::f32::consts::FRAC_1_SQRT_2;
    let (m, exponent) = if low {
        (m + m, exponent - 1)
    } else {
        (m, exponent)
    };
    let f = m - 1.0;
    let z = f * f;
    let mut p = COEFFICIENTS[0];
    for coefficient in &COEFFICIENTS[1..] {
        p = p * f + coefficient;
    }
    let e = exponent as f32;
    let y = p * f * z + e * LN_2_LOW;
    let y = y - 0.5 * z;
    (f + y) + e * LN_2_HIGH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_those_of_double_precision() {
        let mut x = 1e-8_f32;
        while x < 20.0 {
            for x in [x, 1.0 - x, 1.0 + x] {
                if x > 0.0 {
                    let exact = f64::from(x).ln();
                    let error = (f64::from(ln(x)) - exact).abs();
                    assert!(error <= 1e-7 * exact.abs().max(1.0), "ln {x}");
                    let small = (f64::from(x) - 1.0).abs() < 0.1;
                    assert!(!small || error <= 2e-7 * exact.abs(), "ln {x} near 1");
                }
            }
            x *= 1.01;
        }
    }
}
