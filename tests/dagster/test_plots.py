"""Pictures in metadata: what they show, and that Dagster's markdown can show them."""

import base64
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import dagster as dg
import pytest

from rmt_pipeline.dagster import names
from rmt_pipeline.dagster.upkeep.checks import check_of
from rmt_pipeline.dagster.upkeep.plots import (
    BARS_MAX,
    Line,
    PartShown,
    in_words,
    picture_of_parts,
    picture_over_time,
)
from tests.support.local_engine import SERVERS, LocalEngine
from tests.support.local_session import create, local_session


def drawn(markdown: str) -> ET.Element:
    found = re.fullmatch(
        r"!\[[^\]]*\]\(data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)\)", markdown
    )
    assert found is not None, markdown[:200]
    return ET.fromstring(base64.b64decode(found[1]))


def bars(picture: ET.Element, kind: str) -> list[dict[str, str]]:
    return [one.attrib for one in picture.iter() if one.attrib.get("class") == kind]


def words(picture: ET.Element) -> list[str]:
    return [one.text or "" for one in picture.iter() if one.tag.endswith("text")]


def test_a_larger_part_is_a_higher_bar_and_each_level_has_a_line() -> None:
    parts = [PartShown(100, 1 << 20, 3), PartShown(10, 1 << 10, 0), PartShown(10, 1 << 10, 0)]
    picture = drawn(picture_of_parts("Partition <2026>", parts))
    large, *small = (float(bar["height"]) for bar in bars(picture, "part"))
    assert [pytest.approx(large / 2, rel=0.01)] * 2 == small, "heights are logarithms"
    assert len(bars(picture, "level")) == 2
    assert "Partition <2026>: 3 parts in block order" in words(picture)
    assert "level 3: 1 parts, 100 rows, 1.0 MiB" in words(picture)
    assert "level 0: 2 parts, 20 rows, 2.0 KiB" in words(picture)


def test_a_picture_of_many_parts_stays_small() -> None:
    parts = [PartShown(1, 100 + number, number % 40) for number in range(10_000)]
    markdown = picture_of_parts("all", parts)
    assert len(markdown) < 64_000
    picture = drawn(markdown)
    assert len(bars(picture, "part")) == BARS_MAX
    assert any("the last 200 of 10000" in text for text in words(picture))


def test_lines_over_time_hold_their_value_until_the_next_one() -> None:
    lines = [Line("low", [(100.0, 1.0), (200.0, 2.0)]), Line("<high>", [(150.0, 8.0)])]
    picture = drawn(picture_over_time("Parts", lines))
    high, low = (line["points"] for line in bars(picture, "line"))
    assert low.split()[0].startswith("64.0,"), "it begins at the left"
    assert [y for _, y in (pair.split(",") for pair in low.split())] == [
        *["171.2"] * 2,
        *["152.5"] * 2,
    ], "an eighth and a quarter of the height"
    assert {pair.split(",")[1] for pair in high.split()} == {"40.0"}, (
        "the highest is at the top"
    )
    assert {"<high>: 8, at most 8", "low: 2, at most 2"} <= set(words(picture))


def test_of_many_lines_the_highest_are_drawn() -> None:
    lines = [Line(str(number), [(0.0, number)]) for number in range(100)]
    picture = drawn(picture_over_time("Parts", lines))
    assert len(bars(picture, "line")) == 8
    assert "99: 99, at most 99" in words(picture)
    assert any("the highest 8 of 100" in text for text in words(picture))


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB")]
)
def test_sizes_are_said_in_words(size: int, text: str) -> None:
    assert in_words(size) == text


def test_the_check_of_parts_has_a_picture_of_the_fullest_partition(tmp_path: Path) -> None:
    check = check_of("parts_per_partition", "default.t", "r1")
    with local_session(tmp_path) as session, dg.DagsterInstance.ephemeral() as instance:
        SERVERS.append(session.context.server)
        create(
            session,
            "CREATE TABLE t (n UInt64) ENGINE = ReplicatedMergeTree('/tables/t', 'r1') "
            "PARTITION BY n % 2 ORDER BY n",
        )
        for number in (1, 3, 5, 2):
            session.execute(f"INSERT INTO t VALUES ({number})")
        for parts in (1, 4, 3):
            instance.report_runless_asset_event(
                dg.AssetMaterialization(
                    names.partitions_key("default.t", "r1"),
                    partition="1",
                    metadata={"parts": parts},
                )
            )
        result = dg.materialize(
            [dg.AssetSpec(names.health_key("default.t", "r1")), check],
            resources={"engine": LocalEngine()},
            selection=dg.AssetSelection.all_asset_checks(),
            instance=instance,
        )
    [evaluated] = result.get_asset_check_evaluations()
    picture = drawn(str(evaluated.metadata["picture"].value))
    assert len(bars(picture, "part")) == 3
    assert "Partition 1: 3 parts in block order" in words(picture)
    over_time = drawn(str(evaluated.metadata["parts over time"].value))
    assert "1: 3, at most 4" in words(over_time)
