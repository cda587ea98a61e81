"""The plots of the performance page."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tools.svg_plot import Bars, render

SVG = "{http://www.w3.org/2000/svg}"


def rectangles(picture: str) -> list[float]:
    """The widths of all bars, without background and legend."""
    found = ElementTree.fromstring(picture).iter(f"{SVG}rect")
    return [float(one.attrib["width"]) for one in found if one.attrib["height"] == "14"]


def test_bars_are_as_long_as_their_numbers() -> None:
    bars = Bars("Speed", "ns", ("a & b", "c"), (("one", {"a & b": 10, "c": 5}), ("<two>", {"c": 2.5})))
    picture = render(bars)
    first, second, third = rectangles(picture)
    assert first == 2 * second == 4 * third
    texts = [one.text for one in ElementTree.fromstring(picture).iter(f"{SVG}text")]
    assert texts == ["Speed (ns)", "a & b", "c", "one", "10", "5", "<two>", "2.5"]
    assert render(bars) == picture


def test_what_is_too_long_is_broken_off() -> None:
    picture = render(Bars("t", "u", ("x",), (("one", {"x": 1000}), ("two", {"x": 10})), cut=20))
    first, second = rectangles(picture)
    assert first == 2 * second
    assert "1,000 ..." in picture


@pytest.mark.parametrize("groups", [(), (("one", {}),), (("one", {"x": 0}),), (("one", {"y": 1}),)])
def test_nothing_to_draw(groups: tuple[tuple[str, dict[str, float]], ...]) -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        render(Bars("t", "u", ("x",), groups))
