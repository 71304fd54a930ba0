//! Numbers as people read them.

/// Minutes and seconds.
pub fn clock(ms: f64) -> String {
    let seconds = (ms / 1_000.0).max(0.0) as u64;
    match seconds / 3_600 {
        0 => format!("{}:{:02}", seconds / 60, seconds % 60),
        hours => format!("{hours}:{:02}:{:02}", seconds / 60 % 60, seconds % 60),
    }
}

/// A length of time in the words people use, from the nearest ten seconds or minute.
pub fn about(seconds: u32) -> String {
    match seconds {
        0..95 => format!("{} seconds", (seconds.max(10) + 5) / 10 * 10),
        _ => format!("{} minutes", (seconds + 30) / 60),
    }
}

/// Microseconds as milliseconds.
pub fn ms(us: u32) -> String {
    match us {
        0..10_000 => format!("{:.1} ms", f64::from(us) / 1_000.0),
        _ => format!("{} ms", (us + 500) / 1_000),
    }
}

/// Milliseconds as a length a person waits.
pub fn seconds(ms: u32) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        _ => format!("{:.1} s", f64::from(ms) / 1_000.0),
    }
}

pub fn bytes(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{} kB", bytes / 1_000),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}

/// An end reason of the log, in words.
pub fn reason(name: &str) -> String {
    name.replace('_', " ")
}

/// A name as one part of an address.
pub fn address_part(name: &str) -> String {
    let mut part = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                part.push(byte as char)
            }
            _ => part.push_str(&format!("%{byte:02X}")),
        }
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(
            [clock(0.0), clock(59_999.0), clock(3_661_000.0)],
            ["0:00", "0:59", "1:01:01"]
        );
        assert_eq!([ms(1_234), ms(79_500)], ["1.2 ms", "80 ms"]);
        assert_eq!([seconds(80), seconds(1_249)], ["80 ms", "1.2 s"]);
        assert_eq!(
            [about(20), about(94), about(240), about(269)],
            ["20 seconds", "90 seconds", "4 minutes", "4 minutes"]
        );
        assert_eq!([bytes(999_000), bytes(41_000_000)], ["999 kB", "41.0 MB"]);
        assert_eq!(address_part("a b/ü&c"), "a%20b%2F%C3%BC%26c");
    }
}
