//! Threads that decode runs ahead of the thread that asks for them. They never take the interpreter's lock.
//!
//! Rules of the file:
//!
//! - A piece of work belongs to the object that waits for it. That object holds the bytes, and outlives the reading of them.
//! - Work is begun in the order in which it was handed over. If no thread has begun a piece, the thread that waits for it
//!   does it. So there is no wait for threads that are busy, closed, or were left behind by a fork.
//! - A thread begins with the first work that finds no idle one. All end with `close`.
//! - No object of Python's is made, used or freed in a thread.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

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
    state: Mutex<State<T>>,
    is_done: Condvar,
    process: u32,
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

pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No step under a lock of this crate can leave its value half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Work<T> {
    /// Do it in this thread, unless it was begun or cancelled before.
    fn run(&self) {
        let mut state = locked(&self.state);
        let task = match std::mem::replace(&mut *state, State::Running) {
            State::Queued(task) => task,
            other => {
                *state = other;
                return;
            }
        };
        drop(state);
        let result = catch_unwind(AssertUnwindSafe(task)).ok();
        *locked(&self.state) = State::Done(result);
        self.is_done.notify_all();
    }

    /// The result, once, if the work has ended. It takes no time.
    pub fn result(&self) -> Option<Result<T, NoResult>> {
        locked(&self.state).take()
    }

    /// The result, once. Wait for it at most that long, or do the work here if no thread has begun it.
    pub fn wait(&self, timeout: Duration) -> Result<T, NoResult> {
        self.run();
        let until = Instant::now() + timeout;
        let mut state = locked(&self.state);
        loop {
            if let Some(result) = state.take() {
                return result;
            }
            if self.process != process::id() {
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
        let mut state = locked(&self.state);
        loop {
            match &*state {
                State::Running if self.process != process::id() => return false,
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
    queue: Mutex<Queue<T>>,
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
        Self { shared: Arc::new(Shared { queue: Mutex::new(queue), changed: Condvar::new() }), most }
    }

    /// Queue a piece of work. After `close` it is done by the thread that waits for it.
    pub fn submit(&self, task: Task<T>) -> Arc<Work<T>> {
        let work =
            Arc::new(Work { state: Mutex::new(State::Queued(task)), is_done: Condvar::new(), process: process::id() });
        let mut queue = locked(&self.shared.queue);
        if !queue.is_closed {
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
        locked(&self.shared.queue).threads
    }

    /// End the threads, and wait for them at most that long. Returns how many still run.
    pub fn close(&self, timeout: Duration) -> usize {
        let until = Instant::now() + timeout;
        let mut queue = locked(&self.shared.queue);
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
        locked(&self.shared.queue).is_closed = true;
        self.shared.changed.notify_all();
    }
}

/// The loop of a thread.
fn work_for<T>(shared: &Shared<T>) {
    let mut queue = locked(&shared.queue);
    while !queue.is_closed {
        if let Some(work) = queue.waiting.pop_front() {
            drop(queue);
            work.run();
            drop(work);
            queue = locked(&shared.queue);
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
