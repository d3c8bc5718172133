"""Units of mutations: one file of a part to one file of its result."""

from dataclasses import dataclass

from rmt_pipeline.compute.units import Shape, Unit, UnitDone, shape_without


@dataclass(frozen=True, slots=True)
class MutateUnit(Unit):
    """A unit that carries out `commands` instead of merging; its one source has one file.

    Without `rewrite`, a file that no command is for is not written. `lacking` are columns that the
    result has no values of: they stay what their default says when they are read.
    """

    commands: tuple[str, ...] = ()
    partition: str = ""
    rewrite: bool = False
    lacking: frozenset[str] = frozenset()

    @property
    def written(self) -> Shape:
        """The shape of the result."""
        return shape_without(self.shape, self.lacking)


@dataclass(frozen=True, slots=True)
class MutateUnitDone(UnitDone):
    """`touched` is False when no command was for any row: then nothing else is said.

    The deleted rows are as they were when they went; with the rows that stayed they make up the
    columns that no command changes, which are not `changed`.
    """

    touched: bool = True
    rows_deleted: int = 0
    deleted_hashes: tuple[tuple[str, int], ...] = ()
    changed: frozenset[str] = frozenset()
