"""The events that are counted for each table on a host. The same number is shown in `system.events`
under the original's name (spec §14) and to Prometheus under a name by its conventions.
"""

from enum import Enum


class ProfileEvent(Enum):
    """An event: the original's name for it, its Prometheus metric, and what is counted. Several
    events may be part of one metric.
    """

    INSERTED_PARTS = (
        "MergeTreeDataWriterBlocks",
        "rmt_inserted_parts",
        "Blocks inserted; each is a part",
    )
    INSERTED_ROWS = ("MergeTreeDataWriterRows", "rmt_inserted_rows", "Rows inserted")
    INSERTED_BYTES = (
        "MergeTreeDataWriterCompressedBytes",
        "rmt_inserted_bytes",
        "Bytes of the parts that inserts made",
    )
    FETCHES = (
        "ReplicatedPartFetches",
        "rmt_part_fetches",
        "Parts fetched from other replicas",
    )
    FETCHES_FAILED = (
        "ReplicatedPartFailedFetches",
        "rmt_part_fetches_failed",
        "Fetches of parts that failed",
    )
    FETCHES_OF_MERGED = (
        "ReplicatedPartFetchesOfMerged",
        "rmt_part_fetches_of_merged",
        "Parts fetched that could have been merged or mutated here",
    )
    MERGES = ("ReplicatedPartMerges", "rmt_part_merges", "Merges done")
    MERGES_FAILED = (
        "ReplicatedPartFailedMerges",
        "rmt_part_merges_failed",
        "Merges that failed",
    )
    MUTATIONS = (
        "ReplicatedPartMutations",
        "rmt_part_mutations",
        "Mutations of a part done",
    )
    MUTATIONS_FAILED = (
        "ReplicatedPartFailedMutations",
        "rmt_part_mutations_failed",
        "Mutations of a part that failed",
    )
    MERGES_DIFFER = (
        "DataAfterMergeDiffersFromReplica",
        "rmt_parts_differing",
        "Merges and mutations whose result another replica has differently",
    )
    MUTATIONS_DIFFER = (
        "DataAfterMutationDiffersFromReplica",
        "rmt_parts_differing",
        "Merges and mutations whose result another replica has differently",
    )
    CHECKS = ("ReplicatedPartChecks", "rmt_part_checks", "Parts read whole on suspicion")
    CHECKS_FAILED = (
        "ReplicatedPartChecksFailed",
        "rmt_parts_broken",
        "Parts found broken or gone, and to be fetched again",
    )

    def __init__(self, event: str, metric: str, text: str) -> None:
        self.event = event
        self.metric = metric
        self.text = text
