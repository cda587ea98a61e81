//! Objects of Python that are made by the million. A failure is an error of Python's, never a panic.
//!
//! Rules of the file:
//!
//! - PyO3 panics if such an object cannot be made, so these functions call the C API themselves. Hence `unsafe`, one call
//!   in each function.
//! - A tuple or a list is filled as soon as it is made, with items that were made before. No code of Python's runs in
//!   between, so the garbage collector shows nobody an unfinished one.

use std::ffi::{c_int, c_long};
use std::ptr;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

/// A copy as bytes.
pub fn bytes<'py>(py: Python<'py>, data: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the slice is `len` readable bytes, and a slice is never longer than `isize::MAX`. The result is a new
    // reference, or NULL with an error set.
    unsafe {
        let made = ffi::PyBytes_FromStringAndSize(data.as_ptr().cast(), data.len() as ffi::Py_ssize_t);
        Bound::from_owned_ptr_or_err(py, made)
    }
}

/// UTF-8 as text. Raises UnicodeDecodeError.
pub fn text<'py>(py: Python<'py>, data: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: as in `bytes`. NULL stands for strict errors.
    unsafe {
        let made = ffi::PyUnicode_DecodeUTF8(data.as_ptr().cast(), data.len() as ffi::Py_ssize_t, ptr::null());
        Bound::from_owned_ptr_or_err(py, made)
    }
}

pub fn int(py: Python<'_>, number: i64) -> PyResult<Bound<'_, PyAny>> {
    // SAFETY: the result is a new reference, or NULL with an error set.
    unsafe {
        let made = match c_long::try_from(number) {
            Ok(number) => ffi::PyLong_FromLong(number), // the quicker one, if it takes all 64 bits
            Err(_) => ffi::PyLong_FromLongLong(number),
        };
        Bound::from_owned_ptr_or_err(py, made)
    }
}

pub fn tuple<'py, const N: usize>(py: Python<'py>, items: [Bound<'py, PyAny>; N]) -> PyResult<Bound<'py, PyTuple>> {
    // SAFETY: the result is a new reference to a tuple, or NULL with an error set.
    let made = unsafe {
        Bound::from_owned_ptr_or_err(py, ffi::PyTuple_New(N as ffi::Py_ssize_t))?.cast_into_unchecked::<PyTuple>()
    };
    for (index, item) in items.into_iter().enumerate() {
        put(&made, index, item)?;
    }
    Ok(made)
}

/// Whether the given reference is the only one. Where it cannot be told, there are others.
pub fn has_one_owner(tuple: &Bound<'_, PyTuple>) -> bool {
    // SAFETY: the object is alive, and the interpreter's lock is held.
    unsafe { ffi::Py_REFCNT(tuple.as_ptr()) == 1 }
}

/// Replace an item of a tuple that has no other owner. Raises SystemError if it has one, or if there is no such item.
pub fn put<'py>(tuple: &Bound<'py, PyTuple>, index: usize, item: Bound<'py, PyAny>) -> PyResult<()> {
    // SAFETY: both are valid objects. The function takes the reference to the item even if it fails, and it checks the
    // index and the number of owners. No reference that was borrowed from the tuple is in use.
    let code = unsafe { ffi::PyTuple_SetItem(tuple.as_ptr(), index as ffi::Py_ssize_t, item.into_ptr()) };
    checked(tuple.py(), code)
}

pub fn list<'py>(
    py: Python<'py>,
    items: impl ExactSizeIterator<Item = Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyList>> {
    // SAFETY: the result is a new reference to a list, or NULL with an error set.
    let made = unsafe {
        Bound::from_owned_ptr_or_err(py, ffi::PyList_New(items.len() as ffi::Py_ssize_t))?
            .cast_into_unchecked::<PyList>()
    };
    for (index, item) in items.enumerate() {
        // SAFETY: both are valid objects. The function takes the reference to the item even if it fails, and it checks
        // the index.
        let code = unsafe { ffi::PyList_SetItem(made.as_ptr(), index as ffi::Py_ssize_t, item.into_ptr()) };
        checked(py, code)?;
    }
    Ok(made)
}

/// The error that a function of the C API has set, if it returned one.
fn checked(py: Python<'_>, code: c_int) -> PyResult<()> {
    if code == 0 { Ok(()) } else { Err(PyErr::fetch(py)) }
}
