//! A certificate and its key out of PEM files, and what people want to know of it.

use std::sync::Arc;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use sha2::{Digest, Sha256};
use tokio_rustls::rustls;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::sign::CertifiedKey;

/// A certificate with its chain and key.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    /// For handshakes.
    pub(super) key: Arc<CertifiedKey>,
    /// SHA-256 of the first certificate, `AB:CD:...`, as browsers show it.
    pub(super) fingerprint: String,
    /// Unix milliseconds.
    pub(super) expires_at_ms: i64,
}

/// Why PEM files are of no use.
#[derive(Debug, thiserror::Error)]
pub enum PemError {
    /// There is no certificate.
    #[error("it holds no certificate in PEM form")]
    NoCertificate,
    /// A certificate cannot be understood.
    #[error("its certificate cannot be read")]
    BrokenCertificate,
    /// There is no key.
    #[error("it holds no private key in PEM form (one without a passphrase is needed)")]
    NoKey,
    /// The key does not belong to the certificate, or is of an unknown kind.
    #[error("its key cannot be used with the certificate: {0}")]
    WrongKey(rustls::Error),
}

impl PemError {
    /// Which of the two files is to blame.
    pub(super) fn is_about_the_key(&self) -> bool {
        matches!(self, Self::NoKey | Self::WrongKey(_))
    }
}

impl Pair {
    /// Reads both; one file may hold both.
    pub(super) fn read(
        certificates: &[u8],
        key: &[u8],
        provider: &CryptoProvider,
    ) -> Result<Self, PemError> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificates).collect();
        let chain = chain.map_err(|_| PemError::BrokenCertificate)?;
        let first = chain.first().ok_or(PemError::NoCertificate)?;
        let expires_at_ms = expires_at_ms(first).ok_or(PemError::BrokenCertificate)?;
        let fingerprint = fingerprint(first);
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| PemError::NoKey)?;
        let key = CertifiedKey::from_der(chain, key, provider).map_err(PemError::WrongKey)?;
        Ok(Self {
            key: Arc::new(key),
            fingerprint,
            expires_at_ms,
        })
    }

    /// What is to be said of a certificate that is over. It is shown all the same: whoever trusts it may go on.
    pub(super) fn ended(&self) -> Option<String> {
        let end = jiff::Timestamp::from_millisecond(self.expires_at_ms).ok()?;
        let end_date = end.to_zoned(TimeZone::UTC).date();
        (end <= jiff::Timestamp::now()).then(|| format!("the certificate ended on {end_date}"))
    }
}

/// SHA-256 as browsers show it.
fn fingerprint(certificate: &[u8]) -> String {
    let digest = Sha256::digest(certificate);
    let bytes: Vec<String> = digest.iter().map(|byte| format!("{byte:02X}")).collect();
    bytes.join(":")
}

/// When a certificate ends, in Unix milliseconds.
///
/// Source: RFC 5280, 4.1: a certificate is a sequence whose first part holds an optional version ([0]), a number, an
/// algorithm, the issuer, and the sequence of two times, which are UTCTime (0x17, two digits for the year, those from 50
/// are of the last century) or GeneralizedTime (0x18), always with seconds and in UTC.
fn expires_at_ms(certificate: &[u8]) -> Option<i64> {
    let (_, whole, _) = element(certificate)?;
    let (_, mut inner, _) = element(whole)?;
    if inner.first() == Some(&0xa0) {
        inner = element(inner)?.2;
    }
    for _number_algorithm_issuer in 0..3 {
        inner = element(inner)?.2;
    }
    let (_, times, _) = element(inner)?;
    let (_, _, end) = element(times)?;
    let (tag, end, _) = element(end)?;
    let text = std::str::from_utf8(end).ok()?;
    let (format, text) = match (tag, text.get(..2)?.parse::<u8>().ok()?) {
        (0x17, 50..) => ("%Y%m%d%H%M%SZ", format!("19{text}")),
        (0x17, _) => ("%Y%m%d%H%M%SZ", format!("20{text}")),
        (0x18, _) => ("%Y%m%d%H%M%SZ", text.to_owned()),
        _ => return None,
    };
    let end = DateTime::strptime(format, text).ok()?;
    let end = end.to_zoned(TimeZone::UTC).ok()?;
    Some(end.timestamp().as_millisecond())
}

/// The first element of DER `bytes`: its tag, its content, and what comes after it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        // The length of the length; certificates are far below 64 KiB, three bytes are plenty.
        0x81..=0x83 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let length = digits
                .iter()
                .fold(0, |sum, &digit| sum << 8 | usize::from(digit));
            (length, rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts of a certificate up to its times, as lengths and tags demand, and nothing in them.
    fn with_end(tag: u8, end: &str) -> Vec<u8> {
        let wrap = |tag: u8, content: &[u8]| [&[tag, 0x81, content.len() as u8], content].concat();
        let time = |tag, text: &str| wrap(tag, text.as_bytes());
        let times = wrap(
            0x30,
            &[time(0x17, "200101000000Z"), time(tag, end)].concat(),
        );
        let version = wrap(0xa0, &[2, 1, 2]);
        let parts = [
            version,
            wrap(2, &[1]),
            wrap(0x30, &[]),
            wrap(0x30, &[]),
            times,
        ];
        wrap(0x30, &wrap(0x30, &parts.concat()))
    }

    #[test]
    fn the_end_of_a_certificate_is_read_in_both_forms() {
        let cases = [
            (0x17, "300102030405Z", Some("2030-01-02T03:04:05Z")),
            (0x17, "500101000000Z", Some("1950-01-01T00:00:00Z")),
            (0x18, "20500101000000Z", Some("2050-01-01T00:00:00Z")),
            (0x18, "20501301000000Z", None),
            (0x17, "", None),
            (0x04, "300102030405Z", None),
        ];
        for (tag, text, expected) in cases {
            let expected =
                expected.map(|text| text.parse::<jiff::Timestamp>().unwrap().as_millisecond());
            assert_eq!(expires_at_ms(&with_end(tag, text)), expected, "{text}");
        }
    }

    #[test]
    fn no_bytes_make_the_reader_of_certificates_panic() {
        let whole = with_end(0x17, "300102030405Z");
        for length in 0..whole.len() {
            assert_eq!(expires_at_ms(&whole[..length]), None, "{length}");
        }
        for at in 0..whole.len() {
            for byte in [0, 0x7f, 0x80, 0x84, 0xff] {
                let mut broken = whole.clone();
                broken[at] = byte;
                // Whatever it is, it is an answer.
                let _ = expires_at_ms(&broken);
            }
        }
    }
}
