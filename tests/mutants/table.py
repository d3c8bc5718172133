"""The planted bugs that the simulation or a crash scenario must notice, by what they break."""

from dataclasses import dataclass

from rmt_pipeline.protocol.inserts.interpret import Committed, NotCommitted
from rmt_pipeline.protocol.mutations import Mutations, Unmutated
from rmt_pipeline.replica import publish, pull_log
from rmt_pipeline.replica.insert import quorum as insert_quorum
from rmt_pipeline.replica.life import opening, restore
from rmt_pipeline.replica.mutations import mutations
from rmt_pipeline.replica.partitions import from_table, swap, undo
from rmt_pipeline.replica.upkeep import clean_up
from rmt_pipeline.replica.work import merge
from rmt_pipeline.zookeeper import transactions
from tests.mutants import plants
from tests.mutants import plants_between as between
from tests.mutants import plants_drop as drops
from tests.mutants import plants_keeping as keeping
from tests.mutants import plants_leaving as leaving
from tests.mutants import plants_upkeep as upkeep
from tests.mutants.plants import Plant


@dataclass(frozen=True, slots=True)
class Mutant:
    """Noticed by seeds of the simulation; `seed` is asked first. For those that no seed finds soon,
    or each change of the worlds at another seed, `story` is one of `stories` in which it surely
    shows, `scenario` a crash scenario that notices it, or `test` one of `test_scenarios`.
    `only_by`: the one check without which nobody would notice it in its story. `first_by`: the
    check that notices it there before anybody else does.
    """

    name: str
    plant: Plant
    seed: int = 0
    story: str = ""
    scenario: str = ""
    test: str = ""
    only_by: str = ""
    first_by: str = ""

    def __str__(self) -> str:
        return self.name


