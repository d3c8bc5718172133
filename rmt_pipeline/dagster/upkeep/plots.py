"""Pictures for metadata, drawn as SVG: Dagster's markdown shows images from data URIs.

A picture takes a few kilobytes in Dagster's storage. So only checks, which run now and then, have
pictures; the event of a flush has none.
"""

import base64
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple
from xml.sax.saxutils import escape

BARS_MAX = 200
LEVELS_SHOWN_MAX = 12
WIDTH = 720
_LEFT, _TOP, _BARS_HEIGHT, _LINE = 64, 40, 150, 20
_COLOURS = (
    "#d9480f",
    "#f08c00",
    "#e9b949",
    "#8fb339",
    "#2f9e44",
    "#0c8599",
    "#1864ab",
    "#5f3dc4",
)
"""The colours of levels 0, 1, …: from parts that were just inserted to parts that were merged
often.
"""
_LINE_COLOURS = [_COLOURS[place] for place in (0, 6, 4, 1, 7, 5, 3, 2)]
"""The same colours in an order in which neighbouring lines are easy to tell apart."""


class PartShown(NamedTuple):
    """What a picture shows of a part."""

    rows: int
    size_bytes: int
    level: int


def picture_of_parts(title: str, parts: Sequence[PartShown]) -> str:
    """Markdown with a picture of a partition's active parts, which are given in the order of their
    blocks. Each part has a bar, as high as the logarithm of its bytes, in the colour of its level.
    Below stand the bytes of each level. When merges keep up, the bars fall from left to right in a
    few large steps.
    """
    shown = parts[-BARS_MAX:]
    left_out = len(parts) - len(shown)
    note = f", the last {len(shown)} of {len(parts)}" if left_out else ""
    levels = sorted({part.level for part in parts}, reverse=True)[:LEVELS_SHOWN_MAX]
    bottom = _TOP + _BARS_HEIGHT
    drawn = [
        _text(8, 20, f"{title}: {len(parts)} parts in block order{note}", size=14),
        *_axis(shown, bottom),
        *_bars(shown, bottom),
        *_level_lines(parts, levels, bottom + _LINE),
    ]
    height = bottom + _LINE * (len(levels) + 2)
    return _markdown(title, drawn, height)


class Line(NamedTuple):
    """One line of a plot over time: pairs of a moment and a value, the oldest first."""

    name: str
    points: Sequence[tuple[float, float]]


def picture_over_time(title: str, lines: Sequence[Line]) -> str:
    """Markdown with a picture of lines in steps: each value holds until the next one. The times in
    `points` are seconds since 1970. If there are more lines than colours, the highest are drawn.
    """
    shown = sorted(lines, key=lambda line: -_highest([line]))[: len(_COLOURS)]
    left_out = len(lines) - len(shown)
    note = f", the highest {len(shown)} of {len(lines)}" if left_out else ""
    times = [at for line in shown for at, _ in line.points]
    first, last = min(times, default=0.0), max(times, default=0.0)
    top, bottom = max(2.0, 2 * math.ceil(_highest(shown) / 2)), _TOP + _BARS_HEIGHT
    per_s = (WIDTH - _LEFT - 8) / max(last - first, 1.0)
    drawn = [_text(8, 20, f"{title}{note}", size=14)]
    for share in (0.0, 0.5, 1.0):
        y = bottom - _BARS_HEIGHT * share
        drawn += [_rule(y), _text(8, y + 4, f"{top * share:.10g}")]
    for at, x in ((first, _LEFT), (last, WIDTH - 110)):
        drawn.append(
            _text(x, bottom + 14, f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}")
        )
    for place, (line, colour) in enumerate(zip(shown, _LINE_COLOURS, strict=False)):
        drawn.append(_steps(line, colour, (first, last), per_s, _BARS_HEIGHT / top))
        y = bottom + _LINE * (place + 2)
        drawn.append(f'<rect x="{_LEFT}" y="{y - 9}" width="12" height="9" fill="{colour}"/>')
        words = f"{line.name}: {line.points[-1][1]:.10g}, at most {_highest([line]):.10g}"
        drawn.append(_text(_LEFT + 20, y, words))
    return _markdown(title, drawn, bottom + _LINE * (len(shown) + 2))


