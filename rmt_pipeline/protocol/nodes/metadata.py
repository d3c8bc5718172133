"""The text of the node `metadata` (spec §0.4.11): what all replicas of a table must agree on
besides the columns.
"""

from dataclasses import dataclass

from rmt_pipeline.protocol.reader import TextReader
from rmt_pipeline.protocol.table import EngineKind, TableDefinition
from rmt_pipeline.protocol.text import parse_decimal

INDEX_GRANULARITY = 8192
INDEX_GRANULARITY_BYTES = 10_485_760
DATA_FORMAT_VERSION = 1  # that of tables with a partition key
MERGE_PARAMETERS_VERSION = 2  # the version with all parameters

MODES: dict[EngineKind, int] = {
    "MergeTree": 0,
    "CollapsingMergeTree": 1,
    "SummingMergeTree": 2,
    "AggregatingMergeTree": 3,
    "ReplacingMergeTree": 5,
    "VersionedCollapsingMergeTree": 7,
}
MODE_MAX = 7


@dataclass(frozen=True, slots=True)
class Metadata:
    """The fields of `metadata`. Expressions are canonical texts, empty if there is none.

    `sorting_key` is only set if a PRIMARY KEY was given explicitly. Otherwise `primary_key` is the
    sorting key as well.
    """

    primary_key: str
    partition_key: str
    mode: int = 0
    sign_column: str = ""
    sorting_key: str = ""
    sampling_expression: str = ""
    ttl: str = ""
    indices: str = ""
    projections: str = ""
    constraints: str = ""
    version_column: str = ""
    is_deleted_column: str = ""
    columns_to_sum: str = ""
    graphite_hash: str = ""
    date_column: str = ""
    index_granularity: int = INDEX_GRANULARITY
    index_granularity_bytes: int = 0
    data_format_version: int = DATA_FORMAT_VERSION
    merge_parameters_version: int = 0
    """0: the text has no such line (before late 22.x, and for plain MergeTree here)."""

    @property
    def text(self) -> str:
        """The node's text: fixed lines, then optional ones in their one legal order."""
        fixed = (
            "metadata format version: 1\n"
            f"date column: {self.date_column}\n"
            f"sampling expression: {self.sampling_expression}\n"
            f"index granularity: {self.index_granularity}\n"
            f"mode: {self.mode}\n"
            f"sign column: {self.sign_column}\n"
            f"primary key: {self.primary_key}\n"
            f"data format version: {self.data_format_version}\n"
            f"partition key: {self.partition_key}\n"
        )
        optional = {
            "sorting key": self.sorting_key,
            "ttl": self.ttl,
            "indices": self.indices,
            "projections": self.projections,
            "granularity bytes": self.index_granularity_bytes,
            "constraints": self.constraints,
            "merge parameters format version": self.merge_parameters_version,
            "version column": self.version_column,
            "is_deleted column": self.is_deleted_column,
            "columns to sum": self.columns_to_sum,
            "graphite hash": self.graphite_hash,
        }
        present = {name: value for name, value in optional.items() if value}
        text = fixed + "".join(f"{name}: {value}\n" for name, value in present.items())
        assert text.count("\n") == 9 + len(present), f"an expression has a newline: {self}"
        return text


@dataclass(frozen=True, slots=True)
class MetadataDifference:
    """A field in which two texts differ. If it is `immutable`, no ALTER can change it (§0.4.11)."""

    field: str
    mine: str
    theirs: str
    immutable: bool

    def __str__(self) -> str:
        how = "and can not be altered" if self.immutable else "until an ALTER is applied"
        return f"{self.field} differs, {how}: {self.mine!r} here, {self.theirs!r} in ZooKeeper"


_IMMUTABLE = (
    "date_column",
    "index_granularity",
    "index_granularity_bytes",
    "mode",
    "sign_column",
    "primary_key",
    "data_format_version",
    "partition_key",
    "version_column",
    "is_deleted_column",
    "columns_to_sum",
    "graphite_hash",
)
_MUTABLE = (
    "sorting_key",
    "sampling_expression",
    "ttl",
    "indices",
    "projections",
    "constraints",
)


