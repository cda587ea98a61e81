//! The rows of a run as messages: one call of the message class a row.
//!
//! Rules of the file:
//!
//! - `message_reference.py` is the same in plain Python, and gives the same messages and errors.
//! - The columns are those that this crate has made, so their offsets and lengths fit each other.
//! - Code of Python's runs only in the call of the class, and where headers or messages are dropped.
//! - If confluent_kafka's binding shows a record differently from the columns, this module follows the binding.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use pyo3::PyTraverseError;
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyList, PyTuple};

use crate::arrow::{Node, Owned};
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

/// The columns of one run, and the arguments that all its messages share. `message_reference.py` has the meaning of the
/// arguments.
#[pyclass(frozen, module = "remote_fetch.decode._native")]
pub struct Rows {
    make: Py<PyAny>,
    topic: Py<PyAny>,
    partition: Py<PyAny>,
    latency: Py<PyAny>,
    columns: Owned,
    count: usize,
    /// Of the call before. Empty during a call: a callee may call again.
    kept: Mutex<Option<Box<Kept>>>,
}

impl Rows {
    /// Raises ValueError if a column is missing.
    pub fn new(
        py: Python<'_>,
        make: Py<PyAny>,
        topic: Py<PyAny>,
        partition: Py<PyAny>,
        columns: Owned,
        count: usize,
    ) -> PyResult<Self> {
        Columns::of(&columns)?;
        let latency = PyFloat::new(py, -1.0).into_any().unbind();
        Ok(Self { make, topic, partition, latency, columns, count, kept: Mutex::new(None) })
    }

    /// Put something else in the place of what was kept. The caller drops that, after the lock is free: dropping may run
    /// code of Python's, and that may come here.
    fn exchange(&self, kept: Option<Box<Kept>>) -> Option<Box<Kept>> {
        std::mem::replace(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner), kept)
    }
}

#[pymethods]
impl Rows {
    /// The messages of rows [start, stop). Raises IndexError, and the errors of `make`.
    fn messages<'py>(&self, py: Python<'py>, start: i64, stop: i64) -> PyResult<Bound<'py, PyList>> {
        if start >= stop {
            return objects::list(py, [].into_iter());
        }
        let start = usize::try_from(start).map_err(|_| outside())?;
        let stop = usize::try_from(stop).ok().filter(|stop| *stop <= self.count).ok_or_else(outside)?;
        let make = self.make.bind(py);
        let columns = Columns::of(&self.columns)?;
        let kept = self.exchange(None).unwrap_or_default();
        let mut arguments = Arguments { py, rows: self, columns: &columns, kept };
        let mut made = Vec::with_capacity(stop - start);
        for row in start..stop {
            made.push(make.call1(arguments.of_row(row)?)?);
        }
        drop(self.exchange(Some(arguments.into_kept()?)));
        objects::list(py, made.into_iter())
    }

    /// The offset of a row. Raises IndexError.
    fn offset(&self, row: i64) -> PyResult<i64> {
        let row = usize::try_from(row).map_err(|_| outside())?;
        Columns::of(&self.columns)?.offset.get(row).copied().ok_or_else(outside)
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
    offset: &'a [i64],
    timestamp_ms: &'a [i64],
    timestamp_type: &'a [i32],
    leader_epoch: &'a [i32],
    header_ends: &'a [i32],
    header_key: Cells<'a>,
    header_value: Cells<'a>,
}

impl<'a> Columns<'a> {
    fn of(owned: &'a Owned) -> PyResult<Self> {
        let column = |name| owned.child(name).ok_or_else(|| missing(name));
        let headers = column("headers")?;
        let part = |name| headers.child("item").and_then(|items| items.child(name)).ok_or_else(|| missing(name));
        Ok(Self {
            key: Cells::of(column("key")?),
            value: Cells::of(column("value")?),
            offset: column("offset")?.buffers[1].int64(),
            timestamp_ms: column("timestampMs")?.buffers[1].int64(),
            timestamp_type: column("timestampType")?.buffers[1].int32(),
            leader_epoch: column("leaderEpoch")?.buffers[1].int32(),
            header_ends: headers.buffers[1].int32(),
            header_key: Cells::of(part("key")?),
            header_value: Cells::of(part("value")?),
        })
    }

