//! Runs of Kafka record batches, from bytes to columns in Arrow's layout, with one call and without the interpreter's lock.
//!
//! Rules of the crate:
//!
//! - It decides nothing: a batch that is not ordinary ends a run, with a position and a status, and plain Python goes on.
//! - `run_reference.py` is the same in plain Python. Both give the same answer to the same bytes.
//! - `unsafe` is in `arrow` (the way out), in `lz4` and `deflate` (one call of their libraries), in `bytes` and `ahead` (the
//!   caller's bytes), and in `objects` (calls of the C API).
//! - `messages` is the other way out: from columns to objects of Python, with the lock.

mod ahead;
mod arrow;
mod bytes;
mod codecs;
mod columns;
mod deflate;
mod frame;
mod join;
mod lock;
mod lz4;
mod markers;
mod messages;
mod objects;
mod records;
mod run;
mod spare;
mod status;
mod threads;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::{PyOverflowError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule};

use crate::ahead::{Ahead, DecodeThreads};
use crate::arrow::Owned;
use crate::bytes::Bytes;
use crate::columns::{Columns, NAMES, Room};
use crate::frame::{Aborted, Header, Place};
use crate::lock::Lock;
use crate::messages::Rows;
use crate::run::{Guess, Outcome, Slice, Start, Tools};
use crate::spare::Spare;
use crate::status::Status;

/// Memory for columns, used again and again by all decoders that have it. Any thread may use it.
#[pyclass(frozen, module = "remote_fetch.decode._native")]
struct ColumnMemory(Arc<Spare>);

#[pymethods]
impl ColumnMemory {
    #[new]
    fn new(max_bytes: usize) -> Self {
        Self(Arc::new(Spare::new(max_bytes)))
    }

    /// Free all of it, and keep none from now on.
    fn close(&self) {
        self.0.close();
    }
}

/// Decodes the runs of one slice. `run_decoder.py` has the meaning of the arguments. Any thread may use it.
#[pyclass(frozen, module = "remote_fetch.decode._native")]
struct RunDecoder(Arc<Decoder>);

struct Decoder {
    slice: Slice,
    max_decompressed_bytes: usize,
    spare: Arc<Spare>,
    guess: Lock<Guess>,
}

impl Decoder {
    fn decode(&self, data: &[u8], start: &Start) -> Run {
        let mut tools = Tools {
            codecs: self.spare.codecs(self.max_decompressed_bytes),
            guess: self.guess.get().map_or_else(Guess::default, |guess| *guess),
            spare: Arc::clone(&self.spare),
        };
        let (outcome, columns) = run::decode(&self.slice, &mut tools, data, start);
        if let Some(mut guess) = self.guess.get() {
            *guess = tools.guess;
        }
        self.spare.give_back_codecs(tools.codecs); // not after a panic
        Run::of(outcome, columns, &self.spare)
    }

    /// Runs, one after the other, until one ends for another reason than its size, or until they have `most_bytes`.
    fn decode_many(&self, data: &[u8], mut start: Start, most_bytes: usize) -> Vec<Run> {
        let (mut runs, mut size_bytes) = (Vec::new(), 0);
        while size_bytes < most_bytes {
            let run = self.decode(data, &start);
            size_bytes += run.size_bytes;
            start.at = run.outcome.position;
            start.last_offset = run.outcome.last_offset;
            let goes_on = run.outcome.status == Status::Full && run.outcome.taken > 0;
            runs.push(run);
            if !goes_on {
                break;
            }
        }
        runs
    }
}

/// The columns of one run. `__arrow_c_array__` or `messages` takes them, once.
#[pyclass(frozen, module = "remote_fetch.decode._native")]
struct Run {
    outcome: Outcome,
    #[pyo3(get)]
    rows: usize,
    #[pyo3(get)]
    size_bytes: usize,
    #[pyo3(get)]
    end_offset: i64,
    #[pyo3(get)]
    saturated: usize,
    columns: Mutex<Option<Owned>>,
}

