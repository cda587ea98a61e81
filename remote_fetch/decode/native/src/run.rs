//! One run: whole batches from bytes to columns, up to the first that plain Python has to look at.
//!
//! Rules of the file:
//!
//! - A run says nothing about what is wrong. It ends before that batch, with a status.
//! - A batch is taken only if its checksum is right, and if the next header confirms its place or the caller does. The
//!   batch of that header need not be complete.
//! - No record of a batch is kept unless all of them are well-formed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::codecs::Codecs;
use crate::columns::{Columns, Room};
use crate::frame::{self, Aborted, HEADER_BYTES, Header, Place};
use crate::markers::{self, Marker};
use crate::records;
use crate::spare::Spare;
use crate::status::Status;

/// The bounds of all runs of one slice.
pub struct Slice {
    pub wanted: u8,
    pub place: Place,
    pub aborted: Option<Aborted>,
    pub target_bytes: usize,
    pub max_rows: usize,
}

impl Slice {
    /// Whether there is nothing about the batch that plain Python has to decide.
    fn takes(&self, header: &Header, start: &Start) -> bool {
        frame::is_plain(header, self.place.stop_offset, start.epoch, start.epoch_stop, self.aborted.is_some())
    }
}

/// Where a run begins.
///
/// - `last_offset` ended the batch before it; -1 at the beginning of a slice.
/// - Records in [first_offset, stop_offset) are kept.
/// - Batches have leader epoch `epoch`, as long as their base offset is below `epoch_stop`.
/// - The run ends at `stop`. The caller confirms the place of the batch that ends there.
pub struct Start {
    pub at: usize,
    pub last_offset: i64,
    pub first_offset: i64,
    pub epoch: i32,
    pub epoch_stop: i64,
    pub stop: Option<usize>,
}

/// Batches that a run can take, as far as their headers tell. `is_confirmed`: a header follows that fits.
#[derive(Clone, Copy)]
pub struct Cut {
    pub position: usize,
    pub last_offset: i64,
    pub taken: usize,
    pub is_confirmed: bool,
}

/// How far a run came.
pub struct Outcome {
    pub position: usize,
    pub last_offset: i64,
    pub taken: usize,
    pub status: Status,
    /// The producers of transactional batches that were shown since the producer's last marker, and the base offset of
    /// the first of each.
    pub shown: BTreeMap<i64, i64>,
    /// The producers whose transactions ended.
    pub ended_producers: BTreeSet<i64>,
}

impl Outcome {
    /// That of rows for which no run was decoded.
    pub fn none() -> Self {
        Self::at(0, -1)
    }

    /// That of a run that begins at `position`, behind `last_offset`.
    fn at(position: usize, last_offset: i64) -> Self {
        Self {
            position,
            last_offset,
            taken: 0,
            status: Status::End,
            shown: BTreeMap::new(),
            ended_producers: BTreeSet::new(),
        }
    }
}

/// What the last run with rows took: a guess for the next one.
#[derive(Clone, Copy, Default)]
pub struct Guess {
    room: Room,
    /// The stored bytes of that run.
    from_bytes: usize,
    /// It ended before a batch that plain Python has to look at. The next run may end as soon.
    ended_early: bool,
}

impl Guess {
    fn room(&self, start: &Start, target_bytes: usize) -> Room {
        let Some(stop) = start.stop else {
            return self.room;
        };
        let left_bytes = stop.saturating_sub(start.at);
        let most_bytes = if self.ended_early { self.from_bytes.saturating_mul(8) } else { left_bytes };
        self.room.scaled(self.from_bytes, left_bytes.min(most_bytes), 2 * target_bytes)
    }
}

/// Memory and codecs, kept from run to run.
pub struct Tools {
    pub codecs: Codecs,
    pub guess: Guess,
    pub spare: Arc<Spare>,
}

