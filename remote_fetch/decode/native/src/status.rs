//! Why a run ended. `run_status.py` has the same numbers and a sentence for each.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Status {
    Full = 0,
    End = 1,
    Special = 2,
    Misplaced = 3,
    BadChecksum = 4,
    BadStream = 5,
    TooLarge = 6,
    BadCount = 7,
    BadVarint = 8,
    BadLength = 9,
    BadOffset = 10,
    BadField = 11,
    BadHeaderCount = 12,
    BadHeaderKey = 13,
    BadEnd = 14,
    BadRest = 15,
}