#[pymethods]
impl RunDecoder {
    #[new]
    #[pyo3(signature = (columns, *, segment_offsets, stop_offset, entries, aborted, max_batch_bytes,
                        max_decompressed_bytes, target_bytes, max_rows, memory = None))]
    #[expect(clippy::too_many_arguments)]
    fn new(
        columns: Vec<String>,
        segment_offsets: (i64, i64),
        stop_offset: i64,
        entries: (i64, i64),
        aborted: Option<Vec<(i64, i64, i64)>>,
        max_batch_bytes: i64,
        max_decompressed_bytes: usize,
        target_bytes: usize,
        max_rows: usize,
        memory: Option<&ColumnMemory>,
    ) -> PyResult<Self> {
        let spare = memory.map_or_else(Arc::default, |memory| Arc::clone(&memory.0));
        Ok(Self(Arc::new(Decoder {
            slice: Slice {
                wanted: bits_of(&columns)?,
                place: Place {
                    segment_start: segment_offsets.0,
                    segment_end: segment_offsets.1,
                    stop_offset,
                    entries,
                    max_batch_bytes,
                },
                aborted: aborted.map(Aborted::of),
                target_bytes,
                max_rows,
            },
            max_decompressed_bytes,
            spare,
            guess: Lock::new(Guess::default()),
        })))
    }

    /// Where the batches end that a run from `at` takes, as far as their headers tell: position, last offset, number, and
    /// whether a header follows that fits.
    #[pyo3(signature = (data, at, size_bytes, *, last_offset, epoch, epoch_stop))]
    fn cut(
        &self,
        data: &Bound<'_, PyAny>,
        at: usize,
        size_bytes: usize,
        last_offset: i64,
        epoch: i32,
        epoch_stop: i64,
    ) -> PyResult<(usize, i64, usize, bool)> {
        let start = Start { at, last_offset, first_offset: 0, epoch, epoch_stop, stop: None };
        let bytes = Bytes::of(data)?;
        let cut = run::cut(&self.0.slice, bytes.as_slice(), &start, size_bytes);
        Ok((cut.position, cut.last_offset, cut.taken, cut.is_confirmed))
    }

    #[pyo3(signature = (data, at, *, last_offset, first_offset, epoch, epoch_stop, stop = None))]
    #[expect(clippy::too_many_arguments)]
    fn decode(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        at: usize,
        last_offset: i64,
        first_offset: i64,
        epoch: i32,
        epoch_stop: i64,
        stop: Option<usize>,
    ) -> PyResult<Run> {
        let start = Start { at, last_offset, first_offset, epoch, epoch_stop, stop };
        let bytes = Bytes::of(data)?;
        let slice = bytes.as_slice();
        without_the_lock(py, || Ok(self.0.decode(slice, &start)))
    }

    /// As `decode`, in a thread of `threads`, and on until the runs have `most_bytes`.
    #[pyo3(signature = (data, at, *, last_offset, first_offset, epoch, epoch_stop, stop, threads, most_bytes))]
    #[expect(clippy::too_many_arguments)]
    fn decode_ahead(
        &self,
        data: &Bound<'_, PyAny>,
        at: usize,
        last_offset: i64,
        first_offset: i64,
        epoch: i32,
        epoch_stop: i64,
        stop: usize,
        threads: &DecodeThreads,
        most_bytes: usize,
    ) -> PyResult<Ahead> {
        let start = Start { at, last_offset, first_offset, epoch, epoch_stop, stop: Some(stop) };
        let decoder = Arc::clone(&self.0);
        Ok(Ahead::begin(threads, Bytes::of(data)?, move |data| decoder.decode_many(data, start, most_bytes)))
    }
}

/// Gathers the records of single batches, already decompressed. `run_decoder.py` has the meaning of the arguments.
#[pyclass(frozen, module = "remote_fetch.decode._native")]
struct BatchDecoder {
    wanted: u8,
    columns: Mutex<Columns>,
}

#[pymethods]
impl BatchDecoder {
    #[new]
    fn new(columns: Vec<String>) -> PyResult<Self> {
        let wanted = bits_of(&columns)?;
        let columns = Columns::new(wanted, Room::default(), &Spare::default());
        Ok(Self { wanted, columns: Mutex::new(columns) })
    }

    /// The status, and then the rows and the bytes of the largest column that are not yet taken.
    #[pyo3(signature = (records, *, offsets, window, record_count, base_ms, timestamp_type, leader_epoch))]
    #[expect(clippy::too_many_arguments)]
    fn append(
        &self,
        py: Python<'_>,
        records: &Bound<'_, PyAny>,
        offsets: (i64, i64),
        window: (i64, i64),
        record_count: i32,
        base_ms: i64,
        timestamp_type: i32,
        leader_epoch: i32,
    ) -> PyResult<(u8, usize, usize)> {
        if offsets.0 < 0 || offsets.1 < offsets.0 {
            let told = "a batch has a base offset and a last offset that is not before it";
            return Err(PyValueError::new_err(told));
        }
        let header = Header::of_records(offsets.0, offsets.1, record_count, base_ms, timestamp_type, leader_epoch);
        let bytes = Bytes::of(records)?;
        let area = bytes.as_slice();
        without_the_lock(py, || {
            let mut columns = self.columns.try_lock().map_err(|_| ONE_THREAD)?;
            let status = run::append(&mut columns, area, &header, window.0, window.1);
            Ok((status as u8, columns.rows(), columns.size_bytes()))
        })
    }

    /// The rows so far. The decoder is empty afterwards.
    fn take(&self) -> PyResult<Run> {
        let mut columns = self.columns.try_lock().map_err(|_| PyRuntimeError::new_err(ONE_THREAD))?;
        let nothing_kept = Arc::default();
        let next = Columns::new(self.wanted, columns.room(), &nothing_kept);
        let taken = std::mem::replace(&mut *columns, next);
        Ok(Run::of(Outcome::none(), taken, &nothing_kept))
    }
}

