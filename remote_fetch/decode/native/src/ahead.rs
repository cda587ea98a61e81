//! Runs that a thread decodes ahead of the reader, as Python has them.
//!
//! Rules of the file:
//!
//! - `Ahead` holds the caller's bytes, and waits for the end of the work before it gives them back.
//! - A thread has no object of Python's. So it never takes the interpreter's lock, and waits for no thread that has it.

use std::mem;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::bytes::Bytes;
use crate::threads::{NoResult, Threads, Work};
use crate::{BUG, Run};

/// Threads that decode runs ahead, without the interpreter's lock.
#[pyclass(frozen, module = "remote_fetch.decode._native")]
pub struct DecodeThreads(Threads<Vec<Run>>);

#[pymethods]
impl DecodeThreads {
    #[new]
    fn new(most: usize) -> Self {
        Self(Threads::new(most))
    }

    /// How many threads there are now.
    #[getter]
    fn count(&self) -> usize {
        self.0.count()
    }

    /// End the threads. Returns how many still run after that time.
    fn close(&self, py: Python<'_>, timeout_ms: u64) -> usize {
        py.detach(|| self.0.close(Duration::from_millis(timeout_ms)))
    }
}

/// Runs that are decoded, or will be.
#[pyclass(frozen, module = "remote_fetch.decode._native")]
pub struct Ahead {
    work: Arc<Work<Vec<Run>>>,
    bytes: Option<Bytes>,
}

impl Ahead {
    /// Let one of `threads` call `decode` with the bytes.
    pub(crate) fn begin(
        threads: &DecodeThreads,
        bytes: Bytes,
        decode: impl FnOnce(&[u8]) -> Vec<Run> + Send + 'static,
    ) -> Self {
        let lent = Lent(bytes.as_slice().as_ptr(), bytes.as_slice().len());
        let work = threads.0.submit(Box::new(move || decode(lent.as_slice())));
        Self { work, bytes: Some(bytes) }
    }
}

#[pymethods]
impl Ahead {
    /// The runs, once; `None` if they are not there in time.
    fn wait(&self, py: Python<'_>, timeout_ms: u64) -> PyResult<Option<Vec<Run>>> {
        // A thread that gives the interpreter's lock away may get it back only after 5 ms.
        let result = self.work.result();
        match result.unwrap_or_else(|| py.detach(|| self.work.wait(Duration::from_millis(timeout_ms)))) {
            Ok(runs) => Ok(Some(runs)),
            Err(NoResult::Late) => Ok(None),
            Err(NoResult::Panicked) => Err(PyRuntimeError::new_err(BUG)),
            Err(NoResult::Gone) => {
                Err(PyRuntimeError::new_err("these runs were taken already, or their process forked"))
            }
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        if !self.work.end() {
            mem::forget(self.bytes.take()); // a thread of the process before the fork had them
        }
    }
}

/// Bytes of an `Ahead`, which keeps them until no thread reads them.
struct Lent(*const u8, usize);

// SAFETY: the bytes are read only, so any thread may read them.
unsafe impl Send for Lent {}

impl Lent {
    fn as_slice(&self) -> &[u8] {
        // SAFETY: only the work of an `Ahead` has this, and only while the work is done. `Ahead` holds the bytes until
        // then.
        unsafe { slice::from_raw_parts(self.0, self.1) }
    }
}
