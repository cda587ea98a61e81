//! A lock that is safe to ask for after a fork.
//!
//! Rules of the file:
//!
//! - A fork copies a lock as it is, and only the thread that forks. If another thread had the lock, nothing unlocks the copy.
//!   So a forked process never waits for a lock that is older than itself.

use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// A value for one thread at a time.
pub struct Lock<T> {
    value: Mutex<T>,
    process: u32,
}

impl<T> Lock<T> {
    pub fn new(value: T) -> Self {
        Self { value: Mutex::new(value), process: process::id() }
    }

    /// Whether this process has made it, and not the one from which this one was forked.
    pub fn is_own(&self) -> bool {
        self.process == process::id()
    }

    /// The value. `None`: a thread had it when this process was forked.
    pub fn get(&self) -> Option<MutexGuard<'_, T>> {
        // No step under a lock of this crate can leave its value half changed by a panic.
        if self.is_own() {
            return Some(self.value.lock().unwrap_or_else(PoisonError::into_inner));
        }
        match self.value.try_lock() {
            Ok(value) => Some(value),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}
