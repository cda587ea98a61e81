//! Headers of v2 batches (KIP-98): their fields, their place in the log, and whether the isolation level shows them.
//!
//! Rules of the file:
//!
//! - Nothing here reads a record.
//! - A header is read only if its 61 bytes are there. Every length is checked before it is used.

use crate::status::Status;

pub const HEADER_BYTES: usize = 61;
const LOG_OVERHEAD_BYTES: i64 = 12;
const MAGIC_AT: usize = 16;
const CRC_FROM: usize = 21;
const CODEC_MASK: u16 = 0x07;
const TIMESTAMP_TYPE_BIT: u16 = 0x08;
const TRANSACTIONAL_BIT: u16 = 0x10;
const CONTROL_BIT: u16 = 0x20;
const LOG_APPEND_TIME: i32 = 1;
const LAST_CODEC: u8 = 4;

/// The fields of a header that a run needs. `last_offset` is the base offset plus its delta.
#[derive(Clone, Copy)]
pub struct Header {
    pub base_offset: i64,
    pub size_bytes: usize,
    pub leader_epoch: i32,
    pub crc: u32,
    attributes: u16,
    pub last_offset: i64,
    /// Kafka's number: 0 if the producer set the timestamps, 1 if the broker did (LogAppendTime), -1 if there are none.
    pub timestamp_type: i32,
    /// The base of the timestamp deltas, or the timestamp of all records if the broker set it.
    pub base_ms: i64,
    pub producer_id: i64,
    pub record_count: i32,
}

fn int32(bytes: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn int64(bytes: &[u8], at: usize) -> i64 {
    i64::from_be_bytes(bytes[at..at + 8].try_into().unwrap())
}

impl Header {
    /// The header of a batch whose frame plain Python has checked, for its records. The other fields say nothing.
    pub fn of_records(
        base_offset: i64,
        last_offset: i64,
        record_count: i32,
        base_ms: i64,
        timestamp_type: i32,
        leader_epoch: i32,
    ) -> Self {
        Self {
            base_offset,
            size_bytes: 0,
            leader_epoch,
            crc: 0,
            attributes: 0,
            last_offset,
            timestamp_type,
            base_ms,
            producer_id: -1,
            record_count,
        }
    }

    pub fn codec(&self) -> u8 {
        (self.attributes & CODEC_MASK) as u8
    }

    pub fn broker_set_time(&self) -> bool {
        self.timestamp_type == LOG_APPEND_TIME
    }

    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL_BIT != 0
    }

    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL_BIT != 0
    }
}

/// Whether the checksum of one whole batch is right.
pub fn has_right_crc(batch: &[u8], header: &Header) -> bool {
    crc32c::crc32c(&batch[CRC_FROM..]) == header.crc
}

/// Where the batches of one slice may lie.
///
/// - Offsets of batches lie in [segment_start, segment_end].
/// - `entries` are offsets of the offset index, -1 for none. Such an offset is the last offset of a batch, never an
///   earlier one.
/// - A run ends before a batch whose base offset is `stop_offset` or more.
pub struct Place {
    pub segment_start: i64,
    pub segment_end: i64,
    pub stop_offset: i64,
    pub entries: (i64, i64),
    pub max_batch_bytes: i64,
}

impl Place {
    /// The header of the batch at `at`, if that batch may follow offset `previous`. The batch need not be complete.
    pub fn header(&self, data: &[u8], at: usize, previous: i64) -> Result<Header, Status> {
        let bytes = data.get(at..).unwrap_or(&[]);
        if bytes.len() < HEADER_BYTES {
            return Err(Status::End);
        }
        if bytes[MAGIC_AT] != 2 {
            return Err(Status::Special);
        }
        let size_bytes = i64::from(int32(bytes, 8)) + LOG_OVERHEAD_BYTES;
        if size_bytes < HEADER_BYTES as i64 || size_bytes > self.max_batch_bytes {
            return Err(Status::Misplaced);
        }
        let base_offset = int64(bytes, 0);
        let delta = i64::from(int32(bytes, 23));
        let record_count = int32(bytes, 57);
        if base_offset < 0 || delta < 0 || base_offset >= i64::MAX - delta || record_count < 0 {
            return Err(Status::Misplaced);
        }
        let last_offset = base_offset + delta;
        let skips = |entry: i64| previous < entry && entry < last_offset;
        let is_outside = base_offset < self.segment_start || last_offset > self.segment_end;
        if is_outside || base_offset <= previous || skips(self.entries.0) || skips(self.entries.1) {
            return Err(Status::Misplaced);
        }
        let attributes = u16::from_be_bytes([bytes[21], bytes[22]]);
        let broker_set_time = attributes & TIMESTAMP_TYPE_BIT != 0;
        Ok(Header {
            base_offset,
            size_bytes: size_bytes as usize,
            leader_epoch: int32(bytes, 12),
            crc: int32(bytes, 17) as u32,
            attributes,
            last_offset,
            timestamp_type: if broker_set_time { LOG_APPEND_TIME } else { 0 },
            base_ms: int64(bytes, if broker_set_time { 35 } else { 27 }),
            producer_id: int64(bytes, 43),
            record_count,
        })
    }
}

/// The aborted transactions of read_committed: producer, first and last offset, sorted. Absent: read_uncommitted.
pub struct Aborted(Vec<(i64, i64, i64)>);

impl Aborted {
    pub fn of(mut transactions: Vec<(i64, i64, i64)>) -> Self {
        transactions.sort_unstable();
        Self(transactions)
    }

    /// Whether the batch lies in an aborted transaction of its producer.
    fn hides(&self, header: &Header) -> bool {
        self.end_of_last_begun(header).is_some_and(|last| last >= header.base_offset)
    }

    /// Whether a marker at this place ends an aborted transaction.
    pub fn end_at(&self, header: &Header) -> bool {
        self.end_of_last_begun(header) == Some(header.base_offset)
    }

    /// The end of the producer's last aborted transaction that begins at the batch or before it.
    fn end_of_last_begun(&self, header: &Header) -> Option<i64> {
        let (producer, offset) = (header.producer_id, header.base_offset);
        let behind = self.0.partition_point(|&(other, first, _)| (other, first) <= (producer, offset));
        self.0[..behind].last().filter(|last| last.0 == producer).map(|last| last.2)
    }
}

/// Whether there is nothing about the batch that plain Python has to decide.
pub fn is_plain(header: &Header, stop_offset: i64, epoch: i32, epoch_stop: i64, is_committed: bool) -> bool {
    let fits = header.base_offset < stop_offset && header.base_offset < epoch_stop && header.leader_epoch == epoch;
    if !fits || header.codec() > LAST_CODEC {
        return false;
    }
    if !is_committed {
        return true;
    }
    // A transaction has a producer, and no broker compresses a marker.
    let has_transaction = header.is_control() || header.is_transactional();
    let is_compressed_marker = header.is_control() && header.codec() != 0;
    !(is_compressed_marker || (has_transaction && header.producer_id < 0))
}

/// Whether the isolation level and the first wanted offset show any record of the batch.
pub fn is_shown(header: &Header, first_offset: i64, aborted: Option<&Aborted>) -> bool {
    if header.last_offset < first_offset || header.is_control() || header.record_count == 0 {
        return false;
    }
    !(header.is_transactional() && aborted.is_some_and(|aborted| aborted.hides(header)))
}
