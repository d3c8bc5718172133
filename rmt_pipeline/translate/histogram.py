"""The bins of `histogram(n)(x)`: at most n neighbours with a weight, made of values by joining the
two that are closest, again and again (Ben-Haim and Tom-Tov, 2010).
"""

import heapq
import math
import sys
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

BINS_MAX = 250  # as in the original


class Bin(NamedTuple):
    """The values from `lower` to `upper`, and how many they are, about."""

    lower: float
    upper: float
    weight: float


class _Point(NamedTuple):
    mean: float
    weight: float

    def with_next(self, other: "_Point") -> "_Point":
        weight = self.weight + other.weight
        return _Point(self.mean + other.weight * (other.mean - self.mean) / weight, weight)


def bins_of(values: Iterable[float], most: int) -> list[Bin]:
    """Return the bins of finite values, in the order of their bounds."""
    points: list[_Point] = []
    lower, upper = math.inf, -math.inf
    for value in values:
        lower, upper = min(lower, value), max(upper, value)
        points.append(_Point(value, 1.0))
        if len(points) >= 2 * most:
            points = _joined(points, most)
    points = _without_twins(_joined(points, most))
    bounds = [lower, *((a.mean + b.mean) / 2 for a, b in pairwise(points))]
    bounds.append(upper)
    weights = [point.weight for point in points]
    return [
        Bin(bounds[at], bounds[at + 1], _smoothed(weights, at)) for at in range(len(points))
    ]


def _smoothed(weights: list[float], at: int) -> float:
    """Return the weight as it is between two straight lines to those of the neighbours."""
    own = weights[at]
    left = own if at == 0 else (weights[at - 1] + own * 3) / 4
    right = own if at + 1 == len(weights) else (weights[at + 1] + own * 3) / 4
    return (left + right) / 2


def _joined(points: list[_Point], most: int) -> list[_Point]:
    """Return the points in order, with the two closest ones joined until there are `most`."""
    points = sorted(points, key=lambda point: point.mean)
    count, end = len(points), len(points)
    after = [*range(1, end + 1)]
    before = [*range(-1, end - 1)]
    gone = [False] * end
    gaps = [(points[at + 1].mean - points[at].mean, at) for at in range(end - 1)]
    heapq.heapify(gaps)
    while count > most and gaps:
        gap, left = heapq.heappop(gaps)
        right = after[left]
        if gone[left] or right == end or points[right].mean - points[left].mean > gap:
            continue  # of points that have been joined, or moved away since
        points[left] = points[left].with_next(points[right])
        gone[right] = True
        after[left] = after[right]
        if after[left] != end:
            before[after[left]] = left
            heapq.heappush(gaps, (points[after[left]].mean - points[left].mean, left))
        if before[left] >= 0:
            near = before[left]
            heapq.heappush(gaps, (points[left].mean - points[near].mean, near))
        count -= 1
    return [point for point, is_gone in zip(points, gone, strict=True) if not is_gone]


def _without_twins(points: list[_Point]) -> list[_Point]:
    """Join points that differ by rounding errors alone."""
    found: list[_Point] = []
    for point in points:
        if found:
            last = found[-1]
            error = 10 * (last.mean + point.mean) * sys.float_info.epsilon
            if last.mean + error >= point.mean:
                found[-1] = last.with_next(point)
                continue
        found.append(point)
    return found
