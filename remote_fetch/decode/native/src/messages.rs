//! The rows of a record batch as messages: one call of the message class a row.
//!
//! Rules of the file:
//!
//! - `message_reference.py` is the same in plain Python, and gives the same messages and errors.
//! - Every read is checked. A row or an offset outside its column is an IndexError.
//! - Code of Python's runs only in the call of the class, and where headers or messages are dropped.
//! - If confluent_kafka's binding shows a record differently from the columns, this module follows the binding.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use pyo3::PyTraverseError;
use pyo3::buffer::ReadOnlyCell;
use pyo3::exceptions::PyIndexError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyList, PyTuple};

use crate::buffers::Buffer;
use crate::objects;

// The positions of those arguments of confluent_kafka.Message that are not the same in all calls.
const OFFSET: usize = 2;
const KEY: usize = 3;
const VALUE: usize = 4;
const HEADERS: usize = 5;
const TIMESTAMP: usize = 7;
const LEADER_EPOCH: usize = 9;

/// librdkafka treats more headers than this as malformed, and gives none.
const MAX_HEADERS: usize = 100_000;

/// The keys of so many headers, at most so long, are compared with those of the row before.
const MAX_NAMES: usize = 16;
const MAX_NAME_BYTES: usize = 32;

/// A binary column as `Cells` of `message_reference.py`: ends, data, validity, first bit.
type Given = (Buffer<i32>, Buffer<u8>, Option<Buffer<u8>>, i64);

/// The columns of one record batch, and the arguments that all its messages share. `message_reference.py` has the
/// meaning of the arguments.
#[pyclass(frozen, module = "remote_fetch.decode._native")]
pub struct Rows {
    make: Py<PyAny>,
    topic: Py<PyAny>,
    partition: Py<PyAny>,
    latency: Py<PyAny>,
    key: Given,
    value: Given,
    offset: Buffer<i64>,
    timestamp_ms: Buffer<i64>,
    timestamp_type: Buffer<i32>,
    leader_epoch: Buffer<i32>,
    header_ends: Buffer<i32>,
    header_key: Given,
    header_value: Given,
    /// The number of rows that every column has.
    count: usize,
    /// Of the call before. Empty during a call: a callee may call again.
    kept: Mutex<Option<Box<Kept>>>,
}

#[pymethods]
impl Rows {
    #[new]
    #[pyo3(signature = (make, topic, partition, *, key, value, offset, timestamp_ms, timestamp_type, leader_epoch,
                        header_ends, header_key, header_value))]
    #[expect(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        make: Py<PyAny>,
        topic: Py<PyAny>,
        partition: Py<PyAny>,
        key: Given,
        value: Given,
        offset: Buffer<i64>,
        timestamp_ms: Buffer<i64>,
        timestamp_type: Buffer<i32>,
        leader_epoch: Buffer<i32>,
        header_ends: Buffer<i32>,
        header_key: Given,
        header_value: Given,
    ) -> Self {
        let numbers = [offset.len(), timestamp_ms.len(), timestamp_type.len(), leader_epoch.len()];
        let ends = [&key.0, &value.0, &header_ends].map(|ends| ends.len().saturating_sub(1));
        let count = numbers.into_iter().chain(ends).min().unwrap_or(0);
        let latency = PyFloat::new(py, -1.0).into_any().unbind();
        Self {
            make,
            topic,
            partition,
            latency,
            key,
            value,
            offset,
            timestamp_ms,
            timestamp_type,
            leader_epoch,
            header_ends,
            header_key,
            header_value,
            count,
            kept: Mutex::new(None),
        }
    }

    /// The messages of rows [start, stop). Raises IndexError, and the errors of `make`.
    fn messages<'py>(&self, py: Python<'py>, start: i64, stop: i64) -> PyResult<Bound<'py, PyList>> {
        if start >= stop {
            return objects::list(py, [].into_iter());
        }
        let outside = || PyIndexError::new_err("a row outside its columns");
        let start = usize::try_from(start).map_err(|_| outside())?;
        let stop = usize::try_from(stop).ok().filter(|stop| *stop <= self.count).ok_or_else(outside)?;
        let make = self.make.bind(py);
        let columns = Columns::of(self, py);
        let kept = self.exchange(None).unwrap_or_default();
        let mut arguments = Arguments { py, rows: self, columns: &columns, kept };
        let mut made = Vec::with_capacity(stop - start);
        for row in start..stop {
            made.push(make.call1(arguments.of_row(row)?)?);
        }
        drop(self.exchange(Some(arguments.into_kept()?)));
        objects::list(py, made.into_iter())
    }

    /// For the garbage collector. There is no `__clear__`: nothing here changes, so in every cycle something else does.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.make)?;
        visit.call(&self.topic)?;
        visit.call(&self.partition)?;
        // The lock is never held while code of Python's runs, so it is free here. What is kept refers to no other object
        // that can be in a cycle.
        let kept = self.kept.try_lock();
        kept.ok().as_ref().and_then(|kept| kept.as_ref()).map_or(Ok(()), |kept| visit.call(&kept.tuple))
    }
}