def metadata_differences(mine: Metadata, theirs: Metadata) -> tuple[MetadataDifference, ...]:
    """Every field that differs, the immutable ones first."""
    return tuple(
        MetadataDifference(
            name.replace("_", " "),
            str(getattr(mine, name)),
            str(getattr(theirs, name)),
            immutable=name in _IMMUTABLE,
        )
        for name in _IMMUTABLE + _MUTABLE
        if getattr(mine, name) != getattr(theirs, name)
    )


def metadata_mismatch(mine: Metadata | str, theirs: Metadata | str) -> str | None:
    """How the metadata of two replicas (parsed, or as texts) differ: the first field, with both
    values. None if they agree.

    How the texts are written does not matter. Raises Corruption.
    """
    differences = metadata_differences(_parsed(mine), _parsed(theirs))
    return str(differences[0]) if differences else None


def _parsed(metadata: Metadata | str) -> Metadata:
    return parse_metadata(metadata) if isinstance(metadata, str) else metadata


def metadata_of(definition: TableDefinition) -> Metadata:
    """The metadata of a table of this definition."""
    engine = definition.engine
    settings = dict(definition.settings)
    sorting_key = ", ".join(definition.order_by)
    primary_key = definition.primary_key
    specialised = engine.kind != "MergeTree"
    return Metadata(
        primary_key=sorting_key if primary_key is None else ", ".join(primary_key),
        partition_key=", ".join(definition.partition_by),
        mode=MODES[engine.kind],
        sign_column=engine.sign_column,
        sorting_key="" if primary_key is None else sorting_key,
        sampling_expression=definition.sample_by,
        ttl=definition.ttl,
        indices=", ".join(definition.indices),
        projections=", ".join(definition.projections),
        constraints=", ".join(definition.constraints),
        version_column=engine.version_column,
        is_deleted_column=engine.is_deleted_column,
        columns_to_sum=",".join(engine.columns_to_sum),
        index_granularity=_setting(settings, "index_granularity", INDEX_GRANULARITY),
        index_granularity_bytes=_setting(
            settings, "index_granularity_bytes", INDEX_GRANULARITY_BYTES
        ),
        merge_parameters_version=MERGE_PARAMETERS_VERSION if specialised else 0,
    )


def _setting(settings: dict[str, str], name: str, default: int) -> int:
    text = settings.get(name)
    return default if text is None else parse_decimal(text)


def metadata_text(definition: TableDefinition) -> str:
    """The text of `metadata` for a table of this definition."""
    return metadata_of(definition).text


def parse_metadata(text: str) -> Metadata:
    """The inverse of `Metadata.text`; also reads older texts. Raises Corruption."""
    reader = TextReader(text.encode(), "metadata")
    reader.number("metadata format version: ", low=1, high=1)
    date_column = reader.field("date column: ")
    sampling_expression = reader.field("sampling expression: ")
    index_granularity = reader.number("index granularity: ")
    mode = reader.number("mode: ", high=MODE_MAX)
    sign_column = reader.field("sign column: ")
    primary_key = reader.field("primary key: ")
    data_format_version = reader.number("data format version: ", high=DATA_FORMAT_VERSION)
    partition_key = reader.field("partition key: ")
    metadata = Metadata(
        date_column=date_column,
        sampling_expression=sampling_expression,
        index_granularity=index_granularity,
        mode=mode,
        sign_column=sign_column,
        primary_key=primary_key,
        data_format_version=data_format_version,
        partition_key=partition_key,
        sorting_key=reader.optional_field("sorting key: ") or "",
        ttl=reader.optional_field("ttl: ") or "",
        indices=reader.optional_field("indices: ") or "",
        projections=reader.optional_field("projections: ") or "",
        index_granularity_bytes=_optional_number(reader, "granularity bytes: "),
        constraints=reader.optional_field("constraints: ") or "",
        merge_parameters_version=_optional_number(reader, "merge parameters format version: "),
        version_column=reader.optional_field("version column: ") or "",
        is_deleted_column=reader.optional_field("is_deleted column: ") or "",
        columns_to_sum=reader.optional_field("columns to sum: ") or "",
        graphite_hash=reader.optional_field("graphite hash: ") or "",
    )
    reader.end()
    return metadata


def _optional_number(reader: TextReader, keyword: str) -> int:
    text = reader.optional_field(keyword)
    return 0 if text is None else reader.parse(text, parse_decimal)
