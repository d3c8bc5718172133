"""Units of mutations, each from one file of a part to one file of the result."""

from dataclasses import dataclass

from rmt_pipeline.compute.units import Shape, Unit, UnitDone, shape_without


@dataclass(frozen=True, slots=True)
class MutateUnit(Unit):
    """A unit that carries out `commands` instead of merging; its one source has one file.

    Without `rewrite`, nothing is written if no command applies to any row of the file. `lacking`
    are the columns of which the result has no values: they are read as their default.
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
    """`touched` is False if no command applied to any row; then nothing was written.

    `deleted_hashes` are of the deleted rows as they were when they were deleted. In a column that
    is not `changed`, their sum and that of the remaining rows is that of the source.
    """

    touched: bool = True
    rows_deleted: int = 0
    deleted_hashes: tuple[tuple[str, int], ...] = ()
    changed: frozenset[str] = frozenset()
