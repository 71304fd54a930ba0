//! Identities for cache keys.
//!
//! Lives here: FNV-1a with 128 bits. It tells files apart that nobody forged; it is no protection against forgery.

/// Identity of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub u128);

const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

impl Default for Digest {
    /// The identity of no bytes.
    fn default() -> Self {
        Self(OFFSET)
    }
}

impl Digest {
    /// The identity of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self::default().with(bytes)
    }

    /// The identity of what this one stands for, followed by `bytes`. The length goes in too, so that parts cannot
    /// trade places.
    #[must_use]
    pub fn with(self, bytes: &[u8]) -> Self {
        let length = (bytes.len() as u64).to_le_bytes();
        let hash = length.iter().chain(bytes).fold(self.0, |hash, &byte| {
            (hash ^ u128::from(byte)).wrapping_mul(PRIME)
        });
        Self(hash)
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}
