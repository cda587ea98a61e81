"""The records that the feed of one partition has brought, as messages for the application.

Rules of the file:

- Only the application's thread uses it. Only the methods change the fields.
- Messages are made when they are taken. Until then, chunks of decoded rows wait, in the feed's queue or reserved here.
- A handler of a signal may raise after each call, and the application may go on. So no record is in a local variable
  alone while a call is made, and what belongs together is assigned in one statement.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress

from confluent_kafka import Message

from remote_fetch.consumer.feed import Feed
from remote_fetch.decode.decoded_rows import DecodedRows
from remote_fetch.decode.messages import MessageCursor

__all__ = ["StoreRecords"]


class StoreRecords:
    """The records of one partition that the store has given and the application has not.

    A feed may bring records that librdkafka has delivered already. Records before `skip_before` are skipped. 0: none.
    """

    def __init__(self, topic: str, number: int) -> None:
        self._topic, self._number = topic, number
        self.feed: Feed | None = None
        self.skip_before = 0
        self._cursor: MessageCursor | None = None
        self._opening: DecodedRows | None = None
        self._opened: DecodedRows | None = None
        """The chunk of the cursor. It may still be the first one that waits."""
        self.is_torn = False
        """Whether a handler of a signal has ended the making of a cursor: its chunk cannot be opened a second time."""
        self._reserved: deque[DecodedRows] = deque()
        self._returned: list[Message] = []
        self._row_bytes = 1.0

    @property
    def are_ready(self) -> bool:
        """Whether a record can be taken now."""
        if self.is_torn:
            return False
        return bool(self._returned or self._cursor or self._reserved or (self.feed is not None and self.feed.chunks))

    @property
    def ready_count(self) -> int:
        """The least number of records that can be taken now."""
        if self.is_torn:
            return 0
        chunks: tuple[DecodedRows, ...] = (*self._reserved, *(self.feed.chunks if self.feed is not None else ()))
        return len(self._returned) + len(self._cursor or ()) + sum(chunk.num_rows for chunk in chunks)

    def start(self, feed: Feed) -> None:
        """Take records from `feed` from now on. `stop` comes before, if there was another feed."""
        self.feed = feed

    def stop(self) -> None:
        """Drop the feed and all records."""
        self.feed, self._cursor, self._returned, self.skip_before = None, None, [], 0
        self._opening, self._opened, self.is_torn = None, None, False
        self._reserved.clear()

    def skip(self, before: int) -> None:
        """Skip the records before this offset, because librdkafka has delivered them."""
        self.skip_before = before

    def drop_skipped(self) -> None:
        """Drop waiting records that librdkafka has delivered, so that they do not count as ready."""
        if self.skip_before:
            self._open_next()

    def rows_in(self, size_bytes: int) -> int:
        """How many of the next records have about that size together, at least one."""
        self._open_next()
        return max(int(size_bytes / self._row_bytes), 1)

    def reserve(self) -> None:
        """Take the chunks out of the queue of the feed, so that the feed can go on. Their records stay ready here."""
        self.drop_skipped()
        if self.feed is not None:
            with suppress(IndexError):  # the end of the queue
                self._reserved.extend(iter(self.feed.chunks.popleft, None))  # in one call, see above

    def take(self, count: int) -> list[Message]:
        """Take at most `count` records, in order. The list is empty only if there is no record."""
        while len(self._returned) < count and self._open_next():
            assert self._cursor is not None
            made = self._cursor.take(count - len(self._returned))
            if self._returned:
                self._returned += made
            else:  # mostly one chunk has enough, and a copy of many messages takes time
                self._returned = made
        taken, self._returned = self._returned, self._returned[count:]
        del taken[count:]
        return taken

    def put_back(self, messages: list[Message]) -> None:
        """Return records that were taken and not delivered."""
        self._returned = messages + self._returned

    def _open_next(self) -> bool:
        """Open chunks until one has a record. Returns whether a record was found."""
        while not self._cursor and self.feed is not None and (chunks := self._reserved or self.feed.chunks):
            chunk = chunks[0]
            if chunk is not self._opened and chunk.end_offset > self.skip_before:
                if chunk is self._opening:
                    self.is_torn = True
                    return False
                self._opening = chunk
                cursor = MessageCursor(chunk, self._topic, self._number, Message)
                cursor.skip_before(self.skip_before)
                row_bytes = max(chunk.size_bytes / chunk.num_rows, 1.0)
                self._row_bytes, self._cursor, self._opened, self.skip_before = row_bytes, cursor, chunk, 0
            chunks.popleft()
        return bool(self._cursor)