impl Rows {
    /// Put something else in the place of what was kept. The caller drops that, after the lock is free: dropping may run
    /// code of Python's, and that may come here.
    fn exchange(&self, kept: Option<Box<Kept>>) -> Option<Box<Kept>> {
        std::mem::replace(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner), kept)
    }
}

/// What a row leaves for the next one, also for that of the next call, because a call may make a single message.
#[derive(Default)]
struct Kept {
    /// The tuple of arguments that serves all calls, unless the callee kept a reference; then the callee keeps that tuple.
    tuple: Option<Py<PyTuple>>,
    /// What the tuple has.
    stamp: (i32, i64),
    epoch: i32,
    has_headers: bool,
    names: Names,
    /// Empty between rows; kept for its room.
    headers: Vec<Py<PyAny>>,
}

/// The columns as slices, for one call of `messages`.
struct Columns<'a> {
    key: Cells<'a>,
    value: Cells<'a>,
    offset: &'a [ReadOnlyCell<i64>],
    timestamp_ms: &'a [ReadOnlyCell<i64>],
    timestamp_type: &'a [ReadOnlyCell<i32>],
    leader_epoch: &'a [ReadOnlyCell<i32>],
    header_ends: &'a [ReadOnlyCell<i32>],
    header_key: Cells<'a>,
    header_value: Cells<'a>,
}

impl<'a> Columns<'a> {
    fn of(rows: &'a Rows, py: Python<'a>) -> Self {
        Self {
            key: Cells::of(&rows.key, py),
            value: Cells::of(&rows.value, py),
            offset: rows.offset.cells(py),
            timestamp_ms: rows.timestamp_ms.cells(py),
            timestamp_type: rows.timestamp_type.cells(py),
            leader_epoch: rows.leader_epoch.cells(py),
            header_ends: rows.header_ends.cells(py),
            header_key: Cells::of(&rows.header_key, py),
            header_value: Cells::of(&rows.header_value, py),
        }
    }

    /// Type and milliseconds, as the columns have them.
    fn stamp(&self, row: usize) -> PyResult<(i32, i64)> {
        Ok((read(self.timestamp_type, row)?, read(self.timestamp_ms, row)?))
    }

    /// The headers of a row as positions in the columns of headers; None if its message has none.
    fn headers(&self, row: usize) -> PyResult<Option<Range<usize>>> {
        let range = range_of(self.header_ends, row)?;
        if range.end >= self.header_key.ends.len() {
            return Err(outside());
        }
        Ok((1..=MAX_HEADERS).contains(&range.len()).then_some(range))
    }
}

/// A binary or string column.
struct Cells<'a> {
    ends: &'a [ReadOnlyCell<i32>],
    data: &'a [ReadOnlyCell<u8>],
    validity: Option<&'a [ReadOnlyCell<u8>]>,
    first_bit: i64,
}

impl<'a> Cells<'a> {
    fn of((ends, data, validity, first_bit): &'a Given, py: Python<'a>) -> Self {
        Self {
            ends: ends.cells(py),
            data: data.cells(py),
            validity: validity.as_ref().map(|bits| bits.cells(py)),
            first_bit: *first_bit,
        }
    }