def _steps(
    line: Line, colour: str, shown: tuple[float, float], per_s: float, per_one: float
) -> str:
    first, last = shown
    path, ends = [], [*(at for at, _ in line.points[1:]), last]
    for (at, value), until in zip(line.points, ends, strict=True):
        y = _TOP + _BARS_HEIGHT - value * per_one
        path += [f"{_LEFT + (x - first) * per_s:.1f},{y:.1f}" for x in (at, until)]
    return (
        f'<polyline class="line" points="{" ".join(path)}" fill="none" stroke="{colour}" '
        'stroke-width="2"/>'
    )


def _highest(lines: Sequence[Line]) -> float:
    return max((value for line in lines for _, value in line.points), default=0.0)


def _markdown(title: str, drawn: Sequence[str], height: float) -> str:
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" '
        f'viewBox="0 0 {WIDTH} {height:.0f}"><rect width="100%" height="100%" fill="#ffffff"/>'
        f"{''.join(drawn)}</svg>"
    )
    encoded = base64.b64encode(svg.encode()).decode()
    return f"![{escape(title)}](data:image/svg+xml;base64,{encoded})"


def _rule(y: float) -> str:
    return f'<line x1="{_LEFT}" x2="{WIDTH - 8}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>'


def _bars(shown: Sequence[PartShown], bottom: int) -> list[str]:
    step = (WIDTH - _LEFT - 8) / max(len(shown), 1)
    top = _exponent(shown)
    drawn = []
    for place, part in enumerate(shown):
        height = max(2.0, _BARS_HEIGHT * math.log2(max(part.size_bytes, 2)) / top)
        drawn.append(
            f'<rect class="part" x="{_LEFT + place * step:.1f}" y="{bottom - height:.1f}" '
            f'width="{max(step * 0.9, 0.5):.1f}" height="{height:.1f}" '
            f'fill="{_colour(part.level)}"/>'
        )
    return drawn


def _axis(shown: Sequence[PartShown], bottom: int) -> list[str]:
    """A horizontal rule with its label for each power of 1024 bytes."""
    top = _exponent(shown)
    drawn = []
    for exponent in range(0, top + 1, 10):
        y = bottom - _BARS_HEIGHT * exponent / top
        drawn += [_rule(y), _text(8, y + 4, in_words(2**exponent))]
    return drawn


def _level_lines(parts: Sequence[PartShown], levels: Sequence[int], below: int) -> list[str]:
    total = max(sum(part.size_bytes for part in parts), 1)
    drawn = []
    for line, level in enumerate(levels):
        of_level = [part for part in parts if part.level == level]
        size = sum(part.size_bytes for part in of_level)
        rows = sum(part.rows for part in of_level)
        y = below + line * _LINE
        words = f"level {level}: {len(of_level)} parts, {rows} rows, {in_words(size)}"
        drawn.append(
            f'<rect class="level" x="{_LEFT}" y="{y}" height="12" fill="{_colour(level)}" '
            f'width="{max(2.0, 300 * size / total):.1f}"/>'
        )
        drawn.append(_text(_LEFT + 312, y + 10, words))
    return drawn


def _exponent(shown: Sequence[PartShown]) -> int:
    """The power of two at the top of the axis: the next multiple of ten above the largest part."""
    largest = max((part.size_bytes for part in shown), default=1)
    return max(10, 10 * math.ceil(math.log2(max(largest, 2)) / 10))


def _colour(level: int) -> str:
    return _COLOURS[min(level, len(_COLOURS) - 1)]


def _text(x: float, y: float, words: str, size: int = 11) -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" font-family="sans-serif" font-size="{size}" '
        f'fill="#333333">{escape(words)}</text>'
    )


def in_words(size_bytes: int) -> str:
    """A number of bytes for people: `1.5 MiB`, in powers of 1024."""
    size, unit = float(size_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.0f} {unit}" if size >= 10 or unit == "B" else f"{size:.1f} {unit}"
