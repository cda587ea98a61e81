"""Why a run of batches ended, as numbers that the native and the plain run decoder share."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["FAULTS", "RunStatus"]


class RunStatus(IntEnum):
    """Why the run decoder stopped. One call of it decodes several batches, which are called a run.

    `native/src/status.rs` has the same numbers.
    """

    FULL = 0
    """The columns have their target size. A run from the same position goes on."""
    END = 1
    """The bytes end before the next batch is complete, or before the header after it, which confirms its place."""
    SPECIAL = 2
    """Plain Python decides: another format or leader epoch, the end of what is wanted, an odd marker or producer."""
    MISPLACED = 3
    """The next batch, or the one after it, has a size or offsets that do not fit its place in the log."""
    BAD_CHECKSUM = 4
    BAD_STREAM = 5
    """The compressed records break their format, end early, or inflate to more than is allowed."""
    TOO_LARGE = 6
    """The records of one batch do not fit a column of 2 GiB."""
    BAD_COUNT = 7
    """The batch is too short for its record count."""
    BAD_VARINT = 8
    """A number is cut off or too long."""
    BAD_LENGTH = 9
    """A record's length is too small or goes past the batch."""
    BAD_OFFSET = 10
    """An offset does not follow the one before it, or is past the batch's last offset."""
    BAD_FIELD = 11
    """A key, a value or a header goes past its record."""
    BAD_HEADER_COUNT = 12
    """A header count is negative or more than the record has room for."""
    BAD_HEADER_KEY = 13
    """A header key is null."""
    BAD_END = 14
    """A record does not end where its length says."""
    BAD_REST = 15
    """Bytes are left after the last record."""


FAULTS = {
    RunStatus.BAD_COUNT: "the batch is too short for its record count",
    RunStatus.BAD_VARINT: "a number is cut off or too long",
    RunStatus.BAD_LENGTH: "the record's length is too small or goes past the batch",
    RunStatus.BAD_OFFSET: "the offset does not follow the one before it, or is past the batch's last offset",
    RunStatus.BAD_FIELD: "a key or value goes past the record",
    RunStatus.BAD_HEADER_COUNT: "the header count is negative or more than the record has room for",
    RunStatus.BAD_HEADER_KEY: "a header key is null",
    RunStatus.BAD_END: "the record does not end where its length says",
    RunStatus.BAD_REST: "bytes are left after the last record",
}
"""The fault of malformed records, for the message of an error."""