    fn is_null(&self, row: usize) -> PyResult<bool> {
        let Some(validity) = self.validity else { return Ok(false) };
        let bit = usize::try_from(self.first_bit).ok().and_then(|first| first.checked_add(row)).ok_or_else(outside)?;
        Ok(read(validity, bit >> 3)? >> (bit & 7) & 1 == 0)
    }

    fn data(&self, row: usize) -> PyResult<&'a [ReadOnlyCell<u8>]> {
        self.data.get(range_of(self.ends, row)?).ok_or_else(outside)
    }

    /// A copy of the item as bytes, or None.
    fn item<'py>(&self, py: Python<'py>, row: usize) -> PyResult<Bound<'py, PyAny>> {
        if self.is_null(row)? { Ok(none(py)) } else { objects::bytes(py, self.data(row)?) }
    }
}

/// The header keys of the row before, by position: where they lie, and as text. Most rows repeat them, and a new reference
/// takes less than a new text.
#[derive(Default)]
struct Names(Vec<(Range<usize>, Py<PyAny>)>);

impl Names {
    /// The header key at `index` as text. It ends at the first NUL, because the binding reads it as a C string.
    fn name<'py>(
        &mut self,
        py: Python<'py>,
        position: usize,
        keys: &Cells<'_>,
        index: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (range, key) = (range_of(keys.ends, index)?, keys.data(index)?);
        let before = self.0.get_mut(position);
        let name = before.as_ref().filter(|(other, _)| keys.data.get(other.clone()).is_some_and(|it| is_same(it, key)));
        if let Some((_, name)) = name {
            return Ok(name.bind(py).clone());
        }
        let end = key.iter().position(|byte| byte.get() == 0).unwrap_or(key.len());
        let name = objects::text(py, &key[..end])?;
        match before {
            Some(before) => *before = (range, name.clone().unbind()),
            None if position < MAX_NAMES => self.0.push((range, name.clone().unbind())),
            None => {}
        }
        Ok(name)
    }
}

fn is_same(one: &[ReadOnlyCell<u8>], other: &[ReadOnlyCell<u8>]) -> bool {
    one.len() == other.len()
        && one.len() <= MAX_NAME_BYTES
        && one.iter().zip(other).all(|(byte, other)| byte.get() == other.get())
}

/// Makes the arguments of one call of `Rows::messages`.
struct Arguments<'a, 'py> {
    py: Python<'py>,
    rows: &'a Rows,
    columns: &'a Columns<'a>,
    kept: Box<Kept>,
}