/// Walk over headers until the batches have `size_bytes`, or as many records as an Arrow batch may have rows.
///
/// A last batch whose place no header confirms is left out, unless it is the only one.
pub fn cut(slice: &Slice, data: &[u8], start: &Start, size_bytes: usize) -> Cut {
    let mut cut = Cut { position: start.at, last_offset: start.last_offset, taken: 0, is_confirmed: true };
    let mut before = cut;
    let mut records = 0;
    loop {
        let Ok(header) = slice.place.header(data, cut.position, cut.last_offset) else {
            cut.is_confirmed = false;
            return if cut.taken > 1 { before } else { cut };
        };
        let is_full = cut.position - start.at >= size_bytes || records >= slice.max_rows;
        let is_cut_off = header.size_bytes > data.len() - cut.position;
        if is_full || is_cut_off || !slice.takes(&header, start) {
            return cut;
        }
        before = cut;
        cut.taken += 1;
        cut.position += header.size_bytes;
        cut.last_offset = header.last_offset;
        records += header.record_count as usize;
    }
}

pub fn decode(slice: &Slice, tools: &mut Tools, data: &[u8], start: &Start) -> (Outcome, Columns) {
    let mut columns = Columns::new(slice.wanted, tools.guess.room(start, slice.target_bytes), &tools.spare);
    let mut outcome = Outcome::at(start.at, start.last_offset);
    let mut next = slice.place.header(data, start.at, start.last_offset);
    outcome.status = loop {
        let header = match next {
            Ok(header) => header,
            Err(status) => break status,
        };
        if header.size_bytes > data.len() - outcome.position {
            break Status::End;
        }
        if columns.rows() >= slice.max_rows || columns.size_bytes() >= slice.target_bytes {
            break Status::Full;
        }
        let end = outcome.position + header.size_bytes;
        let is_confirmed = start.stop == Some(end);
        if !is_confirmed {
            next = slice.place.header(data, end, header.last_offset);
            if let Err(status) = next {
                break status;
            }
        }
        if !slice.takes(&header, start) {
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
        if is_confirmed {
            break Status::End;
        }
    };
    if columns.rows() > 0 {
        tools.guess = Guess {
            room: columns.room(),
            from_bytes: outcome.position - start.at,
            ended_early: !matches!(outcome.status, Status::End | Status::Full),
        };
    }
    (outcome, columns)
}

/// Append the records of one batch, already decompressed. A batch that is not taken leaves no trace.
pub fn append(columns: &mut Columns, area: &[u8], header: &Header, first_offset: i64, stop_offset: i64) -> Status {
    if !columns.fits(area.len()) {
        return if columns.rows() > 0 { Status::Full } else { Status::TooLarge };
    }
    let mark = columns.mark();
    match records::decode(area, header, first_offset, stop_offset, columns) {
        Ok(()) => Status::End,
        Err(status) => {
            columns.go_back(mark);
            status
        }
    }
}

/// Check one batch. Append its rows if it is shown, or end the transaction of a marker.
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
    if let Some(aborted) = slice.aborted.as_ref().filter(|_| header.is_control()) {
        let is_wanted = header.last_offset >= start.first_offset;
        return if is_wanted { see_marker(aborted, batch, header, outcome) } else { Ok(()) };
    }
    if !frame::is_shown(header, start.first_offset, slice.aborted.as_ref()) {
        return Ok(());
    }
    let area = tools.codecs.decompress(header.codec(), &batch[HEADER_BYTES..]).map_err(|_| Status::BadStream)?;
    match append(columns, area, header, start.first_offset, slice.place.stop_offset) {
        Status::End => {}
        status => return Err(status),
    }
    if slice.aborted.is_some() && header.is_transactional() {
        outcome.shown.entry(header.producer_id).or_insert(header.base_offset);
    }
    Ok(())
}

/// End the transaction of a marker. Plain Python decides about an abort that is not among the known ones.
fn see_marker(aborted: &Aborted, batch: &[u8], header: &Header, outcome: &mut Outcome) -> Result<(), Status> {
    if header.record_count == 0 {
        return Ok(()); // the log cleaner has emptied it
    }
    let marker = markers::of(&batch[HEADER_BYTES..]).ok_or(Status::Special)?;
    if marker == Marker::Abort && !aborted.end_at(header) {
        return Err(Status::Special);
    }
    if marker != Marker::Other {
        outcome.shown.remove(&header.producer_id);
        outcome.ended_producers.insert(header.producer_id);
    }
    Ok(())
}
