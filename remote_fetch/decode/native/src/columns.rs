//! The columns of an unfinished unit of rows, in Arrow's layout, and their way back to a mark.
//!
//! Rules of the file:
//!
//! - Only columns that are wanted take memory.
//! - Offsets have 32 bits. `fits` is asked before a batch is decoded.
//! - Validity bits are made at the first null.

use crate::arrow::{Buffer, Node};
use crate::frame::Header;
use crate::spare::Spare;

/// The columns that can be asked for here, each a bit of `wanted`; `columns.py` makes topic and partition.
pub const NAMES: [&str; 8] =
    ["key", "value", "offset", "timestamp", "timestampType", "headers", "leaderEpoch", "timestampMs"];
const KEY: usize = 0;
const VALUE: usize = 1;
const OFFSET: usize = 2;
const TIMESTAMP: usize = 3;
const TIMESTAMP_TYPE: usize = 4;
const HEADERS: usize = 5;
const LEADER_EPOCH: usize = 6;
const TIMESTAMP_MS: usize = 7;

const MAX_COLUMN_BYTES: usize = i32::MAX as usize;
/// The end of a key, and that of a value.
const HEADER_ITEM_BYTES: usize = 2 * size_of::<i32>();

/// Items of variable length.
struct Bytes {
    ends: Vec<i32>,
    data: Vec<u8>,
    /// A bit for each item, the first in the lowest bit of a byte; empty while there is no null.
    validity: Vec<u8>,
    nulls: usize,
}

impl Bytes {
    fn new(items: usize, size_bytes: usize, spare: &Spare) -> Self {
        let mut ends = spare.take(items + 1);
        ends.push(0);
        Self { ends, data: spare.take(size_bytes), validity: Vec::new(), nulls: 0 }
    }

    fn len(&self) -> usize {
        self.ends.len() - 1
    }

    #[inline(always)]
    fn push(&mut self, item: Option<&[u8]>) {
        match item {
            Some(bytes) => {
                self.data.extend_from_slice(bytes);
                if self.nulls > 0 {
                    self.push_bit(true);
                }
            }
            None => self.push_null(),
        }
        self.ends.push(self.data.len() as i32);
    }

    #[cold]
    fn push_null(&mut self) {
        if self.nulls == 0 {
            let items = self.len();
            self.validity.clear();
            self.validity.resize(items / 8, 0xFF);
            if items % 8 != 0 {
                self.validity.push((1 << (items % 8)) - 1);
            }
        }
        self.push_bit(false);
        self.nulls += 1;
    }

    fn push_bit(&mut self, bit: bool) {
        let item = self.len();
        if item % 8 == 0 {
            self.validity.push(0);
        }
        self.validity[item / 8] |= u8::from(bit) << (item % 8);
    }

    fn truncate(&mut self, items: usize, nulls: usize) {
        self.ends.truncate(items + 1);
        self.data.truncate(self.ends[items] as usize);
        self.nulls = nulls;
        if nulls > 0 {
            self.validity.truncate(items.div_ceil(8));
            if items % 8 != 0 {
                self.validity[items / 8] &= (1 << (items % 8)) - 1;
            }
        }
    }

    fn into_node(self, name: &'static str, is_text: bool) -> Node {
        let validity = if self.nulls == 0 { Buffer::None } else { Buffer::Bytes(self.validity) };
        let format = if is_text { c"u" } else { c"z" };
        let buffers = vec![validity, Buffer::Int32(self.ends), Buffer::Bytes(self.data)];
        let length = match &buffers[1] {
            Buffer::Int32(ends) => ends.len() - 1,
            _ => unreachable!(),
        };
        Node { name, format, length, null_count: self.nulls, buffers, children: Vec::new() }
    }

    /// The same items in UTF-8: U+FFFD for other bytes, as the Java client reads header keys.
    fn into_text(self) -> Self {
        let is_text = match std::str::from_utf8(&self.data) {
            Ok(text) => text.is_ascii() || self.ends.iter().all(|&end| text.is_char_boundary(end as usize)),
            Err(_) => false,
        };
        if is_text {
            return self;
        }
        let mut fixed = Self::new(self.len(), self.data.len(), &Spare::default());
        for bounds in self.ends.windows(2) {
            let item = &self.data[bounds[0] as usize..bounds[1] as usize];
            fixed.push(Some(String::from_utf8_lossy(&without_surrogates(item)).as_bytes()));
        }
        fixed
    }
}

/// An encoded surrogate, whole or cut, is one replacement character to Java, and two or three to Rust and Python.
fn without_surrogates(item: &[u8]) -> Vec<u8> {
    let mut fixed = Vec::with_capacity(item.len());
    let mut at = 0;
    while at < item.len() {
        let is_surrogate = item[at] == 0xED && item.get(at + 1).is_some_and(|byte| (0xA0..=0xBF).contains(byte));
        if is_surrogate {
            fixed.extend_from_slice("\u{FFFD}".as_bytes());
            at += 2 + usize::from(item.get(at + 2).is_some_and(|byte| (0x80..=0xBF).contains(byte)));
        } else {
            fixed.push(item[at]);
            at += 1;
        }
    }
    fixed
}

