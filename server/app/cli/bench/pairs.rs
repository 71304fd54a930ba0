//! Which case is measured in which sizes and number formats.
//!
//! Lives here: what `lm` stands for, default presets, reasons why a pair cannot be.

use engine::kernels::Dtype as WeightDtype;
use engine::measure::{Network, Part};

use super::{Case, Preset};
use crate::config::values::Dtype;

/// A case and the sizes it is asked in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Name of the case.
    pub case: &'static str,
    /// Name of the sizes.
    pub preset: &'static str,
    part: Part,
    fits: bool,
}

/// Cases with their sizes, in the order they were asked for; neighbours that share a network stand together.
pub fn pairs(cases: &[Case], preset: Option<Preset>) -> Vec<Vec<Pair>> {
    let parts = cases.iter().flat_map(|case| match case {
        Case::MimiEncode => &[Part::MimiEncode][..],
        Case::MimiDecode => &[Part::MimiDecode],
        Case::Lm => &[Part::LmStep, Part::LmTemporal, Part::LmDepformer],
        Case::LmStep => &[Part::LmStep],
        Case::LmTemporal => &[Part::LmTemporal],
        Case::LmDepformer => &[Part::LmDepformer],
        Case::TemporalLayer => &[Part::TemporalLayer],
        Case::Depformer => &[Part::Depformer],
    });
    let mut groups: Vec<Vec<Pair>> = Vec::new();
    for &part in parts {
        let asked = preset.unwrap_or(own_preset(part));
        let pair = Pair {
            case: case_name(part),
            preset: preset_name(asked),
            part,
            fits: asked == own_preset(part),
        };
        match groups.last_mut() {
            Some(group) if group[0].part.network() == part.network() => group.push(pair),
            _ => groups.push(vec![pair]),
        }
    }
    groups
}

impl Pair {
    /// The part, and the number format that `dtype` comes to.
    ///
    /// # Errors
    /// Why that cannot be measured, in one line.
    pub fn part(&self, dtype: Dtype) -> Result<(Part, WeightDtype), String> {
        if !self.fits {
            let own = preset_name(own_preset(self.part));
            return Err(format!("{} has the sizes of preset {own} only", self.case));
        }
        let weights = match (self.part.network(), dtype) {
            (Network::Codec, Dtype::Auto | Dtype::F32) => WeightDtype::F32,
            (Network::Codec, _) => return Err("the codec computes in f32 only".into()),
            // As for a model that is served: what is small stays as it is.
            (Network::Mid, Dtype::Auto) | (_, Dtype::F32) => WeightDtype::F32,
            (_, Dtype::Auto | Dtype::Bf16) => WeightDtype::Bf16,
            (_, Dtype::Q8_0) => WeightDtype::Q8_0,
        };
        Ok((self.part, weights))
    }
}

/// The number format as it is printed: the one that is meant by `auto`, if the pair can be measured.
pub fn dtype_name(pair: &Pair, dtype: Dtype) -> &'static str {
    let settled = match pair.part(dtype) {
        Ok((_, WeightDtype::F32)) => Dtype::F32,
        Ok((_, WeightDtype::Bf16)) => Dtype::Bf16,
        Ok((_, WeightDtype::Q8_0)) => Dtype::Q8_0,
        Err(_) => dtype,
    };
    match settled {
        Dtype::Auto => "auto",
        Dtype::F32 => "f32",
        Dtype::Bf16 => "bf16",
        Dtype::Q8_0 => "q8_0",
    }
}

fn own_preset(part: Part) -> Preset {
    match part.network() {
        Network::Codec => Preset::Mimi,
        Network::Mid => Preset::Mid,
        Network::Layer | Network::Depformer => Preset::SevenB,
    }
}

fn preset_name(preset: Preset) -> &'static str {
    match preset {
        Preset::Mimi => "mimi",
        Preset::Mid => "mid",
        Preset::SevenB => "7b",
    }
}

fn case_name(part: Part) -> &'static str {
    match part {
        Part::MimiEncode => "mimi_encode",
        Part::MimiDecode => "mimi_decode",
        Part::LmStep => "lm_step",
        Part::LmTemporal => "lm_temporal",
        Part::LmDepformer => "lm_depformer",
        Part::TemporalLayer => "temporal_layer",
        Part::Depformer => "depformer",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(cases: &[Case], preset: Option<Preset>) -> Vec<Vec<(&'static str, &'static str)>> {
        let pairs = pairs(cases, preset);
        let name = |pair: &Pair| (pair.case, pair.preset);
        pairs
            .iter()
            .map(|group| group.iter().map(name).collect())
            .collect()
    }

    #[test]
    fn lm_stands_for_three_cases_and_neighbours_of_one_network_share_it() {
        let found = names(&[Case::MimiDecode, Case::Lm, Case::Depformer], None);
        let expected = vec![
            vec![("mimi_decode", "mimi")],
            vec![
                ("lm_step", "mid"),
                ("lm_temporal", "mid"),
                ("lm_depformer", "mid"),
            ],
            vec![("depformer", "7b")],
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_case_is_measured_in_its_own_sizes_and_formats_only() {
        use {Case::*, Dtype::*, Preset::*};
        let own = [
            (MimiEncode, Mimi, &[F32][..]),
            (MimiDecode, Mimi, &[F32]),
            (LmStep, Mid, &[F32, Bf16, Q8_0]),
            (LmTemporal, Mid, &[F32, Bf16, Q8_0]),
            (LmDepformer, Mid, &[F32, Bf16, Q8_0]),
            (TemporalLayer, SevenB, &[F32, Bf16, Q8_0]),
            (Depformer, SevenB, &[F32, Bf16, Q8_0]),
        ];
        for (case, own_preset, formats) in own {
            for preset in [Mimi, Mid, SevenB] {
                for dtype in [F32, Bf16, Q8_0] {
                    let pair = pairs(&[case], Some(preset))[0][0];
                    let expected = preset == own_preset && formats.contains(&dtype);
                    let found = pair.part(dtype);
                    assert_eq!(
                        found.is_ok(),
                        expected,
                        "{case:?} {preset:?} {dtype}: {found:?}"
                    );
                    assert_eq!(dtype_name(&pair, dtype), dtype.to_string());
                }
            }
            let auto = pairs(&[case], None)[0][0].part(Auto);
            assert!(auto.is_ok(), "{case:?}: {auto:?}");
        }
    }
}
