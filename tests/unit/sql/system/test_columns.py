"""system.columns and system.tables of a table as simple as can be: no keys but one, no TTL; and
system.functions.
"""

from rmt_pipeline.translate.functions.registry import all_names
from tests.support.local_session import create, local_session, rows

CREATE = "CREATE TABLE t (n UInt8, v String) ENGINE = ReplicatedMergeTree('/t', '{replica}') "


def test_a_table_without_partitions_and_sample_is_described(tmp_path):
    with local_session(tmp_path) as session:
        create(session, CREATE + "ORDER BY n")
        keys = "is_in_partition_key, is_in_sorting_key, is_in_primary_key, is_in_sampling_key"
        query = f"SELECT name, {keys} FROM system.columns WHERE table = 't' ORDER BY position"
        assert rows(session, query) == [("n", 0, 1, 1, 0), ("v", 0, 0, 0, 0)]
        keys = "partition_key, sorting_key, primary_key, sampling_key"
        query = f"SELECT {keys} FROM system.tables WHERE name = 't'"
        assert rows(session, query) == [("", "n", "n", "")]


def test_keys_of_several_columns_are_shown_as_the_original_does(tmp_path):
    """A partition key as it was declared, a sorting key without parentheses, and with the version
    by which VersionedCollapsingMergeTree sorts.
    """
    columns = "(a UInt8, b UInt8, s Int8, ver UInt8)"
    engine = "ReplicatedVersionedCollapsingMergeTree('/t', '{replica}', s, ver)"
    with local_session(tmp_path) as session:
        create(
            session,
            f"CREATE TABLE t {columns} ENGINE = {engine} PARTITION BY (a % 2, b) ORDER BY a",
        )
        keys = "partition_key, sorting_key, primary_key"
        query = f"SELECT {keys} FROM system.tables WHERE name = 't'"
        assert rows(session, query) == [("(a % 2, b)", "a, ver", "a")]
        query = "SELECT name FROM system.columns WHERE table = 't' AND is_in_sorting_key"
        assert rows(session, query) == [("a",), ("ver",)]


def test_every_function_is_listed_and_says_how_it_differs(tmp_path):
    with local_session(tmp_path) as session:
        names = {name for (name,) in rows(session, "SELECT name FROM system.functions")}
        assert names == set(all_names())
        query = "SELECT differs FROM system.functions WHERE name = 'uniq'"
        assert rows(session, query) == [
            ("exact, where the original approximates beyond thousands of values",)
        ]
        query = "SELECT is_aggregate FROM system.functions WHERE name = 'arrayMap'"
        assert rows(session, query) == [(0,)]