/// Items of headers, and where those of each row end.
struct Headers {
    ends: Vec<i32>,
    keys: Bytes,
    values: Bytes,
}

/// How much room a unit took: a guess for the next one, so that its memory need not grow.
#[derive(Clone, Copy, Default)]
pub struct Room {
    rows: usize,
    headers: usize,
    bytes: [usize; 4],
}

impl Room {
    /// The guess for a unit of `to` stored bytes, if this is that of one of `from`. It is no more than `most` of each, or
    /// than the guess itself: a small unit says little about a large one.
    pub fn scaled(self, from: usize, to: usize, most: usize) -> Self {
        let scale = |used: usize| {
            let wanted = (used as u128 * to as u128 / from.max(1) as u128).try_into().unwrap_or(usize::MAX);
            wanted.min(most.max(used))
        };
        Self { rows: scale(self.rows), headers: scale(self.headers), bytes: self.bytes.map(scale) }
    }
}

/// A state that the columns can go back to.
#[derive(Clone, Copy, Default)]
pub struct Mark {
    rows: usize,
    headers: usize,
    nulls: [usize; 3],
}

#[derive(Default)]
pub struct Columns {
    key: Option<Bytes>,
    value: Option<Bytes>,
    headers: Option<Headers>,
    offset: Option<Vec<i64>>,
    timestamp: Option<Vec<i64>>,
    timestamp_ms: Option<Vec<i64>>,
    timestamp_type: Option<Vec<i32>>,
    leader_epoch: Option<Vec<i32>>,
    rows: usize,
    base_ms: i64,
    broker_set_time: bool,
    batch_timestamp_type: i32,
    batch_epoch: i32,
}

fn has(wanted: u8, column: usize) -> bool {
    wanted & (1 << column) != 0
}

