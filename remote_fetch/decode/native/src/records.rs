//! The inner loop: the records of one v2 batch (KIP-98) into columns. The checks are those of Java's DefaultRecord.
//!
//! Rules of the file:
//!
//! - Safe code only. Each read is checked against the end of its record.
//! - A malformed batch leaves nothing behind: the caller takes the columns back to their mark.

use crate::columns::Columns;
use crate::frame::Header;
use crate::status::Status;

/// A record has at least its length, attributes, two deltas, two lengths and a header count, one byte each.
const MIN_RECORD_BYTES: usize = 7;
const MIN_HEADER_BYTES: usize = 2;

/// Bytes that are read from the front.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// A zigzag varint of at most `max_bytes` bytes, not decoded. As in Java the bits above the number's are lost.
    #[inline(always)]
    fn raw(&mut self, max_bytes: usize) -> Result<u64, Status> {
        let (&first, rest) = self.0.split_first().ok_or(Status::BadVarint)?;
        if first < 0x80 {
            self.0 = rest;
            return Ok(u64::from(first));
        }
        self.raw_long(max_bytes)
    }

    fn raw_long(&mut self, max_bytes: usize) -> Result<u64, Status> {
        let mut raw = 0u64;
        for at in 0..max_bytes {
            let byte = *self.0.get(at).ok_or(Status::BadVarint)?;
            raw |= u64::from(byte & 0x7F) << (7 * at);
            if byte < 0x80 {
                self.0 = &self.0[at + 1..];
                return Ok(raw);
            }
        }
        Err(Status::BadVarint)
    }

    #[inline(always)]
    fn int32(&mut self) -> Result<i32, Status> {
        let raw = self.raw(5)? as u32;
        Ok((raw >> 1) as i32 ^ -((raw & 1) as i32))
    }

    #[inline(always)]
    fn int64(&mut self) -> Result<i64, Status> {
        let raw = self.raw(10)?;
        Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    /// A length and as many bytes; a negative length is null.
    #[inline(always)]
    fn field(&mut self) -> Result<Option<&'a [u8]>, Status> {
        let length = self.int32()?;
        if length < 0 {
            return Ok(None);
        }
        let (field, rest) = self.0.split_at_checked(length as usize).ok_or(Status::BadField)?;
        self.0 = rest;
        Ok(Some(field))
    }
}

/// Append the records of `area` with offsets in [first_offset, stop_offset). After an error the columns hold a part.
pub fn decode(
    area: &[u8],
    header: &Header,
    first_offset: i64,
    stop_offset: i64,
    columns: &mut Columns,
) -> Result<(), Status> {
    let count = header.record_count as usize;
    if count > area.len() / MIN_RECORD_BYTES {
        return Err(Status::BadCount);
    }
    columns.begin_batch(header);
    let span = header.last_offset - header.base_offset;
    let mut previous = -1;
    let mut left = Reader(area);
    for _ in 0..count {
        if left.0.is_empty() {
            return Err(Status::BadCount);
        }
        let length = left.int32()?;
        if length < MIN_RECORD_BYTES as i32 - 1 {
            return Err(Status::BadLength);
        }
        let (record, rest) = left.0.split_at_checked(length as usize).ok_or(Status::BadLength)?;
        left.0 = rest;
        // The record's attributes are skipped, because no bit has a meaning yet.
        let mut record = Reader(&record[1..]);
        let timestamp_delta = record.int64()?;
        let delta = i64::from(record.int32()?);
        if delta > span || delta <= previous {
            return Err(Status::BadOffset);
        }
        previous = delta;
        let offset = header.base_offset + delta;
        let key = record.field()?;
        let value = record.field()?;
        let header_count = record.int32()?;
        let is_wanted = first_offset <= offset && offset < stop_offset;
        if header_count != 0 {
            headers(&mut record, header_count, is_wanted.then_some(&mut *columns))?;
        }
        if !record.0.is_empty() {
            return Err(Status::BadEnd);
        }
        if is_wanted {
            columns.push(offset, timestamp_delta, key, value);
        }
    }
    if left.0.is_empty() { Ok(()) } else { Err(Status::BadRest) }
}

fn headers(record: &mut Reader, count: i32, mut columns: Option<&mut Columns>) -> Result<(), Status> {
    // Bounded before the loop: a hostile count costs nothing.
    if count < 0 || count as usize > record.0.len() / MIN_HEADER_BYTES {
        return Err(Status::BadHeaderCount);
    }
    for _ in 0..count {
        let key = record.field()?.ok_or(Status::BadHeaderKey)?;
        let value = record.field()?;
        if let Some(columns) = columns.as_deref_mut() {
            columns.push_header(key, value);
        }
    }
    Ok(())
}
