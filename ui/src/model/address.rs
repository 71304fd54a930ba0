//! What a page keeps in its address, so that it is found again on the way back.

use super::text::address_part;

/// A query with its question mark; empty values are left out, and so is a query without any.
pub fn query_of(pairs: &[(&str, String)]) -> String {
    let pairs = pairs.iter().filter(|(_, value)| !value.is_empty());
    let parts: Vec<_> = pairs
        .map(|(name, value)| format!("{name}={}", address_part(value)))
        .collect();
    match parts.is_empty() {
        true => String::new(),
        false => format!("?{}", parts.join("&")),
    }
}

/// The first value of `name` in `query`, with or without its question mark; empty if there is none.
pub fn value_in(query: &str, name: &str) -> String {
    let pairs = query.trim_start_matches('?').split('&');
    let mut pairs = pairs.filter_map(|pair| pair.split_once('='));
    let value = pairs.find_map(|(key, value)| (key == name).then_some(value));
    plain(value.unwrap_or_default())
}

/// `text` without its percent signs; one that stands for nothing stays as it is.
fn plain(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = after
            .get(..2)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        rest = match (first, byte) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                &after[2..]
            }
            (b'+', _) => {
                bytes.push(b' ');
                after
            }
            _ => {
                bytes.push(first);
                after
            }
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_into_an_address_comes_out_of_it() {
        for value in ["Ada", "a b&c=d", "100 % sure?", "München #1", "a+b"] {
            let query = query_of(&[
                ("x", "1".to_owned()),
                ("who", value.to_owned()),
                ("y", String::new()),
            ]);
            assert_eq!(value_in(&query, "who"), value, "{query}");
            assert_eq!(value_in(&query, "y"), "");
        }
        assert_eq!(query_of(&[("y", String::new())]), "");
    }

    #[test]
    fn addresses_that_others_wrote_are_read_as_far_as_they_can_be() {
        for (query, value) in [
            ("?who=a%20b", "a b"),
            ("who=a+b&who=c", "a b"),
            ("?who=50%", "50%"),
            ("?who=%zz", "%zz"),
            ("?whom=a", ""),
            ("", ""),
        ] {
            assert_eq!(value_in(query, "who"), value, "{query}");
        }
    }
}