impl Columns {
    pub fn new(wanted: u8, room: Room, spare: &Spare) -> Self {
        Self {
            key: has(wanted, KEY).then(|| Bytes::new(room.rows, room.bytes[0], spare)),
            value: has(wanted, VALUE).then(|| Bytes::new(room.rows, room.bytes[1], spare)),
            headers: has(wanted, HEADERS).then(|| {
                let mut ends = spare.take(room.rows + 1);
                ends.push(0);
                Headers {
                    ends,
                    keys: Bytes::new(room.headers, room.bytes[2], spare),
                    values: Bytes::new(room.headers, room.bytes[3], spare),
                }
            }),
            offset: has(wanted, OFFSET).then(|| spare.take(room.rows)),
            timestamp: has(wanted, TIMESTAMP).then(|| spare.take(room.rows)),
            timestamp_ms: has(wanted, TIMESTAMP_MS).then(|| spare.take(room.rows)),
            timestamp_type: has(wanted, TIMESTAMP_TYPE).then(|| spare.take(room.rows)),
            leader_epoch: has(wanted, LEADER_EPOCH).then(|| spare.take(room.rows)),
            ..Self::default()
        }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The bytes of the largest byte column, or of the offsets of the headers' items if these are more.
    ///
    /// `max_rows` bounds the offsets of all other columns. A row may have any number of headers, and all may be empty.
    pub fn size_bytes(&self) -> usize {
        self.byte_sizes().into_iter().max().unwrap_or(0).max(HEADER_ITEM_BYTES * self.header_items())
    }

    fn header_items(&self) -> usize {
        self.headers.as_ref().map_or(0, |headers| headers.keys.len())
    }

    fn byte_sizes(&self) -> [usize; 4] {
        let size_bytes = |column: Option<&Bytes>| column.map_or(0, |column| column.data.len());
        [
            size_bytes(self.key.as_ref()),
            size_bytes(self.value.as_ref()),
            size_bytes(self.headers.as_ref().map(|headers| &headers.keys)),
            size_bytes(self.headers.as_ref().map(|headers| &headers.values)),
        ]
    }

    /// Whether a batch of that size cannot pass what offsets of 32 bits reach. A key that is no text may grow threefold.
    pub fn fits(&self, area_bytes: usize) -> bool {
        self.size_bytes().saturating_add(area_bytes) <= MAX_COLUMN_BYTES / 3
    }

    pub fn room(&self) -> Room {
        let headers = self.header_items();
        let with_slack = |used: usize| used + used / 16;
        Room { rows: with_slack(self.rows), headers: with_slack(headers), bytes: self.byte_sizes().map(with_slack) }
    }

    pub fn mark(&self) -> Mark {
        let nulls = |column: Option<&Bytes>| column.map_or(0, |column| column.nulls);
        let headers = self.headers.as_ref();
        Mark {
            rows: self.rows,
            headers: self.header_items(),
            nulls: [
                nulls(self.key.as_ref()),
                nulls(self.value.as_ref()),
                nulls(headers.map(|headers| &headers.values)),
            ],
        }
    }

    pub fn go_back(&mut self, mark: Mark) {
        self.rows = mark.rows;
        for (column, nulls) in [(&mut self.key, mark.nulls[0]), (&mut self.value, mark.nulls[1])] {
            if let Some(column) = column {
                column.truncate(mark.rows, nulls);
            }
        }
        if let Some(headers) = &mut self.headers {
            headers.ends.truncate(mark.rows + 1);
            headers.keys.truncate(mark.headers, 0);
            headers.values.truncate(mark.headers, mark.nulls[2]);
        }
        for column in [&mut self.offset, &mut self.timestamp, &mut self.timestamp_ms].into_iter().flatten() {
            column.truncate(mark.rows);
        }
        for column in [&mut self.timestamp_type, &mut self.leader_epoch].into_iter().flatten() {
            column.truncate(mark.rows);
        }
    }

    pub fn begin_batch(&mut self, header: &Header) {
        self.base_ms = header.base_ms;
        self.broker_set_time = header.broker_set_time();
        self.batch_timestamp_type = header.timestamp_type;
        self.batch_epoch = header.leader_epoch;
    }

    #[inline(always)]
    pub fn push_header(&mut self, key: &[u8], value: Option<&[u8]>) {
        if let Some(headers) = &mut self.headers {
            headers.keys.push(Some(key));
            headers.values.push(value);
        }
    }

    /// Append a row. Its headers were pushed before.
    #[inline(always)]
    pub fn push(&mut self, offset: i64, timestamp_delta: i64, key: Option<&[u8]>, value: Option<&[u8]>) {
        if let Some(column) = &mut self.key {
            column.push(key);
        }
        if let Some(column) = &mut self.value {
            column.push(value);
        }
        if let Some(headers) = &mut self.headers {
            headers.ends.push(headers.keys.len() as i32);
        }
        if let Some(column) = &mut self.offset {
            column.push(offset);
        }
        // The Java client adds deltas with overflow.
        let ms = if self.broker_set_time { self.base_ms } else { self.base_ms.wrapping_add(timestamp_delta) };
        if let Some(column) = &mut self.timestamp_ms {
            column.push(ms);
        }
        if let Some(column) = &mut self.timestamp {
            column.push(ms.saturating_mul(1000));
        }
        if let Some(column) = &mut self.timestamp_type {
            column.push(self.batch_timestamp_type);
        }
        if let Some(column) = &mut self.leader_epoch {
            column.push(self.batch_epoch);
        }
        self.rows += 1;
    }

    /// How many rows have the nearest possible `timestamp` instead of their own. No timestamp that fits equals one of these.
    pub fn saturated(&self) -> usize {
        let is_nearest = |&&microseconds: &&i64| microseconds == i64::MAX || microseconds == i64::MIN;
        self.timestamp.iter().flatten().filter(is_nearest).count()
    }

    /// One past the last offset; 0 without rows, or without that column.
    pub fn end_offset(&self) -> i64 {
        self.offset.iter().flatten().last().map_or(0, |last| last.saturating_add(1))
    }

    /// The rows as a struct whose children are the columns, in the order of `NAMES`.
    pub fn into_node(self) -> Node {
        let rows = self.rows;
        let int64 = |name, format, values: Vec<i64>| Node::fixed(name, format, rows, Buffer::Int64(values));
        let int32 = |name, format, values: Vec<i32>| Node::fixed(name, format, rows, Buffer::Int32(values));
        let children = [
            self.key.map(|column| column.into_node(NAMES[KEY], false)),
            self.value.map(|column| column.into_node(NAMES[VALUE], false)),
            self.offset.map(|values| int64(NAMES[OFFSET], c"l", values)),
            self.timestamp.map(|values| int64(NAMES[TIMESTAMP], c"tsu:UTC", values)),
            self.timestamp_type.map(|values| int32(NAMES[TIMESTAMP_TYPE], c"i", values)),
            self.headers.map(|headers| headers.into_node(rows)),
            self.leader_epoch.map(|values| int32(NAMES[LEADER_EPOCH], c"i", values)),
            self.timestamp_ms.map(|values| int64(NAMES[TIMESTAMP_MS], c"l", values)),
        ];
        Node::group("", rows, children.into_iter().flatten().collect())
    }
}

impl Headers {
    fn into_node(self, rows: usize) -> Node {
        let count = self.keys.len();
        let pairs = vec![self.keys.into_text().into_node("key", true), self.values.into_node("value", false)];
        Node {
            name: NAMES[HEADERS],
            format: c"+l",
            length: rows,
            null_count: 0,
            buffers: vec![Buffer::None, Buffer::Int32(self.ends)],
            children: vec![Node::group("item", count, pairs)],
        }
    }
}
