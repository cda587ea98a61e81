//! One run: whole batches from bytes to columns, up to the first that plain Python has to look at.
//!
//! Rules of the file:
//!
//! - A run says nothing about what is wrong. It ends before that batch, with a status.
//! - A batch is taken only if its checksum is right and the batch after it confirms its place.
//! - No record of a batch is kept unless all of them are well-formed.

use std::collections::BTreeMap;

use crate::codecs::Codecs;
use crate::columns::{Columns, Room};
use crate::frame::{self, Aborted, HEADER_BYTES, Header, Place};
use crate::records;
use crate::status::Status;

/// The bounds of all runs of one slice.
pub struct Slice {
    pub wanted: u8,
    pub place: Place,
    pub aborted: Option<Aborted>,
    pub target_bytes: usize,
    pub max_rows: usize,
}

/// Where a run begins.
///
/// - `last_offset` ended the batch before it; -1 at the beginning of a slice.
/// - Records in [first_offset, stop_offset) are kept.
/// - Batches have leader epoch `epoch`, as long as their base offset is below `epoch_stop`.
pub struct Start {
    pub at: usize,
    pub last_offset: i64,
    pub first_offset: i64,
    pub epoch: i32,
    pub epoch_stop: i64,
}

/// How far a run came.
pub struct Outcome {
    pub position: usize,
    pub last_offset: i64,
    pub taken: usize,
    pub status: Status,
    /// The producers of transactional batches that were shown, and the base offset of the first of each.
    pub shown: BTreeMap<i64, i64>,
}

/// Memory and codecs, kept from run to run.
pub struct Tools {
    pub codecs: Codecs,
    pub room: Room,
}

pub fn decode(slice: &Slice, tools: &mut Tools, data: &[u8], start: &Start) -> (Outcome, Columns) {
    let mut columns = Columns::new(slice.wanted, tools.room);
    let mut outcome = Outcome {
        position: start.at,
        last_offset: start.last_offset,
        taken: 0,
        status: Status::End,
        shown: BTreeMap::new(),
    };
    let mut next = slice.place.header(data, start.at, start.last_offset);
    outcome.status = loop {
        let header = match next {
            Ok(header) => header,
            Err(status) => break status,
        };
        if columns.rows() >= slice.max_rows || columns.size_bytes() >= slice.target_bytes {
            break Status::Full;
        }
        let end = outcome.position + header.size_bytes;
        next = slice.place.header(data, end, header.last_offset);
        if let Err(status) = next {
            break status;
        }
        let is_committed = slice.aborted.is_some();
        if !frame::is_plain(&header, slice.place.stop_offset, start.epoch, start.epoch_stop, is_committed) {
            break Status::Special;
        }
        if let Err(status) =
            take(slice, tools, &data[outcome.position..end], &header, start, &mut columns, &mut outcome)
        {
            break status;
        }
        outcome.taken += 1;
        outcome.position = end;
        outcome.last_offset = header.last_offset;
    };
    if columns.rows() > 0 {
        tools.room = columns.room();
    }
    (outcome, columns)
}

/// Check one batch, and append its rows if it is shown.
fn take(
    slice: &Slice,
    tools: &mut Tools,
    batch: &[u8],
    header: &Header,
    start: &Start,
    columns: &mut Columns,
    outcome: &mut Outcome,
) -> Result<(), Status> {
    if !frame::has_right_crc(batch, header) {
        return Err(Status::BadChecksum);
    }
    if !frame::is_shown(header, start.first_offset, slice.aborted.as_ref()) {
        return Ok(());
    }
    let area = tools.codecs.decompress(header.codec(), &batch[HEADER_BYTES..]).map_err(|_| Status::BadStream)?;
    if !columns.fits(area.len()) {
        return Err(if columns.rows() > 0 { Status::Full } else { Status::TooLarge });
    }
    let mark = columns.mark();
    if let Err(status) = records::decode(area, header, start.first_offset, slice.place.stop_offset, columns) {
        columns.go_back(mark);
        return Err(status);
    }
    if slice.aborted.is_some() && header.is_transactional() {
        outcome.shown.entry(header.producer_id).or_insert(header.base_offset);
    }
    Ok(())
}
