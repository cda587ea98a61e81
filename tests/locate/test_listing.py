"""The listing locator: ends of segments that are inferred, measured, and measured again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from remote_fetch.errors import UnknownTopic, Unlocatable
from remote_fetch.locate.listing import ListingLocator, Listings
from remote_fetch.locate.locator import SharedLocator
from remote_fetch.model import (
    UNKNOWN_SIZE,
    IndexType,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    Survey,
    TopicIdPartition,
    Uuid,
)
from remote_fetch.observe import Event, Notice
from remote_fetch.session.locator_kinds import with_real_ends
from remote_fetch.session.parallel import all_at_once
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.segments import SegmentOptions, encode_offset_index
from tests.cases import each_of
from tests.locate.bucket_reader import BucketReader
from tests.scan.bucket import DENSE, Bucket, plain_log

LOST, DELETED = Uuid(b"a lost segment's"), RemoteLogSegmentState.DELETE_SEGMENT_STARTED


class Calling(BucketReader):
    """Calls a function before it reads an index."""

    def __init__(self, bucket: Bucket) -> None:
        super().__init__(bucket)
        self.before_an_index: Callable[[], object] = lambda: None

    def read_index(self, segment: RemoteLogSegmentMetadata, index_type: IndexType) -> memoryview | None:
        self.before_an_index()
        return super().read_index(segment, index_type)


def several_partitions(count: int) -> Bucket:
    """A bucket with `count` partitions of one topic, each of one segment."""
    logs = [LogBuilder("t", Uuid(bytes([9] * 16)), partition=number) for number in range(count)]
    for log in logs:
        log.append_batch([Record(n, n) for n in range(log.topic_id_partition.partition + 1)])
        log.roll()
    return Bucket(segment for log in logs for segment in log.segments())


def locator_of(bucket: Bucket) -> tuple[ListingLocator, BucketReader]:
    reader = BucketReader(bucket)
    return ListingLocator(Listings(bucket.list_segments), reader), reader


def spans(locator: ListingLocator, bucket: Bucket) -> list[tuple[int, int]]:
    timeline = locator.timeline(bucket.at(0).topic_id_partition)
    return [(s.start_offset, s.end_offset) for s in timeline.segments]


class TestThreads:
    def test_ends_of_several_partitions_are_read_at_once(self) -> None:
        """One listing is made at a time."""
        bucket = several_partitions(4)
        under_way: list[int] = []
        most: list[int] = []

        def of_partition(partition: TopicIdPartition) -> list[RemoteLogSegmentMetadata]:
            under_way.append(1)
            time.sleep(0.002)
            most.append(len(under_way))
            under_way.pop()
            return [one for one in bucket.list_segments() if one.topic_id_partition == partition]

        meeting = threading.Barrier(4, timeout=60)
        reader = Calling(bucket)
        reader.before_an_index = meeting.wait
        own = ListingLocator(Listings(bucket.list_segments, of_partition=of_partition), reader)
        locator = SharedLocator(own, by_partition=True)
        partitions = sorted({one.topic_id_partition for one in bucket.metadata}, key=lambda one: one.partition)
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(locator.timeline, partitions))
        assert [timeline.partition for timeline in found] == partitions
        assert [timeline.segments for timeline in found] == [
            locator_of(bucket)[0].timeline(partition).segments for partition in partitions
        ]
        assert most == [1] * 4

    def test_ends_of_several_segments_are_read_at_once(self) -> None:
        bucket = Bucket(plain_log(segments=4).segments())
        reader = Calling(bucket)
        locator = ListingLocator(Listings(bucket.list_segments), reader, all_at_once)
        guessed = locator.timeline(bucket.at(0).topic_id_partition)
        reader.before_an_index = threading.Barrier(3, timeout=60).wait
        measured = locator.measure(guessed.partition, guessed.segments[:3])
        assert measured.segments == guessed.segments
        assert [locator.end_is_inferred(one) for one in measured.segments] == [False] * 4

    @pytest.mark.parametrize("ask", ["timeline", "refresh", "recheck", "measure"])
    def test_a_newer_listing_outlives_an_answer_that_was_under_way(self, ask: str) -> None:
        *listed, newest = plain_log(segments=3).segments()
        bucket = Bucket(listed)
        partition = newest.metadata.topic_id_partition
        reader = Calling(bucket)
        locator = ListingLocator(Listings(bucket.list_segments), reader)
        calls: dict[str, Callable[[], object]] = {
            "timeline": lambda: locator.timeline(partition),
            "refresh": lambda: locator.refresh(partition),
            "recheck": lambda: locator.recheck(partition, 100),
            "measure": lambda: locator.measure(partition, [next(bucket.list_segments())]),
        }

        def grow() -> None:
            reader.before_an_index = lambda: None
            bucket.add(newest)
            locator.partitions(partition.topic)

        if ask in ("recheck", "measure"):
            assert len(locator.timeline(partition).segments) == 2
        reader.before_an_index = grow
        calls[ask]()
        assert len(locator.timeline(partition).segments) == 3


class TestPartitions:
    def test_names_and_ids(self) -> None:
        one, other = LogBuilder("t"), LogBuilder("t", Uuid(b"another topic id"))
        third = LogBuilder("a", partition=3)
        for log in (one, other, third):
            log.take_out(1)
            log.roll()
        locator, _ = locator_of(Bucket(s for log in (one, other, third) for s in log.segments()))
        assert locator.partitions("a") == (third.topic_id_partition,)
        assert len(locator.partitions(None)) == 3
        assert locator.partitions(f"t:{other.topic_id_partition.topic_id}") == (other.topic_id_partition,)
        with pytest.raises(UnknownTopic, match="2 topic ids"):
            locator.partitions("t")
        with pytest.raises(UnknownTopic, match="topics there: a, t"):
            locator.partitions("nothing")
        with pytest.raises(UnknownTopic, match="topics there: a, t"):
            locator.partitions(f"t:{Uuid(bytes(16))}")


class TestNarrow:
    """A storage that can be listed partition by partition, and says what was listed."""

    @staticmethod
    def counted(bucket: Bucket, survey: Survey | None = None) -> tuple[ListingLocator, list[object]]:
        asked: list[object] = []

        def segments(topic: str | None) -> list[RemoteLogSegmentMetadata]:
            asked.append(topic or "everything")
            return list(bucket.list_segments(topic))

        def partitions(topic: str | None) -> list[TopicIdPartition]:
            found = {one.topic_id_partition for one in bucket.metadata if topic in (None, one.topic_id_partition.topic)}
            empty = TopicIdPartition(Uuid(b"without segments"), "empty", 0)
            return [*found, *([] if topic not in (None, "empty") else [empty])]

        def of_partition(partition: TopicIdPartition) -> list[RemoteLogSegmentMetadata]:
            asked.append(partition.partition)
            return [one for one in bucket.list_segments(partition.topic) if one.topic_id_partition == partition]

        listings = Listings(segments, partitions, of_partition, lambda: survey)
        return ListingLocator(listings, BucketReader(bucket)), asked

    @staticmethod
    def several(count: int = 50) -> Bucket:
        logs = [LogBuilder("t", partition=number) for number in range(count)]
        for log in logs:
            log.append_batch([Record(0)])
            log.roll()
        return Bucket(segment for log in logs for segment in log.segments())

    def test_only_the_wanted_partitions_are_listed(self) -> None:
        locator, asked = self.counted(self.several())
        assert len(locator.partitions("t", (3,))) == 50
        assert asked == [3]
        (three,) = (one for one in locator.partitions("t", (3,)) if one.partition == 3)
        assert len(locator.timeline(three).segments) == 1
        asked.clear()
        locator.refresh(three)
        assert asked == [3]
        locator.partitions("t", (7, 99))
        assert asked == [3, 7], "of 99 there is no folder"
        assert len(locator.partitions("t:" + str(three.topic_id), (99,))) == 50, "so that the error can name them"
        assert asked == [3, 7]

    def test_a_mistyped_topic_lists_no_segment_but_its_own(self) -> None:
        locator, asked = self.counted(self.several())
        for numbers in (None, (3,)):
            with pytest.raises(UnknownTopic, match="topics there: empty, t"):
                locator.partitions("T", numbers)
        assert asked == ["T"]

    def test_a_folder_without_segments_is_no_partition(self) -> None:
        locator, _ = self.counted(self.several(1))
        for numbers in (None, (0,)):
            with pytest.raises(UnknownTopic, match="no segment of topic 'empty'"):
                locator.partitions("empty", numbers)

    def test_a_name_of_several_topic_ids_is_refused_for_each_partition(self) -> None:
        """A topic was made again with fewer partitions: partition 2 is of the deleted topic alone."""
        new = [LogBuilder("t", Uuid(b"another topic id"), partition=number) for number in range(2)]
        for log in new:
            log.append_batch([Record(0)])
            log.roll()
        bucket = self.several(3)
        old_id = bucket.at(0).topic_id_partition.topic_id
        for log in new:
            for one in log.segments():
                bucket.add(one)
        locator, _ = self.counted(bucket)
        for numbers in ((0,), (2,), (7,)):
            with pytest.raises(UnknownTopic, match="2 topic ids"):
                locator.partitions("t", numbers)
        assert len(locator.partitions(f"t:{old_id}", (2,))) == 3
        assert len(locator.partitions(None, (2,))) == 6

    def test_a_topic_id_without_segments_does_not_count(self) -> None:
        bucket = self.several(2)
        (kept, *_) = partitions = sorted(
            {one.topic_id_partition for one in bucket.metadata}, key=lambda one: one.partition
        )
        empty = [TopicIdPartition(Uuid(b"another topic id"), "t", number) for number in range(2)]

        def of_partition(partition: TopicIdPartition) -> list[RemoteLogSegmentMetadata]:
            return [one for one in bucket.list_segments("t") if one.topic_id_partition == partition]

        listings = Listings(bucket.list_segments, lambda topic: [*empty, *partitions], of_partition)
        locator = ListingLocator(listings, BucketReader(bucket))
        for numbers in ((0,), (7,)):
            assert locator.partitions("t", numbers) == tuple(partitions)
        lost = [replace(bucket.at(0), segment_id=RemoteLogSegmentId(one, LOST), state=DELETED) for one in empty]
        deleted = replace(listings, of_partition=lambda one: [*lost[:1], *of_partition(one)])
        assert ListingLocator(deleted, BucketReader(bucket)).partitions("t", (7,)) == tuple(partitions)
        nothing = ListingLocator(replace(listings, of_partition=lambda partition: ()), BucketReader(bucket))
        with pytest.raises(UnknownTopic, match="no segment of topic 't'"):
            nothing.partitions("t", (kept.partition,))

    def test_the_survey_describes_a_storage_without_segments(self) -> None:
        listings = Listings(lambda topic: (), survey=lambda: Survey("/tier", "it is empty"))
        locator = ListingLocator(listings, BucketReader(Bucket()))
        for topic in ("t", None):
            with pytest.raises(UnknownTopic, match="in the remote storage /tier: it is empty"):
                locator.partitions(topic)


class TestLostLogs:
    """Segments of which a listing shows files, but no log."""

    @staticmethod
    def told(*starts: int) -> tuple[list[str], list[tuple[int, int]]]:
        """The notices about logs that were lost at these offsets, beside a timeline of offsets 20-79."""
        bucket, said = Bucket(plain_log(4).segments(DENSE)[1:]), list[Event]()
        partition = bucket.at(0).topic_id_partition
        lost = [
            replace(bucket.at(0), segment_id=RemoteLogSegmentId(partition, LOST), start_offset=at, state=DELETED)
            for at in starts
        ]
        listings = Listings(lambda topic: [*lost, *bucket.list_segments(topic)])
        locator = ListingLocator(listings, BucketReader(bucket), remark=said.append)
        assert locator.partitions("topic") == (partition,)
        timeline = locator.timeline(partition)
        assert locator.refresh(partition) is timeline
        texts = [event.text for event in said if isinstance(event, Notice) and event.is_warning]
        assert len(texts) == len(said)
        return texts, [(one.start_offset, one.end_offset) for one in timeline.segments]

    def test_they_are_reported_once_before_and_behind_the_timeline(self) -> None:
        texts, segments = self.told(80, 3, 0)
        assert segments == [(20, 39), (40, 59), (60, 79)]
        assert len(texts) == 2
        assert f"2 segments, of which the first is {0:020d}-{LOST}" in texts[0]
        assert texts[0].endswith("begins at offset 20")
        assert f"segment {80:020d}-{LOST}," in texts[1]
        assert texts[1].endswith("ends at offset 80 (exclusive)")

    def test_a_partition_without_any_log_is_reported_if_it_is_wanted(self) -> None:
        bucket, said = several_partitions(2), list[Event]()
        listed = [replace(one, state=DELETED) if one.topic_id_partition.partition else one for one in bucket.metadata]
        locator = ListingLocator(Listings(lambda topic: listed), BucketReader(bucket), remark=said.append)
        for wanted, notices in ((0,), 0), ((1,), 1), (None, 2):
            assert [one.partition for one in locator.partitions("t", wanted)] == [0]
            assert len(said) == notices

    @pytest.mark.parametrize("numbers", [None, (1,)])
    def test_a_topic_without_any_log_is_not_said_to_be_another(self, numbers: tuple[int, ...] | None) -> None:
        listed = [replace(one, state=DELETED) for one in several_partitions(2).metadata]
        locator = ListingLocator(Listings(lambda topic: listed), BucketReader(Bucket()))
        said = "no log of topic 't' is in the remote storage, but other files of its segments: the records are lost,"
        with pytest.raises(UnknownTopic, match=said) as caught:
            locator.partitions("t", numbers)
        assert "topics there" not in str(caught.value)

    def test_where_the_timeline_has_their_offsets_nothing_is_said(self) -> None:
        """Such as one of two uploads of the same offsets, which is deleted."""
        assert self.told(20, 40, 45, 79)[0] == []


class TestEnds:
    def test_the_next_start_or_the_last_batch(self) -> None:
        bucket = Bucket(reversed(plain_log().segments(DENSE)))
        locator, reader = locator_of(bucket)
        (partition,) = locator.partitions("topic")
        assert spans(locator, bucket) == [(0, 19), (20, 39), (40, 59)]
        assert locator.timeline(partition) is locator.timeline(partition)
        inferred = [locator.end_is_inferred(s) for s in locator.timeline(partition).segments]
        assert inferred == [True, True, False]
        # A byte more than was listed, so that the store confirms the end.
        assert reader.asked == [(len(bucket.log(0)) * 3 // 4, len(bucket.log(0)) + 1)]

    def test_guesses_about_segments_that_are_gone_are_forgotten(self) -> None:
        """Segments come and age out for weeks."""
        bucket = Bucket(plain_log().segments(DENSE))
        segments = [replace(one, end_offset=-1) for one in bucket.metadata]
        locator = ListingLocator(Listings(lambda topic: iter(segments)), BucketReader(bucket))
        (partition,) = locator.partitions("topic")
        first, *_ = locator.timeline(partition).segments
        assert len(locator._inferred[partition]) == 2
        del segments[0]
        locator.refresh(partition)
        assert locator.end_is_inferred(first)  # a plan may have it
        locator.refresh(partition)
        assert not locator.end_is_inferred(first)
        assert len(locator._inferred[partition]) == 1

    def test_what_was_measured_stays_until_the_listing_changes(self) -> None:
        """The service lists its store every half minute, and measures all guesses before it answers."""
        bucket = Bucket(plain_log().segments(DENSE))
        segments, reader = [replace(one, end_offset=-1) for one in bucket.metadata], BucketReader(bucket)
        locator = ListingLocator(Listings(lambda topic: iter(segments)), reader)
        (partition,) = locator.partitions("topic")
        measured = with_real_ends(locator, locator.timeline(partition))
        asked = len(reader.asked)
        assert locator.refresh(partition) is with_real_ends(locator, measured) is measured
        assert len(reader.asked) == asked
        del segments[0]
        assert locator.end_is_inferred(locator.refresh(partition).segments[0])

    def test_an_end_that_is_listed_is_believed(self) -> None:
        bucket = Bucket(plain_log().segments())
        reader = BucketReader(bucket)
        locator = ListingLocator(Listings(lambda topic: iter(bucket.metadata)), reader)
        locator.partitions("topic")
        assert spans(locator, bucket) == [(0, 19), (20, 39), (40, 59)]
        assert not any(map(locator.end_is_inferred, bucket.metadata))
        assert reader.asked == []

    @each_of("number", [0, 3])
    def test_several_uploads_of_one_start(self, number: int) -> None:
        log = plain_log()
        bucket = Bucket([*log.segments(), log.segments(SegmentOptions(upload=1))[0]])
        bucket.write(number, bucket.log(number)[:100])
        locator, _ = locator_of(bucket)
        (partition,) = locator.partitions("topic")
        timeline = locator.timeline(partition)
        assert spans(locator, bucket) == [(0, 19), (0, 19), (20, 39), (40, 59)]
        # The larger one is preferred: it is later in the order of finishing.
        assert timeline.segments[timeline.finish_order.index(1)].segment_size_in_bytes > 100

    def test_an_empty_last_object(self) -> None:
        """It may have been cut off. So it is not left out: the tier would seem to end before it."""
        bucket = Bucket(plain_log().segments())
        bucket.write(2, b"")
        locator, _ = locator_of(bucket)
        locator.partitions("topic")
        with pytest.raises(
            Unlocatable, match=r"last object is empty.*from 40 on.*object 00000000000000000040-"
        ) as told:
            spans(locator, bucket)
        assert (told.value.first, told.value.last) == (40, None)
        assert "compacted before it was tiered" in str(told.value)

    def test_an_empty_object_before_others_is_a_gap(self) -> None:
        """Its start is kept, so that no reader begins behind it."""
        bucket = Bucket(plain_log().segments())
        bucket.write(0, b"")
        bucket.write_index(0, IndexType.OFFSET, b"")
        locator, _ = locator_of(bucket)
        (partition,) = locator.partitions("topic")
        assert spans(locator, bucket) == [(0, 19), (20, 39), (40, 59)]
        empty = locator.timeline(partition).segments[0]
        assert locator.recheck(partition, 19).segments[0] == empty
        measured = locator.measure(partition, [empty])
        assert [(s.start_offset, s.end_offset) for s in measured.segments] == [(0, -1), (20, 39), (40, 59)]

    def test_the_last_object_is_empty_and_its_size_is_not_listed(self) -> None:
        """It may have been cut off, as one that is listed with the size 0."""
        bucket = Bucket(plain_log().segments())
        bucket.write(2, b"")
        sized = [replace(s, segment_size_in_bytes=UNKNOWN_SIZE) for s in bucket.list_segments()]
        locator = ListingLocator(Listings(lambda topic: iter(sized)), BucketReader(bucket))
        locator.partitions("topic")
        with pytest.raises(Unlocatable, match="the last object is empty"):
            spans(locator, bucket)

    def test_refresh_lists_again(self) -> None:
        bucket = Bucket(plain_log().segments())
        locator, _ = locator_of(bucket)
        (partition,) = locator.partitions("topic")
        locator.timeline(partition)
        bucket.drop(2)
        assert len(locator.timeline(partition).segments) == 3
        assert [s.end_offset for s in locator.refresh(partition).segments] == [19, 39]
        bucket.drop(1)
        locator.partitions("topic")
        assert [s.end_offset for s in locator.timeline(partition).segments] == [19]


class TestRecheck:
    def test_a_segment_that_reaches_over_the_next_start(self) -> None:
        log = plain_log()
        segments = [
            *log.segments(cuts=[0, 40]),
            *log.segments(SegmentOptions(upload=1), cuts=[10, 20]),
            log.segments()[2],
        ]
        bucket = Bucket(segments)
        locator, _ = locator_of(bucket)
        (partition,) = locator.partitions("topic")
        assert spans(locator, bucket) == [(0, 9), (10, 39), (40, 59)]
        timeline = locator.recheck(partition, 25)
        assert [(s.start_offset, s.end_offset) for s in timeline.segments] == [(0, 39), (10, 39), (40, 59)]
        assert locator.timeline(partition) is timeline

    def test_nothing_reaches(self) -> None:
        bucket = Bucket(plain_log().segments())
        bucket.drop(1)
        locator, reader = locator_of(bucket)
        (partition,) = locator.partitions("topic")
        before = locator.timeline(partition)
        reader.asked.clear()
        assert locator.recheck(partition, 30) == before
        assert len(reader.asked) == 1
        assert locator.recheck(partition, 50) == before

    def test_only_so_many_are_asked(self) -> None:
        log = plain_log(segments=30, batches=1, records=1)
        bucket = Bucket(log.segments())
        locator, reader = locator_of(bucket)
        (partition,) = locator.partitions("topic")
        locator.timeline(partition)
        reader.asked.clear()
        locator.recheck(partition, 28)
        assert len(reader.asked) == 16

    def test_a_measured_end_before_the_next_start_is_rechecked(self) -> None:
        """A segment lies inside another one. The offsets behind its end are those of the longer segment."""
        log = plain_log()
        segments = [
            *log.segments(cuts=[0, 40]),
            *log.segments(SegmentOptions(upload=1), cuts=[10, 20]),
            log.segments()[2],
        ]
        locator, reader = locator_of(Bucket(segments))
        (partition,) = locator.partitions("topic")
        inner = locator.timeline(partition).segments[1]
        measured = locator.measure(partition, [inner])
        assert [(s.start_offset, s.end_offset) for s in measured.segments] == [(0, 39), (10, 19), (40, 59)]
        assert locator.timeline(partition) is measured
        reader.asked.clear()
        assert locator.measure(partition, [inner]) == measured
        assert len(reader.asked) == 1, "the longer segment is known"


class TestBytesOfOthers:
    """The bytes of an object go on with those of a later segment."""

    @pytest.mark.parametrize("options", [SegmentOptions(), DENSE])
    @pytest.mark.parametrize("own", ["own", "none"])
    @pytest.mark.parametrize("other", [1, 2])
    def test_an_end_is_believed_up_to_a_gap_where_another_begins(
        self, own: str, other: int, options: SegmentOptions
    ) -> None:
        bucket = Bucket(plain_log().segments(options))
        bucket.write(0, (bucket.log(0) if own == "own" else b"") + bucket.log(other))
        bucket.write_index(0, IndexType.OFFSET, None)
        locator, _ = locator_of(bucket)
        (partition,) = locator.partitions("topic")
        first = locator.timeline(partition).segments[0]
        found = locator.measure(partition, [first]).segments[0]
        believed = 39 if (own, other) == ("own", 1) else 19 if own == "own" else -1
        assert (found.start_offset, found.end_offset) == (0, believed)
        # Behind that end, the object has batches that the reader has to pass.
        assert locator.end_is_inferred(found) == (believed != 39)

    def test_an_overlap_without_a_gap_is_believed(self) -> None:
        """Two leaders have uploaded the same offsets. A gap elsewhere is one that compaction left."""
        log = LogBuilder()
        for count in range(1, 9):
            log.append_batch([Record(n, value=b"v") for n in range(5)])
            if count == 6:
                log.take_out(5)
        log.roll()
        (whole,) = log.segments(DENSE)
        assert whole.metadata.end_offset == 44
        inner = log.segments(SegmentOptions(upload=1), cuts=[15, 25])
        bucket = Bucket([whole, *inner])
        bucket.indexes.pop((inner[0].metadata.segment_id.id, IndexType.OFFSET), None)
        locator, reader = locator_of(bucket)
        (partition,) = locator.partitions("topic")
        first = locator.timeline(partition).segments[0]
        assert first.end_offset == 14
        reader.asked.clear()
        found = locator.measure(partition, [first]).segments[0]
        assert (found.end_offset, locator.end_is_inferred(found)) == (44, False)
        size = len(bucket.log(0)) // 8
        # The last batch, then all from the batch before the other's start.
        assert reader.asked == [(7 * size, 8 * size + 1), (2 * size, 8 * size + 1)]

    @pytest.mark.parametrize("entries", [[(24, 206)], [(14, 100)]], ids=["wrong offset", "wrong position"])
    def test_an_index_that_leads_behind_the_other_s_start(self, entries: list[tuple[int, int]]) -> None:
        """The whole object is read then, and the end is right."""
        bucket = Bucket(plain_log().segments())
        batch = len(bucket.log(0)) // 4
        bucket.write(0, bucket.log(0) + bucket.log(2))
        places = [(19, 5 * batch), (54, 6 * batch)] if entries[0][0] == 24 else [*entries, (54, 6 * batch)]
        bucket.write_index(0, IndexType.OFFSET, encode_offset_index(places))
        locator, reader = locator_of(bucket)
        (partition,) = locator.partitions("topic")
        found = locator.measure(partition, locator.timeline(partition).segments[:1]).segments[0]
        assert found.end_offset == 19
        assert reader.without_index == ["misleading"]

    def test_a_legacy_message_set_tells_of_no_gap(self) -> None:
        """Its header has only its last offset."""
        log = LogBuilder()
        for _ in range(3):
            log.append_legacy([Record(n, value=b"v") for n in range(5)], magic=1, codec=1)
        log.roll()
        bucket = Bucket([*log.segments(), *log.segments(SegmentOptions(upload=1), cuts=[5, 10])])
        locator, _ = locator_of(bucket)
        (partition,) = locator.partitions("topic")
        first = locator.timeline(partition).segments[0]
        assert (first.end_offset, locator.measure(partition, [first]).segments[0].end_offset) == (4, 14)

    def test_a_recheck_does_not_believe_it_either(self) -> None:
        bucket = Bucket(plain_log(segments=4).segments())
        bucket.write(0, bucket.log(0) + bucket.log(3))
        bucket.drop(2)
        locator, _ = locator_of(bucket)
        (partition,) = locator.partitions("topic")
        assert [s.end_offset for s in locator.recheck(partition, 45).segments] == [19, 59, 79]
