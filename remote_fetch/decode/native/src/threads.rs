//! Threads that decode runs ahead of the thread that asks for them. They never take the interpreter's lock.
//!
//! Rules of the file:
//!
//! - A piece of work belongs to the object that waits for it. That object holds the bytes, and outlives the reading of them.
//! - Work is begun in the order in which it was handed over. If no thread has begun a piece, the thread that waits for it
//!   does it. So there is no wait for threads that are busy, closed, or were left behind by a fork.
//! - After a fork the threads are those of the other process. Work is then done by the thread that waits for it.
//! - A thread begins with the first work that finds no idle one. All end with `close`.
//! - No object of Python's is made, used or freed in a thread.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::lock::Lock;

type Task<T> = Box<dyn FnOnce() -> T + Send>;

enum State<T> {
    Queued(Task<T>),
    Running,
    /// `None`: it panicked.
    Done(Option<T>),
    Gone,
}

impl<T> State<T> {
    /// The result, once. `None`: the work has not ended.
    fn take(&mut self) -> Option<Result<T, NoResult>> {
        match std::mem::replace(self, State::Gone) {
            State::Done(result) => Some(result.ok_or(NoResult::Panicked)),
            State::Gone => Some(Err(NoResult::Gone)),
            other => {
                *self = other;
                None
            }
        }
    }
}

/// One piece of work.
pub struct Work<T> {
    state: Lock<State<T>>,
    is_done: Condvar,
}

/// Why there is no result.
pub enum NoResult {
    /// Not within the time.
    Late,
    /// The work panicked.
    Panicked,
    /// It was cancelled, or taken before, or it ran in the process from which this one was forked.
    Gone,
}

impl<T> Work<T> {
    /// Do it in this thread, unless it was begun or cancelled before.
    fn run(&self) {
        let Some(mut state) = self.state.get() else { return };
        let task = match std::mem::replace(&mut *state, State::Running) {
            State::Queued(task) => task,
            other => {
                *state = other;
                return;
            }
        };
        drop(state);
        let result = catch_unwind(AssertUnwindSafe(task)).ok();
        if let Some(mut state) = self.state.get() {
            *state = State::Done(result);
        }
        self.is_done.notify_all();
    }

    /// The result, once, if the work has ended. It takes no time.
    pub fn result(&self) -> Option<Result<T, NoResult>> {
        self.state.get().map_or(Some(Err(NoResult::Gone)), |mut state| state.take())
    }

    /// The result, once. Wait for it at most that long, or do the work here if no thread has begun it.
    pub fn wait(&self, timeout: Duration) -> Result<T, NoResult> {
        self.run();
        let until = Instant::now() + timeout;
        let Some(mut state) = self.state.get() else { return Err(NoResult::Gone) };
        loop {
            if let Some(result) = state.take() {
                return result;
            }
            if !self.state.is_own() {
                return Err(NoResult::Gone);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(NoResult::Late);
            }
            state = self.is_done.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Drop what was not begun, and wait for the end of what was. Returns whether nothing uses the bytes any more.
    pub fn end(&self) -> bool {
        let Some(mut state) = self.state.get() else { return false };
        loop {
            match &*state {
                State::Running if !self.state.is_own() => return false,
                State::Running => state = self.is_done.wait(state).unwrap_or_else(PoisonError::into_inner),
                _ => break,
            }
        }
        let left = std::mem::replace(&mut *state, State::Gone);
        drop(state);
        drop(left);
        true
    }
}

struct Queue<T> {
    waiting: VecDeque<Arc<Work<T>>>,
    threads: usize,
    idle: usize,
    is_closed: bool,
}

struct Shared<T> {
    queue: Lock<Queue<T>>,
    changed: Condvar,
}

/// At most `most` threads.
pub struct Threads<T> {
    shared: Arc<Shared<T>>,
    most: usize,
}

impl<T: Send + 'static> Threads<T> {
    pub fn new(most: usize) -> Self {
        let queue = Queue { waiting: VecDeque::new(), threads: 0, idle: 0, is_closed: false };
        Self { shared: Arc::new(Shared { queue: Lock::new(queue), changed: Condvar::new() }), most }
    }

    /// Queue a piece of work. After `close` it is done by the thread that waits for it.
    pub fn submit(&self, task: Task<T>) -> Arc<Work<T>> {
        let work = Arc::new(Work { state: Lock::new(State::Queued(task)), is_done: Condvar::new() });
        if !self.shared.queue.is_own() {
            return work;
        }
        if let Some(mut queue) = self.shared.queue.get().filter(|queue| !queue.is_closed) {
            queue.waiting.push_back(Arc::clone(&work));
            if queue.waiting.len() > queue.idle && queue.threads < self.most {
                let shared = Arc::clone(&self.shared);
                let name = format!("remote-fetch-ahead-{}", queue.threads);
                // Without a thread, the one that waits does the work.
                if thread::Builder::new().name(name).spawn(move || work_for(&shared)).is_ok() {
                    queue.threads += 1;
                }
            }
            drop(queue);
            self.shared.changed.notify_one();
        }
        work
    }

    pub fn count(&self) -> usize {
        self.shared.queue.get().map_or(0, |queue| queue.threads)
    }

    /// End the threads, and wait for them at most that long. Returns how many still run.
    pub fn close(&self, timeout: Duration) -> usize {
        let until = Instant::now() + timeout;
        let Some(mut queue) = self.shared.queue.get() else { return 0 };
        queue.is_closed = true;
        queue.waiting.clear();
        self.shared.changed.notify_all();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if queue.threads == 0 || left.is_zero() {
                return queue.threads;
            }
            queue = self.shared.changed.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl<T> Drop for Threads<T> {
    /// The threads end by themselves.
    fn drop(&mut self) {
        if let Some(mut queue) = self.shared.queue.get() {
            queue.is_closed = true;
        }
        self.shared.changed.notify_all();
    }
}

/// The loop of a thread.
fn work_for<T>(shared: &Shared<T>) {
    let Some(mut queue) = shared.queue.get() else { return };
    while !queue.is_closed {
        if let Some(work) = queue.waiting.pop_front() {
            drop(queue);
            work.run();
            drop(work);
            let Some(again) = shared.queue.get() else { return };
            queue = again;
        } else {
            queue.idle += 1;
            queue = shared.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        }
    }
    queue.threads -= 1;
    drop(queue);
    shared.changed.notify_all();
}
