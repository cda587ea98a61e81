"""kcat's options that `cat` takes beside its own, and those that it refuses by name, with the tool to use.

Rules of the file:

- An option of kcat means the same here, or it is refused. None is passed over in silence.
"""

from __future__ import annotations

import argparse
from typing import Any

__all__ = ["REFUSED", "add_kcat_options"]

_OF_A_PRODUCER = "it belongs to kcat -P, and remote-fetch sends no records of yours. Use kcat"

REFUSED = {
    "-P": "remote-fetch sends no records of yours: use kcat -P. `remote-fetch replay` sends records of a topic again",
    "-Q": "use `remote-fetch plan -t TOPIC -o s@TIME`: it shows the first offset of each partition",
    "-M": "remote-fetch has no mock cluster: use kcat -M",
    "-E": "cat goes on after errors that pass, and ends at the others",
    "-O": r"put the offset into a format: -f '%o %s\n'",
    "-d": "set the property of librdkafka: -X debug=LIST",
    "-v": "set the property of librdkafka: -X log_level=7",
    "-m": "set the time to wait for brokers: -X fetch.remote.broker.timeout.ms=MS",
    "-z": _OF_A_PRODUCER,
    "-k": f"{_OF_A_PRODUCER}. `remote-fetch grep -k` finds the records of a key",
    "-H": f"{_OF_A_PRODUCER}. `remote-fetch grep --header` finds the records with a header",
    "-l": _OF_A_PRODUCER,
    "-T": _OF_A_PRODUCER,
}
"""kcat's options without a meaning here, and what to do instead."""


def add_kcat_options(parser: argparse.ArgumentParser) -> None:
    """Add kcat's modes, and the options that are refused."""
    modes = parser.add_argument_group("kcat's other modes")
    modes.add_argument("-C", dest="consumes", action="store_true", help=argparse.SUPPRESS)  # the only mode of cat
    modes.add_argument(
        "-L", dest="lists", action="store_true", help="list brokers, topics and partitions as kcat -L does, and exit"
    )
    modes.add_argument(
        "-G", dest="group", metavar="GROUP",
        help="read as a member of this consumer group, with the topics as arguments or by -t",
    )  # fmt: skip
    modes.add_argument("names", metavar="TOPIC", nargs="*", help="with -G: the topics")
    for option in REFUSED:
        parser.add_argument(option, action=_Refused, nargs="?", dest="refused", help=argparse.SUPPRESS)


class _Refused(argparse.Action):
    """Ends the program with a usage error that says what to do instead."""

    def __call__(self, parser: argparse.ArgumentParser, *given: Any) -> None:
        """Refuse the option. argparse gives it as the last argument."""
        option = str(given[-1])
        parser.error(f"{option} of kcat: {REFUSED[option]}")
