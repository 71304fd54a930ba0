//! Audio as answers, whole or in parts, so that players can jump.

use std::io::SeekFrom;
use std::path::Path;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};

use super::error::ApiError;

/// Bytes read at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// The file, or the part of it that `Range` names. `name` is what a browser saves it as.
///
/// # Errors
/// [`ApiError::Missing`]: the file is gone.
pub(super) async fn file(path: &Path, name: &str, asked: &HeaderMap) -> Result<Response, ApiError> {
    let gone = |_| ApiError::Missing {
        what: format!("file of {name}"),
    };
    let mut file = File::open(path).await.map_err(gone)?;
    let length = file.metadata().await.map_err(gone)?.len();
    let part = match part(asked, length) {
        Ok(part) => part,
        Err(impossible) => return Ok(*impossible),
    };
    let (first, last) = part.unwrap_or((0, length.saturating_sub(1)));
    let count = if length == 0 { 0 } else { last - first + 1 };
    file.seek(SeekFrom::Start(first)).await.map_err(gone)?;
    let rest = file.take(count);
    let body = Body::from_stream(futures_util::stream::unfold(rest, async |mut rest| {
        let mut chunk = vec![0; CHUNK_BYTES];
        match rest.read(&mut chunk).await {
            Ok(0) => None,
            Ok(read) => {
                chunk.truncate(read);
                Some((Ok(chunk), rest))
            }
            Err(error) => Some((Err(error), rest)),
        }
    }));
    Ok(answer(body, part, count, length, name))
}

/// The same for a file in memory.
pub(super) fn bytes(file: Vec<u8>, name: &str, asked: &HeaderMap) -> Response {
    let length = file.len() as u64;
    match part(asked, length) {
        Err(impossible) => *impossible,
        Ok(None) => answer(file.into(), None, length, length, name),
        Ok(Some((first, last))) => {
            let cut = file[first as usize..=last as usize].to_vec();
            let count = cut.len() as u64;
            answer(cut.into(), Some((first, last)), count, length, name)
        }
    }
}

/// First and last byte of the part that is asked for; the answer, if there is no such part.
fn part(asked: &HeaderMap, length: u64) -> Result<Option<(u64, u64)>, Box<Response>> {
    let range = asked
        .get(header::RANGE)
        .and_then(|value| value.to_str().ok());
    match range.map(|range| parse(range, length)) {
        None | Some(Range::Ignored) => Ok(None),
        Some(Range::Part(first, last)) => Ok(Some((first, last))),
        Some(Range::Impossible) => {
            let whole = format!("bytes */{length}");
            let status = StatusCode::RANGE_NOT_SATISFIABLE;
            let answer = (status, [(header::CONTENT_RANGE, whole)]);
            Err(Box::new(answer.into_response()))
        }
    }
}

fn answer(body: Body, part: Option<(u64, u64)>, count: u64, length: u64, name: &str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "audio/wav".to_owned()),
        (header::CONTENT_LENGTH, count.to_string()),
        (header::ACCEPT_RANGES, "bytes".to_owned()),
        (header::CACHE_CONTROL, "private, no-cache".to_owned()),
        (
            header::CONTENT_DISPOSITION,
            format!("inline; filename=\"{name}\""),
        ),
    ];
    match part {
        None => (headers, body).into_response(),
        Some((first, last)) => {
            let range = [(
                header::CONTENT_RANGE,
                format!("bytes {first}-{last}/{length}"),
            )];
            (StatusCode::PARTIAL_CONTENT, headers, range, body).into_response()
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Range {
    /// First and last byte.
    Part(u64, u64),
    /// Several, or another unit: the whole file is an answer too. Source: RFC 9110, section 14.2.
    Ignored,
    Impossible,
}

fn parse(range: &str, length: u64) -> Range {
    let Some(spec) = range.trim().strip_prefix("bytes=") else {
        return Range::Ignored;
    };
    let Some((first, last)) = spec.split_once('-') else {
        return Range::Ignored;
    };
    let end = length.saturating_sub(1);
    let (first, last) = match (first.trim().parse::<u64>(), last.trim()) {
        (Ok(first), "") => (first, end),
        (Ok(first), last) => match last.parse::<u64>() {
            Ok(last) if first <= last => (first, last.min(end)),
            _ => return Range::Ignored,
        },
        (Err(_), suffix) if first.trim().is_empty() => match suffix.parse::<u64>() {
            Ok(0) => return Range::Impossible,
            Ok(suffix) => (length.saturating_sub(suffix), end),
            Err(_) => return Range::Ignored,
        },
        _ => return Range::Ignored,
    };
    match first < length {
        true => Range::Part(first, last),
        false => Range::Impossible,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_as_players_send_them() {
        let cases = [
            ("bytes=0-", Range::Part(0, 99)),
            ("bytes=10-19", Range::Part(10, 19)),
            ("bytes=90-500", Range::Part(90, 99)),
            ("bytes=-10", Range::Part(90, 99)),
            ("bytes=-500", Range::Part(0, 99)),
            ("bytes=100-", Range::Impossible),
            ("bytes=-0", Range::Impossible),
            ("bytes=0-1,5-6", Range::Ignored),
            ("bytes=9-1", Range::Ignored),
            ("items=0-1", Range::Ignored),
            ("bytes=x-1", Range::Ignored),
        ];
        for (range, expected) in cases {
            assert_eq!(parse(range, 100), expected, "{range}");
        }
    }
}
