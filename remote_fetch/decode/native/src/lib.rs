//! Runs of Kafka record batches, from bytes to Arrow columns, with one call and without the interpreter's lock.
//!
//! Rules of the crate:
//!
//! - It decides nothing: a batch that is not ordinary ends a run, with a position and a status, and plain Python goes on.
//! - `run_reference.py` is the same in plain Python. Both give the same answer to the same bytes.
//! - `unsafe` is in `arrow` (the way out), in `lz4` and `deflate` (one call of their libraries) and here (the bytes of the caller).

mod arrow;
mod codecs;
mod columns;
mod deflate;
mod frame;
mod lz4;
mod records;
mod run;
mod status;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::arrow::Node;
use crate::codecs::Codecs;
use crate::columns::{NAMES, Room};
use crate::frame::{Aborted, Place};
use crate::run::{Outcome, Slice, Start, Tools};

/// Decodes the runs of one slice. `run_decoder.py` has the meaning of the arguments. One thread at a time.
#[pyclass(frozen, module = "remote_fetch.decode._native")]
struct RunDecoder {
    slice: Slice,
    tools: std::sync::Mutex<Tools>,
}

/// The columns of one run, as `__arrow_c_array__` gives them, once.
#[pyclass(frozen, module = "remote_fetch.decode._native")]
struct Run {
    outcome: Outcome,
    #[pyo3(get)]
    rows: usize,
    node: std::sync::Mutex<Option<Node>>,
}

#[pymethods]
impl RunDecoder {
    #[new]
    #[pyo3(signature = (columns, *, segment_offsets, stop_offset, entries, aborted, max_batch_bytes,
                        max_decompressed_bytes, target_bytes, max_rows))]
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
    ) -> PyResult<Self> {
        let mut wanted = 0;
        for column in columns {
            let bit = NAMES.iter().position(|name| *name == column);
            wanted |= 1 << bit.ok_or_else(|| PyValueError::new_err(format!("no column {column:?}")))?;
        }
        Ok(Self {
            slice: Slice {
                wanted,
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
            tools: std::sync::Mutex::new(Tools { codecs: Codecs::new(max_decompressed_bytes), room: Room::default() }),
        })
    }

    #[pyo3(signature = (data, at, *, last_offset, first_offset, epoch, epoch_stop))]
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
    ) -> PyResult<Run> {
        let start = Start { at, last_offset, first_offset, epoch, epoch_stop };
        let buffer = PyBuffer::<u8>::get(data)?;
        if !buffer.readonly() || !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err("a run is decoded from contiguous bytes that are read only"));
        }
        let size_bytes = buffer.len_bytes();
        let bytes: &[u8] = if size_bytes == 0 {
            &[]
        } else {
            // SAFETY: the buffer keeps `size_bytes` alive until it is dropped, below. It is read only.
            unsafe { slice::from_raw_parts(buffer.buf_ptr().cast(), size_bytes) }
        };
        let done = py.detach(|| {
            catch_unwind(AssertUnwindSafe(|| {
                let mut tools = self.tools.try_lock().map_err(|_| "a run decoder is used by one thread at a time")?;
                let (outcome, columns) = run::decode(&self.slice, &mut tools, bytes, &start);
                Ok(Run { outcome, rows: columns.rows(), node: std::sync::Mutex::new(Some(columns.into_node())) })
            }))
        });
        drop(buffer);
        done.unwrap_or(Err("the run decoder failed: this is a bug of remote-fetch")).map_err(PyRuntimeError::new_err)
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
    fn shown(&self) -> std::collections::BTreeMap<i64, i64> {
        self.outcome.shown.clone()
    }

    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let _ = requested_schema; // a request may be left unanswered
        let node = self.node.lock().ok().and_then(|mut node| node.take());
        let (schema, array) = node.ok_or_else(|| PyRuntimeError::new_err("the columns are taken already"))?.export();
        Ok((
            PyCapsule::new_with_value(py, schema, c"arrow_schema")?,
            PyCapsule::new_with_value(py, array, c"arrow_array")?,
        ))
    }
}

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::{Run, RunDecoder};
}
