"""The records that the feed of one partition has brought, as messages for the application.

Rules of the file:

- Only the application's thread comes here. The fields change through the methods alone.
- Messages are made when they are taken: chunks wait in the feed as Arrow batches.
"""

from __future__ import annotations

from confluent_kafka import Message

from remote_fetch.consumer.feed import Feed
from remote_fetch.decode.messages import MessageCursor

__all__ = ["StoreRecords"]


class StoreRecords:
    """The records of one partition that the store has given and the application has not.

    `skip_before` is the offset before which librdkafka has delivered the records that a feed brings; 0: no such record
    comes any more.
    """

    def __init__(self, topic: str, number: int) -> None:
        self._topic, self._number = topic, number
        self.feed: Feed | None = None
        self.skip_before = 0
        self._cursor: MessageCursor | None = None
        self._returned: list[Message] = []

    @property
    def are_ready(self) -> bool:
        """Whether a record can be taken now."""
        return bool(self._returned or self._cursor or (self.feed is not None and self.feed.chunks))

    @property
    def ready_count(self) -> int:
        """How many records, at least, can be taken now."""
        chunks = self.feed.chunks if self.feed is not None else ()
        return len(self._returned) + len(self._cursor or ()) + sum(chunk.rows for chunk in tuple(chunks))

    def start(self, feed: Feed) -> None:
        """Take records from `feed` from now on."""
        self._drop()
        self.feed = feed

    def stop(self) -> Feed | None:
        """Drop the feed and all records. Returns the feed, if there was one."""
        self._drop()
        feed, self.feed = self.feed, None
        return feed

    def skip(self, before: int) -> None:
        """librdkafka has delivered the records before this offset: do not give them once more."""
        self.skip_before = before

    def drop_skipped(self) -> None:
        """Drop waiting records that librdkafka has delivered, so that they do not count as ready."""
        if self.skip_before:
            self._open_next()

    def take(self, count: int) -> list[Message]:
        """At most `count` records in their order; an empty list only if there is none."""
        taken, self._returned = self._returned[:count], self._returned[count:]
        while len(taken) < count and self._open_next():
            assert self._cursor is not None
            taken += self._cursor.take(count - len(taken))
        return taken

    def put_back(self, messages: list[Message]) -> None:
        """Return records that were taken and not delivered."""
        self._returned = messages + self._returned

    def _open_next(self) -> bool:
        """Open chunks until one has a record. Returns whether there is one."""
        while not self._cursor and self.feed is not None and self.feed.chunks:
            self._cursor = MessageCursor(self.feed.chunks.popleft().batch, self._topic, self._number, Message)
            self._cursor.skip_before(self.skip_before)
            if self._cursor:
                self.skip_before = 0
        return bool(self._cursor)

    def _drop(self) -> None:
        self._cursor, self._returned, self.skip_before = None, [], 0
