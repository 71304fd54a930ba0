//! Recordings over HTTP: whole, or the one part that a player asks for.
//!
//! May not live here: how files are written, named and deleted (`journal`).

use std::io::SeekFrom;

use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use wire::api::ErrorBody;

use super::folder;
use crate::journal::recording;
use crate::store::RecordingRow;
use crate::web::desk::Desk;
use crate::web::error::ApiError;
use crate::web::identity::Operator;

/// Read from the disk at a time.
const CHUNK_BYTES: usize = 64 * 1024;

pub(super) fn routes() -> OpenApiRouter<Desk> {
    OpenApiRouter::new().routes(routes!(audio))
}

/// The recording of a session: 16-bit stereo WAV at 24 kHz, caller left, agent right. Takes `Range`
#[utoipa::path(get, path = "/api/sessions/{id}/audio", tag = "sessions", params(("id" = i64, Path)),
    responses((status = 200, content_type = "audio/wav"), (status = 206, content_type = "audio/wav"),
        (status = "default", body = ErrorBody)))]
async fn audio(
    _: Operator,
    State(desk): State<Desk>,
    Path(id): Path<i64>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let summary = desk.store().session(id).await?;
    let missing = || ApiError::Missing {
        what: format!("recording of session {id}"),
    };
    let row = desk.store().recording(id).await?.ok_or_else(missing)?;
    if summary.ended_at_ms.is_none() || !row.complete {
        return Err(ApiError::Conflict {
            code: "still_running",
            what: format!("session {id} is still being recorded; its audio is there after its end"),
        });
    }
    recording_of(&desk, &row, &headers).await
}

/// The bytes of a recording, or of the part that `headers` ask for.
///
/// # Errors
/// [`ApiError::Missing`]: the file is not there.
pub(in crate::web) async fn recording_of(
    desk: &Desk,
    row: &RecordingRow,
    headers: &HeaderMap,
) -> Result<Response, ApiError> {
    let session = row.session_id;
    let file = recording::path(folder(desk)?, session, &row.key);
    let missing = |_| ApiError::Missing {
        what: format!("recording of session {session}"),
    };
    let mut file = File::open(file).await.map_err(missing)?;
    let length = file.metadata().await.map_err(missing)?.len();
    let asked = headers
        .get(header::RANGE)
        .and_then(|value| value.to_str().ok());
    let part = asked.map_or(Part::Whole, |range| Part::of(range, length));
    let (status, first, bytes) = match part {
        Part::Whole => (StatusCode::OK, 0, length),
        Part::From { first, last } => (StatusCode::PARTIAL_CONTENT, first, last - first + 1),
        Part::Outside => {
            let range = [(header::CONTENT_RANGE, format!("bytes */{length}"))];
            return Ok((StatusCode::RANGE_NOT_SATISFIABLE, range).into_response());
        }
    };
    file.seek(SeekFrom::Start(first)).await.map_err(missing)?;
    let mut response = Response::new(Body::from_stream(read(file, bytes)));
    *response.status_mut() = status;
    let answer = response.headers_mut();
    let mut set = |name, value: &str| {
        // Numbers and fixed words only, so none is refused.
        if let Ok(value) = HeaderValue::from_str(value) {
            answer.insert(name, value);
        }
    };
    set(header::CONTENT_TYPE, "audio/wav");
    set(header::ACCEPT_RANGES, "bytes");
    set(header::CACHE_CONTROL, "private, no-store");
    set(header::CONTENT_LENGTH, &bytes.to_string());
    let name = format!("inline; filename=\"vivavoce-session-{session}.wav\"");
    set(header::CONTENT_DISPOSITION, &name);
    if status == StatusCode::PARTIAL_CONTENT {
        let range = format!("bytes {first}-{}/{length}", first + bytes - 1);
        set(header::CONTENT_RANGE, &range);
    }
    Ok(response)
}

/// `bytes` of `file`, a chunk at a time.
fn read(file: File, bytes: u64) -> impl futures_util::Stream<Item = std::io::Result<Bytes>> {
    stream::try_unfold((file, bytes), async |(mut file, left)| {
        let mut chunk = vec![0; left.min(CHUNK_BYTES as u64) as usize];
        if chunk.is_empty() {
            return Ok(None);
        }
        file.read_exact(&mut chunk).await?;
        let left = left - chunk.len() as u64;
        Ok(Some((Bytes::from(chunk), (file, left))))
    })
}

/// What is asked of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Whole,
    /// Both included.
    From {
        first: u64,
        last: u64,
    },
    /// Nothing of the file.
    Outside,
}

impl Part {
    /// Reads the header `Range` (RFC 9110, section 14.1.2). Of several parts, and of other units, the whole is given,
    /// as that document allows.
    fn of(range: &str, length: u64) -> Self {
        let Some((first, last)) = range
            .strip_prefix("bytes=")
            .filter(|set| !set.contains(','))
            .and_then(|set| set.trim().split_once('-'))
        else {
            return Self::Whole;
        };
        let (first, last) = match (first.parse::<u64>(), last.parse::<u64>()) {
            (Ok(first), Ok(last)) if first <= last => (first, last),
            (Ok(first), Err(_)) if last.is_empty() => (first, u64::MAX),
            // The end of the file.
            (Err(_), Ok(0)) if first.is_empty() => return Self::Outside,
            (Err(_), Ok(n)) if first.is_empty() => (length.saturating_sub(n), u64::MAX),
            _ => return Self::Whole,
        };
        if first >= length {
            return Self::Outside;
        }
        Self::From {
            first,
            last: last.min(length - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_that_a_player_asks_for_is_found() {
        let from = |first, last| Part::From { first, last };
        let cases = [
            ("bytes=0-", from(0, 99)),
            ("bytes=0-1", from(0, 1)),
            ("bytes=90-1000", from(90, 99)),
            ("bytes=99-99", from(99, 99)),
            ("bytes=-10", from(90, 99)),
            ("bytes=-1000", from(0, 99)),
            ("bytes=100-", Part::Outside),
            ("bytes=-0", Part::Outside),
            ("bytes=5-4", Part::Whole),
            ("bytes=0-1,4-5", Part::Whole),
            ("bytes=x-", Part::Whole),
            ("bytes=-", Part::Whole),
            ("samples=0-1", Part::Whole),
        ];
        for (range, expected) in cases {
            assert_eq!(Part::of(range, 100), expected, "{range}");
        }
        assert_eq!(Part::of("bytes=0-", 0), Part::Outside);
    }
}