impl<'py> Arguments<'_, 'py> {
    /// The arguments for one row. They hold until the next row.
    fn of_row(&mut self, row: usize) -> PyResult<&Bound<'py, PyTuple>> {
        let (py, columns) = (self.py, self.columns);
        let (stamp, epoch) = (columns.stamp(row)?, read(columns.leader_epoch, row)?);
        let headers = columns.headers(row)?.map(|range| self.header_list(range)).transpose()?;
        let kept = &mut *self.kept;
        let had_headers = std::mem::replace(&mut kept.has_headers, headers.is_some());
        let before = kept.tuple.take().map(|tuple| tuple.into_bound(py));
        let pair = (before.is_none() || stamp != kept.stamp).then(|| stamp_of(py, stamp)).transpose()?;
        // From here on no object is made that the garbage collector would run for: what has one owner now has no other
        // before the call.
        let tuple = match before.filter(objects::has_one_owner) {
            None => new_tuple(py, self.rows, columns, row, headers, pair.map_or_else(|| stamp_of(py, stamp), Ok)?)?,
            Some(tuple) => {
                objects::put(&tuple, OFFSET, objects::int(py, read(columns.offset, row)?)?)?;
                objects::put(&tuple, KEY, columns.key.item(py, row)?)?;
                objects::put(&tuple, VALUE, columns.value.item(py, row)?)?;
                if let Some(pair) = pair {
                    objects::put(&tuple, TIMESTAMP, pair)?;
                }
                if epoch != kept.epoch {
                    objects::put(&tuple, LEADER_EPOCH, objects::int(py, epoch.into())?)?;
                }
                // The last, because a list that the callee has put objects into may run code when it is dropped, and
                // that code may find the tuple and keep it.
                if had_headers || kept.has_headers {
                    objects::put(&tuple, HEADERS, headers.unwrap_or_else(|| none(py)))?;
                }
                tuple
            }
        };
        (kept.stamp, kept.epoch) = (stamp, epoch);
        Ok(kept.tuple.insert(tuple.unbind()).bind(py))
    }

    fn header_list(&mut self, range: Range<usize>) -> PyResult<Bound<'py, PyAny>> {
        let (py, Kept { names, headers, .. }) = (self.py, &mut *self.kept);
        let (keys, values) = (&self.columns.header_key, &self.columns.header_value);
        for (position, index) in range.enumerate() {
            let name = names.name(py, position, keys, index)?;
            let value = values.item(py, index)?;
            headers.push(objects::tuple(py, [name, value])?.into_any().unbind());
        }
        Ok(objects::list(py, headers.drain(..).map(|pair| pair.into_bound(py)))?.into_any())
    }

    /// For the next call. No key, value or header of a row is in it.
    fn into_kept(self) -> PyResult<Box<Kept>> {
        let (py, mut kept) = (self.py, self.kept);
        if let Some(tuple) = kept.tuple.take().map(|tuple| tuple.into_bound(py)).filter(objects::has_one_owner) {
            objects::put(&tuple, KEY, none(py))?;
            objects::put(&tuple, VALUE, none(py))?;
            if std::mem::take(&mut kept.has_headers) {
                objects::put(&tuple, HEADERS, none(py))?; // the last, as in `of_row`
            }
            kept.tuple = Some(tuple.unbind());
        }
        Ok(kept)
    }
}

fn new_tuple<'py>(
    py: Python<'py>,
    rows: &Rows,
    columns: &Columns<'_>,
    row: usize,
    headers: Option<Bound<'py, PyAny>>,
    stamp: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyTuple>> {
    let arguments = [
        rows.topic.bind(py).clone(),
        rows.partition.bind(py).clone(),
        objects::int(py, read(columns.offset, row)?)?,
        columns.key.item(py, row)?,
        columns.value.item(py, row)?,
        headers.unwrap_or_else(|| none(py)),
        none(py), // error
        stamp,
        rows.latency.bind(py).clone(),
        objects::int(py, read(columns.leader_epoch, row)?.into())?,
    ];
    objects::tuple(py, arguments)
}

/// librdkafka counts types from "not available", Kafka from CreateTime. Magic 0 has none, and the milliseconds 0 there.
fn stamp_of(py: Python<'_>, (kind, ms): (i32, i64)) -> PyResult<Bound<'_, PyAny>> {
    let (kind, ms) = if kind < 0 { (0, 0) } else { (i64::from(kind) + 1, ms) };
    Ok(objects::tuple(py, [objects::int(py, kind)?, objects::int(py, ms)?])?.into_any())
}

fn none(py: Python<'_>) -> Bound<'_, PyAny> {
    py.None().into_bound(py)
}

fn read<T: pyo3::buffer::Element>(column: &[ReadOnlyCell<T>], row: usize) -> PyResult<T> {
    column.get(row).map(ReadOnlyCell::get).ok_or_else(outside)
}

/// The part of an item, from one of Arrow's offsets to the next.
fn range_of(ends: &[ReadOnlyCell<i32>], row: usize) -> PyResult<Range<usize>> {
    let [start, stop] = ends.get(row..).and_then(<[_]>::first_chunk::<2>).ok_or_else(outside)?;
    let (start, stop) = (start.get(), stop.get());
    if start < 0 || stop < start {
        return Err(outside());
    }
    Ok(start as usize..stop as usize)
}

#[cold]
fn outside() -> PyErr {
    PyIndexError::new_err("an offset outside its column")
}
