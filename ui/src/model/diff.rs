//! What changed between two texts, line by line: the longest common lines stay.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Same,
    Gone,
    New,
}

/// Lines of both, in order.
pub fn lines(old: &str, new: &str) -> Vec<(Kind, String)> {
    let old: Vec<&str> = old.lines().collect();
    let new: Vec<&str> = new.lines().collect();
    // common[i][j]: longest common lines of old[i..] and new[j..].
    let mut common = vec![vec![0u32; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i][j] = match old[i] == new[j] {
                true => common[i + 1][j + 1] + 1,
                false => common[i + 1][j].max(common[i][j + 1]),
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut all = Vec::new();
    while i < old.len() || j < new.len() {
        let both = i < old.len() && j < new.len();
        if both && old[i] == new[j] {
            all.push((Kind::Same, old[i].to_owned()));
            (i, j) = (i + 1, j + 1);
        } else if j == new.len() || (i < old.len() && common[i + 1][j] >= common[i][j + 1]) {
            all.push((Kind::Gone, old[i].to_owned()));
            i += 1;
        } else {
            all.push((Kind::New, new[j].to_owned()));
            j += 1;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use Kind::*;

    #[test]
    fn common_lines_stay_and_the_rest_is_marked() {
        let cases: [(&str, &str, &[Kind]); 4] = [
            ("a\nb\nc", "a\nc", &[Same, Gone, Same]),
            ("a", "b", &[Gone, New]),
            ("", "a\nb", &[New, New]),
            ("same", "same", &[Same]),
        ];
        for (old, new, kinds) in cases {
            let found: Vec<Kind> = lines(old, new).into_iter().map(|(kind, _)| kind).collect();
            assert_eq!(found, kinds, "{old:?} {new:?}");
        }
    }
}