    /// Type and milliseconds, as the columns have them.
    fn stamp(&self, row: usize) -> (i32, i64) {
        (self.timestamp_type[row], self.timestamp_ms[row])
    }

    /// The headers of a row as positions in the columns of headers; None if its message has none.
    fn headers(&self, row: usize) -> Option<Range<usize>> {
        let range = range_of(self.header_ends, row);
        (1..=MAX_HEADERS).contains(&range.len()).then_some(range)
    }
}

/// A binary or string column. `validity` is empty if no item is null.
struct Cells<'a> {
    ends: &'a [i32],
    data: &'a [u8],
    validity: &'a [u8],
}

impl<'a> Cells<'a> {
    fn of(node: &'a Node) -> Self {
        let [validity, ends, data] = [0, 1, 2].map(|at| &node.buffers[at]);
        Self { ends: ends.int32(), data: data.bytes(), validity: validity.bytes() }
    }

    fn is_null(&self, row: usize) -> bool {
        !self.validity.is_empty() && self.validity[row >> 3] >> (row & 7) & 1 == 0
    }

    fn data(&self, row: usize) -> &'a [u8] {
        &self.data[range_of(self.ends, row)]
    }

    /// A copy of the item as bytes, or None.
    fn item<'py>(&self, py: Python<'py>, row: usize) -> PyResult<Bound<'py, PyAny>> {
        if self.is_null(row) { Ok(none(py)) } else { objects::bytes(py, self.data(row)) }
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
        let (range, key) = (range_of(keys.ends, index), keys.data(index));
        let before = self.0.get_mut(position);
        let name = before.as_ref().filter(|(other, _)| keys.data.get(other.clone()).is_some_and(|it| is_same(it, key)));
        if let Some((_, name)) = name {
            return Ok(name.bind(py).clone());
        }
        let end = key.iter().position(|&byte| byte == 0).unwrap_or(key.len());
        let name = objects::text(py, &key[..end])?;
        match before {
            Some(before) => *before = (range, name.clone().unbind()),
            None if position < MAX_NAMES => self.0.push((range, name.clone().unbind())),
            None => {}
        }
        Ok(name)
    }
}

fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() <= MAX_NAME_BYTES && one == other
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
        let (stamp, epoch) = (columns.stamp(row), columns.leader_epoch[row]);
        let headers = columns.headers(row).map(|range| self.header_list(range)).transpose()?;
        let kept = &mut *self.kept;
        let had_headers = std::mem::replace(&mut kept.has_headers, headers.is_some());
        let before = kept.tuple.take().map(|tuple| tuple.into_bound(py));
        let pair = (before.is_none() || stamp != kept.stamp).then(|| stamp_of(py, stamp)).transpose()?;
        // From here on no object is made that the garbage collector would run for: what has one owner now has no other
        // before the call.
        let tuple = match before.filter(objects::has_one_owner) {
            None => new_tuple(py, self.rows, columns, row, headers, pair.map_or_else(|| stamp_of(py, stamp), Ok)?)?,
            Some(tuple) => {
                objects::put(&tuple, OFFSET, objects::int(py, columns.offset[row])?)?;
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
        objects::int(py, columns.offset[row])?,
        columns.key.item(py, row)?,
        columns.value.item(py, row)?,
        headers.unwrap_or_else(|| none(py)),
        none(py), // error
        stamp,
        rows.latency.bind(py).clone(),
        objects::int(py, columns.leader_epoch[row].into())?,
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

/// The part of an item, from one offset to the next.
fn range_of(ends: &[i32], row: usize) -> Range<usize> {
    ends[row] as usize..ends[row + 1] as usize
}

#[cold]
fn outside() -> PyErr {
    PyIndexError::new_err("a row outside its columns")
}

#[cold]
fn missing(name: &str) -> PyErr {
    PyValueError::new_err(format!("a message needs the column '{name}'"))
}