MUTANTS: tuple[Mutant, ...] = (
    # what threads share
    Mutant(
        "threads: entries looked up in what all share",
        plants.entries_are_shared,
        test="test_a_part_that_another_thread_fetches_meanwhile_is_not_merged_over",
    ),
    # looking
    Mutant(
        "looks: parts are listed only once",
        plants.parts_listed_once,
        story="a_merge_whose_sources_one_replica_has_not_yet",
    ),
    Mutant("looks: a queue is listed only once", plants.queue_listed_once),
    # insert
    Mutant(
        "insert: no block id in the commit",
        plants.without("commit_insert", plants.creates("/blocks/")),
        story="an_insert",
    ),
    Mutant(
        "insert: ids of blocks are each replica's own, hidden by merges",
        upkeep.hidden_by_merges(upkeep.ids_of_blocks_are_each_replicas_own),
        story="a_block_of_another_insert",
        only_by="each_row_is_logged_once",
    ),
    Mutant(
        "insert: no record in the commit",
        plants.without("commit_insert", plants.creates("/inserts/")),
        story="an_insert",
        only_by="inserts_are_recorded",
    ),
    Mutant(
        "insert: no log entry in the commit",
        plants.without("commit_insert", plants.creates("/log/")),
        story="a_mutation",
        only_by="each_row_is_what_the_log_makes_of_it",
    ),
    Mutant(
        "insert: no part node in the commit",
        plants.without("commit_insert", plants.creates("/parts/")),
        seed=1,  # the part comes back from its own disk: it is noticed by who waits for it
    ),
    Mutant(
        "insert: locks not in the commit",
        plants.without("commit_insert", plants.deletes("/block-")),
        story="an_insert_whose_commit_is_late",
    ),
    Mutant(
        "insert: a lost replica takes it",
        plants.without("commit_insert", plants.checks("/is_lost")),
        test="test_a_replica_that_was_marked_lost_takes_no_insert",
    ),
    Mutant(
        "insert: unknown taken for failure",
        plants.unknown_is_failure,
        story="an_insert_whose_commit_is_done",
    ),
    Mutant(
        "insert: unknown taken for success",
        plants.unknown_is_success,
        story="an_insert_whose_commit_is_lost",
    ),
    Mutant(
        "insert: absence in a read taken for proof",
        plants.absence_is_proof,
        story="an_insert_whose_commit_is_late",
    ),
    Mutant(
        "insert: settled as committed, always",
        plants.settled_as(Committed()),
        story="an_insert_whose_commit_is_lost",
    ),
    Mutant(
        "insert: settled as not committed, always",
        plants.settled_as(NotCommitted()),
        story="an_insert_whose_commit_is_done",
    ),
    Mutant(
        "insert: into whatever has the table's place",
        plants.writes_do_not_say_which_replica_they_mean,
        story="a_table_is_created_again_before_an_insert_commits",
        first_by="who_writes_means_what_is_there",
    ),
    Mutant(
        "restore: the first one waits for nobody",
        plants.instead(restore, "_known_replicas", lambda replica: {replica.name}),
        story="zookeeper_loses_a_table",
        first_by="all_that_was_there_is_restored",
    ),
    Mutant(
        "restore: a try that died is announced beside the one that did not",
        plants.no_block_is_known_to_be_there_twice,
        story="zookeeper_loses_a_table_of_which_a_try_of_an_insert_died",
        first_by="what_is_restored_was_there",
    ),
    Mutant(
        "restore: what one replica has mutated is given up",
        plants.instead(opening, "unite", plants.unite_without_mutated_parts),
        story="zookeeper_loses_a_table_that_one_replica_has_mutated",
        first_by="what_was_changed_stays_so",
    ),
    Mutant(
        "life: writes do not say which replica they mean",
        plants.writes_do_not_say_which_replica_they_mean,
        seed=51,
    ),
    Mutant(
        "insert: ZooKeeper told before the disk",
        plants.zookeeper_before_disk,
        story="an_insert",
        first_by="part_is_whole_before_it_is_announced",
    ),
    Mutant(
        "insert: what earlier commits put in is not known",
        plants.partitions_of_batches_unknown,
        test="test_a_retry_that_is_cut_otherwise_inserts_what_is_missing",
    ),
    Mutant(
        "insert: a refused commit keeps its numbers",
        plants.numbers_are_kept,
        test="test_a_refused_commit_gives_its_numbers_back_while_its_session_lives",
    ),
    Mutant(
        "insert: who gives up leaves its locks",
        plants.locks_of_who_gives_up_stay,
        test="test_what_has_no_answer_leaves_no_number_in_a_session_that_goes_on",
    ),
    Mutant(
        "session: what it left without an answer is forgotten",
        plants.nothing_is_left_for_later,
        test="test_numbers_that_are_given_back_without_an_answer_are_not_held",
    ),
    Mutant(
        "clean up: inserts in part are forgotten",
        upkeep.inserts_in_part_are_forgotten,
        test="test_an_insert_in_part_is_not_forgotten",
    ),
    Mutant(
        "insert: one partition in each commit",
        upkeep.one_partition_per_commit,
        story="who_inserts_dies_after_the_first_commit",
        only_by="inserts_are_whole",
    ),
    Mutant(
        "insert: what was dropped of it leaves it in part",
        upkeep.a_commit_is_never_the_last,
        story="what_is_dropped_of_an_insert_in_part",
        only_by="inserts_are_recorded",
    ),
    Mutant(
        "insert: locks outlive their session",
        upkeep.not_ephemeral,
        story="who_inserts_dies_with_its_numbers",
        only_by="locks_are_gone",
    ),
    Mutant(
        "insert: the answer counts a row too many",
        upkeep.answer_of_one_row_more,
        story="an_insert",
        only_by="answers_were_true",
    ),
    # following
    Mutant(
        "pull: pointer one too small",
        plants.pointer_off_by(-1),
        story="an_insert",
    ),
    Mutant(
        "pull: pointer one too large",
        plants.pointer_off_by(1),
        story="a_merge_whose_sources_one_replica_has_not_yet",
    ),
    Mutant(
        "pull: pointer's version not checked",
        plants.any_version("pull", "/log_pointer"),
        test="test_an_entry_is_pulled_once_however_many_pull",
    ),
    Mutant(
        "pull: an old pointer is a hole",
        plants.instead(pull_log, "_pointer_moved", lambda *_: False),
        story="the_log_goes_before_who_pulls_has_read_it",
        only_by="nobody_saw_corruption",
    ),
    Mutant(
        "claim: version of executing not checked",
        plants.any_version("claim", "/executing"),
        test="test_two_workers_that_saw_the_same_claims_do_not_both_take_what_overlaps",
    ),
    Mutant(
        "claim: entries that are gone",
        plants.parts_before_claims,
        test="test_an_entry_whose_claim_ended_while_it_was_read_is_not_taken_again",
    ),
    Mutant(
        "claim: a refusal is ignored",
        upkeep.ignored_refusal,
        test="test_two_workers_that_saw_the_same_claims_do_not_both_take_what_overlaps",
    ),
    Mutant(
        "claim: an unanswered one is kept",
        upkeep.unanswered_claims_are_kept,
        test="test_a_claim_without_an_answer_does_not_stay_while_its_session_lives",
    ),
    Mutant(
        "claim: given back once, answered or not",
        upkeep.claims_are_given_back_once,
        test="test_a_claim_that_is_given_back_without_an_answer_does_not_stay",
    ),
    Mutant(
        "publish: that others lack the part is not asserted",
        plants.with_arguments(
            transactions,
            "publish_part",
            lambda args, kwargs: (args, {**kwargs, "nobody_has": ()}),
        ),
        test="test_of_two_results_that_differ_one_is_published",
    ),
    Mutant(
        "publish: claim stays",
        plants.without("publish_part", plants.deletes("/executing/")),
        story="an_insert",
    ),
    Mutant(
        "publish: part node missing",
        plants.without("publish_part", plants.creates("/r1/parts/")),
        story="a_merge",
    ),
    Mutant(
        "publish: leftovers removed unasked",
        plants.leftovers_go_unasked,
        test="test_a_worker_whose_session_ended_removes_nothing_that_was_published_since",
    ),
    Mutant(
        "publish: unanswered one withdrawn",
        plants.unanswered_publication_is_withdrawn,
        test="test_what_was_published_without_an_answer_is_left_for_the_next_one",
    ),
    Mutant(
        "fetch: only the exact part",
        plants.only_the_exact_part,
        test="test_a_larger_part_that_was_fetched_makes_the_smaller_entries_no_work",
    ),
    Mutant(
        "queue: covered entries not skipped",
        plants.no_covered_entry_is_skipped,
        story="a_replica_comes_back_after_its_log_is_gone",
    ),
    Mutant(
        "queue: overlapping work at once",
        plants.rule_is_ignored("_produced_by_another"),
        story="a_merge_is_fetched_while_its_source_is",
        only_by="claims_never_overlap",
    ),
    Mutant(
        "queue: what comes after a drop overtakes it",
        plants.rule_is_ignored("_dropped_first"),
        story="rows_come_while_a_replica_is_at_a_drop",
        only_by="what_was_dropped_is_not_beside_what_came_after",
    ),
    Mutant(
        "follow: merges have another level on r2",
        upkeep.merges_have_other_names_on_r2(upkeep.one_level_more),
        story="a_merge",
        only_by="replicas_agree_on_parts",
    ),
    Mutant(
        "follow: merges are of other blocks on r2",
        upkeep.merges_have_other_names_on_r2(upkeep.one_block_later),
        story="a_merge",
        first_by="parts_never_overlap",
    ),
    Mutant(
        "read: covered parts too",
        upkeep.covered_parts_are_read_too,
        story="what_is_merged_is_read_before_it_is_forgotten",
        only_by="reads_saw_whole_inserts",
    ),
    Mutant(
        "queue: a wait names another entry",
        plants.waits_name_others,
        story="a_merge_is_fetched_while_its_source_is",
        only_by="waits_are_for_what_is_there",
    ),
    # assigning
    Mutant(
        "assign: version of the log not checked",
        plants.any_version("assign", "/log"),
        story="a_drop_comes_before_a_merge_is_assigned",
        first_by="nothing_comes_into_what_was_dropped",
    ),
    Mutant(
        "predicate: locks read after the log",
        plants.log_before_locks,
        test="test_a_block_that_commits_between_the_reads_of_the_predicate_is_seen",
    ),
    Mutant(
        "predicate: blocks in flight ignored",
        plants.predicate_without("_block_between"),
        test="test_no_merge_spans_the_number_of_a_mutation_that_is_being_written",
    ),
    Mutant(
        "predicate: parts in between ignored",
        plants.predicate_without("_part_between"),
        story="what_is_between_comes_in_late",
    ),
    Mutant(
        "predicate: parts in between ignored, without the guard",
        upkeep.unguarded(plants.predicate_without("_part_between")),
        story="what_is_between_comes_in_late",
        first_by="merges_read_all_that_they_cover",
    ),
    Mutant(
        "predicate: promised parts merged again",
        plants.unpulled_is_merged,
        story="a_drop_comes_before_a_merge_is_assigned",
    ),
    # partitions
    Mutant(
        "drop: inserts in flight are not cancelled",
        drops.no_insert_is_cancelled,
        story="a_drop_comes_before_an_insert_commits",
        first_by="nothing_comes_into_what_was_dropped",
    ),
    Mutant(
        "drop: ids and records stay",
        drops.nothing_is_forgotten,
        story="a_drop",
        only_by="ids_are_those_of_what_is_there",
    ),
    Mutant(
        "drop: ids of later blocks go too",
        drops.all_ids_are_forgotten,
        story="an_insert_comes_after_a_drop_has_its_numbers",
    ),
    Mutant(
        "drop: entries inside the range stay",
        drops.entries_inside_stay,
        story="a_drop_comes_before_an_insert_commits",
    ),
    Mutant(
        "drop: the range has the number after its own",
        drops.the_range_ends(2),
        story="an_insert_comes_after_a_drop_has_its_numbers",
        only_by="drops_take_all_that_came_before",
    ),
    Mutant(
        "drop: the range ends one too early",
        drops.the_range_ends(-1),
        story="a_drop_of_several_blocks",
        only_by="drops_take_all_that_came_before",
    ),
    Mutant(
        "drop: of several partitions the first one goes",
        drops.one_partition_is_enough,
        story="a_drop_that_is_waited_for",
        only_by="answered_drops_happened",
    ),
    Mutant(
        "drop: answered before it is so here",
        drops.nobody_waits,
        story="a_drop_that_is_waited_for",
        only_by="answered_drops_happened",
    ),
    Mutant(
        "detach: without a copy",
        drops.nothing_is_detached,
        story="a_detach_that_is_waited_for",
        only_by="answered_drops_happened",
    ),
    Mutant(
        "drop: a part stays promised",
        drops.parts_stay_promised,
        story="a_drop_of_several_blocks",
        first_by="replicas_agree_on_parts",
    ),
    Mutant(
        "drop: the log does not move",
        drops.the_log_does_not_move,
        story="a_drop_comes_before_a_merge_is_assigned",
        first_by="nothing_comes_into_what_was_dropped",
    ),
    Mutant(
        "drop: disk before ZooKeeper",
        drops.disk_first,
        story="a_drop",
        first_by="nothing_promised_leaves_the_disk",
    ),
    Mutant(
        "swap: what was replaced is read while it is on the disk",
        drops.what_was_replaced_is_read_from_the_disk,
        story="what_is_read_is_replaced_and_read_again",
        only_by="reads_saw_no_mixture",
    ),
    Mutant(
        "backfill: rows that came meanwhile go unread",
        plants.instead(swap, "_require", lambda *_: None),
        story="an_insert_comes_before_a_rewrite_has_its_numbers",
        only_by="rows_that_stay_are_there",
    ),
    # quorums
    Mutant(
        "quorum: who fetches is not counted",
        plants.who_fetches_is_not_counted,
        story="who_inserts_for_two_dies_after_the_commit",
        only_by="nobody_waits_for_a_quorum",
    ),
    Mutant(
        "quorum: who waits is not told that it failed",
        plants.instead(insert_quorum, "_failed", lambda *_: []),
        story="a_quorum_fails_while_its_insert_waits",
        only_by="acknowledged_rows_did_not_fail",
    ),
    Mutant(
        "quorum: it fails on what was looked at, whoever came back",
        plants.who_came_back_is_not_seen,
        story="who_has_the_rows_comes_back_before_their_quorum_fails",
        first_by="failed_parts_are_nowhere",
    ),
    # start, clone, clean up
    Mutant(
        "start: missing parts not fetched",
        upkeep.missing_is_not_fetched,
        story="a_part_is_lost_before_its_server_starts",
    ),
    Mutant(
        "publish: the node on r2 is of other columns",
        upkeep.nodes_of_r2_are_of_other_columns,
        story="an_insert",
        only_by="promised_is_on_disk",
    ),
    Mutant("start: the disk listed once", upkeep.listed_is_all_there_is),
    Mutant(
        "start: work in progress set aside",
        upkeep.everything_unknown_is_set_aside,
        story="the_disk_is_cleaned_up_before_an_insert_commits",
    ),
    Mutant(
        "clone: parts listed before the queue",
        upkeep.clone_lists_parts_first,
        test="test_what_the_source_of_a_clone_does_meanwhile_is_missing_from_nothing",
    ),
    Mutant(
        "clone: keeps what the source does not know",
        upkeep.clone_keeps_everything,
        test="test_a_part_that_its_source_does_not_know_is_set_aside_by_a_clone",
    ),
    Mutant(
        "clone: not lost before the queue is filled",
        upkeep.clone_is_done_too_early,
        scenario="clone",
    ),
    Mutant(
        "clone: merges of the source forgotten",
        upkeep.clone_forgets_the_queue,
        seed=21,
    ),
    Mutant(
        "clone: what its source has inserted after a drop is fetched before that",
        upkeep.clone_fetches_before_drops,
        test="test_a_clone_carries_out_drops_before_what_its_source_inserted_after_them",
    ),
    Mutant(
        "clone: never",
        upkeep.never_cloned,
        story="a_replica_comes_back_after_its_log_is_gone",
    ),
    Mutant(
        "clean up: active replicas do not pin the log",
        upkeep.active_replicas_do_not_pin,
        story="a_replica_is_slow_and_the_log_is_cleaned",
    ),
    Mutant(
        "clean up: disk before ZooKeeper",
        upkeep.disk_before_zookeeper_on_removal,
        story="a_merge",
        only_by="nothing_promised_leaves_the_disk",
    ),
    Mutant(
        "clean up: an active part taken for old",
        upkeep.uncovered_parts_are_old,
        story="an_insert",
        first_by="each_row_is_what_the_log_makes_of_it",
    ),
    Mutant(
        "clean up: attempts never forgotten",
        plants.instead(clean_up, "_finished_attempts", lambda replica: ()),
        story="a_fetch_fails_once",
        only_by="nothing_is_left_behind",
    ),
    Mutant(
        "upkeep: what nobody promises stays",
        upkeep.found_and_left_alone,
        story="a_part_that_nobody_knows",
        only_by="on_disk_is_promised",
    ),
    # from one table to another
    Mutant(
        "move: it stays where it was as well",
        between.wanted_otherwise(between.stays_where_it_was),
        story="a_partition_is_moved",
        first_by="what_was_said_is_true",
    ),
    Mutant(
        "move: what came into the source since is lost",
        between.takes_whatever_is_there,
        story="an_insert_comes_before_its_partition_has_moved",
        first_by="what_leaves_arrives",
    ),
    Mutant(
        "from a table: nobody is behind",
        between.nobody_is_behind,
        story="a_partition_comes_from_a_replica_that_is_behind",
        first_by="what_was_there_before_comes",
    ),
    Mutant(
        "from a table: the same part comes again",
        between.no_ids,
        story="a_partition_is_attached_twice",
        first_by="what_is_attached_comes_once",
    ),
    Mutant(
        "attach: the same detached part comes again",
        keeping.a_new_id_each_time,
        story="a_detached_part_is_attached_on_both",
        only_by="what_is_detached_is_attached_once",
    ),
    Mutant(
        "attach: what is detached goes before it is in the log",
        keeping.gone_before_it_is_committed,
        story="who_attaches_dies_before_the_commit",
        only_by="what_is_detached_is_kept",
    ),
    Mutant(
        "unfreeze: other partitions go too",
        keeping.all_partitions_are_unfrozen,
        story="a_partition_is_unfrozen",
        only_by="what_is_frozen_stays",
    ),
    Mutant(
        "fetch from a path: what is listed no more is kept",
        keeping.what_is_listed_no_more_stays,
        story="parts_are_merged_while_they_are_fetched",
        only_by="what_is_fetched_was_there_at_once",
    ),
    Mutant(
        "from a table: other rows come",
        between.a_stranger_comes_too,
        story="a_partition_is_attached_twice",
        first_by="what_comes_was_there",
    ),
    Mutant(
        "from a table: parts come into what a drop has taken meanwhile",
        plants.instead(swap, "partition_version", lambda *_: -1),
        story="a_partition_is_dropped_while_parts_come",
        first_by="nothing_comes_into_what_was_dropped",
    ),
    Mutant(
        "from a table: what a drop takes meanwhile is taken for there",
        plants.instead(from_table, "_still_there", lambda *_: []),
        story="what_an_attach_relies_on_is_dropped",
        first_by="what_was_there_before_comes",
    ),
    # mutations
    Mutant(
        "mutate: done once more",
        upkeep.mutated_again,
        story="two_mutations_one_after_the_other",
    ),
    Mutant(
        "mutate: numbers not held until it is there",
        upkeep.numbers_given_back_first,
        test="test_no_merge_spans_the_number_of_a_mutation_that_is_being_written",
    ),
    Mutant(
        "mutate: version of mutations not checked",
        plants.any_version("create_mutation", "/mutations"),
        test="test_of_two_mutations_at_once_ids_and_numbers_grow_together",
    ),
    Mutant(
        "mutate: a new partition is not noticed",
        plants.without("lock_partitions", plants.checks("/block_numbers")),
        test="test_a_partition_that_appears_while_a_mutation_is_created_is_in_it",
    ),
    Mutant(
        "mutate: done before it is",
        plants.instead(Unmutated, "has_any_before", lambda *_: False),
        story="a_mutation",
        first_by="finished_mutations_are_carried_out",
    ),
    Mutant(
        "mutate: blocks in flight are not waited for",
        plants.instead(Mutations, "blocked_by", lambda *_: None),
        test="test_rows_in_flight_before_a_mutation_are_mutated_and_later_ones_are_not",
    ),
    Mutant(
        "predicate: mutations in between ignored",
        plants.predicate_without("_mutation_between"),
        test="test_no_merge_spans_the_number_of_a_mutation_that_is_being_written",
    ),
    Mutant(
        "clean up: mutations nobody has finished",
        plants.instead(mutations, "finished_mutations", upkeep.all_but_the_newest),
        story="mutations_are_cleaned_up_before_they_are_done",
    ),
    Mutant(
        "alter: the columns are not noted as applied",
        upkeep.altered_without(lambda op: op.path.endswith("/columns")),
        story="an_alter",
    ),
    Mutant(
        "alter: the version is not noted as applied",
        upkeep.altered_without(lambda op: op.path.endswith("/metadata_version")),
        story="an_alter",
        only_by="structures_agree",
    ),
    Mutant("drop table: its bytes stay", drops.bytes_of_the_table_stay, seed=30),
    # bytes
    Mutant(
        "merge: a row is lost",
        upkeep.unguarded(upkeep.merge_makes(lambda rows: rows[:-1] if len(rows) > 2 else rows)),
        story="a_merge",
        first_by="part_has_the_rows_of_its_blocks",
    ),
    Mutant(
        "merge: a row is invented",
        upkeep.unguarded(upkeep.merge_makes(lambda rows: [*rows, "stranger"])),
        story="a_merge",
        only_by="no_other_rows_are_there",
    ),
    Mutant(
        "merge: a row is doubled",
        upkeep.merge_makes(lambda rows: [*rows, rows[0]]),
        story="a_merge",
    ),
    Mutant(
        "publish: not compared with the others",
        plants.instead(publish, "_compare_with_others", lambda *_: []),
        story="a_merge_that_comes_out_otherwise",
        only_by="replicas_hold_the_same_rows",
    ),
    Mutant(
        "merge: a wrong row hash",
        upkeep.unguarded(upkeep.wrong_row_hash),
        story="a_merge",
        only_by="rows_are_conserved",
    ),
    Mutant(
        "store: bytes not synced",
        upkeep.nothing_is_synced,
        story="an_insert",
        only_by="part_is_whole_before_it_is_announced",
    ),
    Mutant(
        "store: names not synced",
        upkeep.names_are_not_synced,
        story="an_insert",
        first_by="part_is_whole_before_it_is_announced",
    ),
    Mutant(
        "store: what cannot be read is not broken",
        upkeep.what_is_unreadable_is_not_broken,
        story="a_file_that_cannot_be_read_any_more",
    ),
    Mutant(
        "lost parts: what is left of them is not looked at again",
        upkeep.what_is_lost_is_not_looked_at_again,
        story="a_file_that_cannot_be_read_for_a_moment",
        only_by="what_is_lost_was_looked_at_again",
    ),
    # rows that leave
    Mutant(
        "undo: rows of others in a merged part go, too",
        plants.instead(undo, "_is_inside", lambda *_: True),
        test="test_an_undo_takes_its_rows_alone",
        first_by="an_undo_takes_nothing_else",
    ),
    Mutant(
        "undo: it is refused although nothing was merged",
        plants.instead(undo, "_refusal", lambda *_: ("it is", False)),
        test="test_an_undo_takes_its_rows_alone",
    ),
    Mutant(
        "merge: what is there twice stays",
        leaving.it_is_made_with(deduplicate=False),
        test="test_optimize_deduplicate_keeps_one_of_each",
    ),
    Mutant(
        "ttl: rows expire that stay by an ALTER before the merge",
        plants.instead(merge, "knows_its_ttl", lambda _: True),
        test="test_who_does_not_know_a_longer_ttl_yet_takes_no_rows_that_stay_by_it",
        first_by="merges_take_what_has_expired_and_no_more",
    ),
    Mutant(
        "ttl: nothing expires",
        leaving.it_is_made_with(expires=False),
        test="test_a_merge_takes_what_had_expired_when_it_was_decided",
    ),
    Mutant(
        "ttl: rows expire by a later time than that of the entry",
        leaving.rows_expire_an_hour_early,
        test="test_a_merge_takes_what_had_expired_when_it_was_decided",
    ),
    Mutant(
        "ttl: values that have expired stay",
        leaving.values_stay,
        test="test_values_go_that_had_expired_when_a_merge_was_decided",
    ),
    Mutant(
        "ttl: what expires within an hour is materialized",
        leaving.what_expires_within_an_hour_is_taken,
        test="test_a_materialized_ttl_takes_what_had_expired",
    ),
)