const BUG: &str = "the run decoder failed: this is a bug of remote-fetch";
const ONE_THREAD: &str = "a decoder is used by one thread at a time";

/// Run without the interpreter's lock. A panic becomes an exception.
fn without_the_lock<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T, &'static str> + Send) -> PyResult<T> {
    py.detach(|| catch_unwind(AssertUnwindSafe(work))).unwrap_or(Err(BUG)).map_err(PyRuntimeError::new_err)
}

/// The columns as bits of `NAMES`.
fn bits_of(columns: &[String]) -> PyResult<u8> {
    let mut wanted = 0;
    for column in columns {
        let bit = NAMES.iter().position(|name| name == column);
        wanted |= 1 << bit.ok_or_else(|| PyValueError::new_err(format!("no column {column:?}")))?;
    }
    Ok(wanted)
}

impl Run {
    fn of(outcome: Outcome, columns: Columns, spare: &Arc<Spare>) -> Self {
        let (rows, saturated, end_offset) = (columns.rows(), columns.saturated(), columns.end_offset());
        let node = columns.into_node().trimmed();
        let size_bytes = if rows > 0 { node.size_bytes() } else { 0 };
        let columns = Mutex::new(Some(Owned::new(node, spare)));
        Self { outcome, rows, size_bytes, end_offset, saturated, columns }
    }

    fn take(&self) -> PyResult<Owned> {
        let mut columns = self.columns.lock().unwrap_or_else(PoisonError::into_inner);
        columns.take().ok_or_else(|| PyRuntimeError::new_err("the columns are taken already"))
    }
}

#[pymethods]
impl Run {
    #[getter]
    fn position(&self) -> usize {
        self.outcome.position
    }

    #[getter]
    fn last_offset(&self) -> i64 {
        self.outcome.last_offset
    }

    #[getter]
    fn taken(&self) -> usize {
        self.outcome.taken
    }

    #[getter]
    fn status(&self) -> u8 {
        self.outcome.status as u8
    }

    #[getter]
    fn shown(&self) -> BTreeMap<i64, i64> {
        self.outcome.shown.clone()
    }

    #[getter]
    fn ended_producers(&self) -> BTreeSet<i64> {
        self.outcome.ended_producers.clone()
    }

    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let _ = requested_schema; // a request may be left unanswered
        let (schema, array) = self.take()?.export();
        Ok((
            PyCapsule::new_with_value(py, schema, c"arrow_schema")?,
            PyCapsule::new_with_value(py, array, c"arrow_array")?,
        ))
    }

    /// The rows as messages. Raises ValueError if a column is missing that a message needs.
    fn messages(&self, py: Python<'_>, make: Py<PyAny>, topic: Py<PyAny>, partition: Py<PyAny>) -> PyResult<Rows> {
        Rows::new(py, make, topic, partition, self.take()?, self.rows)
    }
}

/// The rows of several runs of one reader, as one run. It takes their columns.
#[pyfunction]
fn joined(runs: Vec<PyRef<'_, Run>>) -> PyResult<Run> {
    let parts = runs.iter().map(|run| run.take()).collect::<PyResult<Vec<_>>>()?;
    let columns =
        Owned::joined(parts).ok_or_else(|| PyOverflowError::new_err("joined rows that no column can hold"))?;
    let size_bytes = columns.size_bytes();
    Ok(Run {
        outcome: Outcome::none(),
        rows: runs.iter().map(|run| run.rows).sum(),
        size_bytes,
        end_offset: runs.iter().map(|run| run.end_offset).max().unwrap_or(0),
        saturated: runs.iter().map(|run| run.saturated).sum(),
        columns: Mutex::new(Some(columns)),
    })
}

/// 0, `step`, twice `step` and so on: `count` numbers of 32 bits in the order of this machine's bytes.
#[pyfunction]
fn multiples(py: Python<'_>, step: i32, count: usize) -> PyResult<Bound<'_, PyBytes>> {
    let last = i32::try_from(count.saturating_sub(1)).ok().and_then(|last| last.checked_mul(step));
    let size_bytes = last.and(count.checked_mul(size_of::<i32>()));
    let size_bytes = size_bytes.ok_or_else(|| PyOverflowError::new_err("the last multiple has more than 32 bits"))?;
    PyBytes::new_with(py, size_bytes, |bytes| {
        let mut multiple = 0;
        for place in bytes.chunks_exact_mut(size_of::<i32>()) {
            place.copy_from_slice(&i32::to_ne_bytes(multiple));
            multiple = multiple.wrapping_add(step); // after the last one it may wrap
        }
        Ok(())
    })
}

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::{BatchDecoder, ColumnMemory, Run, RunDecoder, joined, multiples};
    #[pymodule_export]
    use crate::ahead::{Ahead, DecodeThreads};
    #[pymodule_export]
    use crate::messages::Rows;
}
