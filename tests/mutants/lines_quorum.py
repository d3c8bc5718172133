"""Planted bugs of one line each: inserts that ask for a quorum, lost parts, what is half gone."""

from tests.mutants.planting import LineMutant

REPLICA = "rmt_pipeline/replica"
FATE = f"{REPLICA}/quorum.py"
WAIT = f"{REPLICA}/insert/quorum.py"
TESTS = "tests/unit/replica/insert/test_quorum.py"
READS = "tests/unit/replica/insert/test_sequential_reads.py"
LATE = (
    "tests/unit/replica/insert/test_quorum_meanwhile.py"
    "::test_who_publishes_late_is_not_counted_for_the_insert_that_came_after"
)
HALF = "tests/unit/replica/test_half_dropped.py"
LOST = "tests/unit/replica/test_lost_parts.py"

QUORUM_MUTANTS: tuple[LineMutant, ...] = (
    LineMutant(
        "quorum: who publishes is not counted",
        f"{REPLICA}/publish.py",
        "counted=[*counted.ops, *more],",
        "counted=[*more],",
        f"{TESTS}::test_it_is_answered_when_the_peer_has_the_rows",
    ),
    LineMutant(
        "quorum: one fewer is enough",
        FATE,
        "    return len(entry.replicas) >= required\n",
        "    return len(entry.replicas) >= required - 1\n",
        f"{TESTS}::test_two_of_three_are_enough_and_all_three_are_waited_for",
    ),
    LineMutant(
        "quorum: it fails although who has the part is active again",
        FATE,
        "            Check(peer.host, host[1].version)\n",
        "            Check(peer.host)\n",
        f"{TESTS}::test_who_becomes_active_while_it_is_decided_has_not_failed",
    ),
    LineMutant(
        "quorum: the ids of what failed stay",
        FATE,
        "for op in some),\n    ]\n\n\ndef set_aside_failed",
        "for op in some if False),\n    ]\n\n\ndef set_aside_failed",
        f"{TESTS}::test_a_part_that_no_active_replica_has_has_failed",
    ),
    LineMutant(
        "quorum: an insert of several blocks keeps out the one that failed",
        FATE,
        "what_to_forget(replica, [part], are_lost=True)",
        "what_to_forget(replica, [part])",
        f"{TESTS}::test_of_several_blocks_those_that_failed_can_be_inserted_again",
    ),
    LineMutant(
        "quorum: who comes back keeps what failed",
        FATE,
        "        if stat is None:\n            continue\n        with suppress",
        "        continue\n        with suppress",
        f"{TESTS}::test_who_comes_back_to_it_sets_it_aside",
    ),
    LineMutant(
        "quorum: dropped parts are waited for",
        f"{REPLICA}/work/drop.py",
        "    forget_dropped_quorums(replica, drop.part)\n",
        "",
        f"{TESTS}::test_a_drop_ends_the_waiting",
    ),
    LineMutant(
        "quorum: what failed is forgotten while its entry is in the log",
        FATE,
        " and stat.created_zxid < before\n",
        "\n",
        f"{TESTS}::test_a_failed_part_is_known_while_its_entry_is_in_the_log",
    ),
    LineMutant(
        "quorum: what failed is forgotten by our clock alone",
        FATE,
        "    return min(replica.clock.now_s() * 1000, now_ms) - FAILED_KEPT_S * 1000\n",
        "    return (replica.clock.now_s() - FAILED_KEPT_S) * 1000\n",
        "tests/unit/replica/insert/test_quorum_meanwhile.py"
        "::test_a_failed_part_is_known_although_a_clock_is_days_ahead",
    ),
    LineMutant(
        "quorum: what failed is forgotten by ZooKeeper's clock alone",
        FATE,
        "    return min(replica.clock.now_s() * 1000, now_ms) - FAILED_KEPT_S * 1000\n",
        "    return now_ms - FAILED_KEPT_S * 1000\n",
        "tests/unit/replica/insert/test_quorum_meanwhile.py"
        "::test_a_failed_part_is_known_although_a_clock_is_days_ahead",
    ),
    LineMutant(
        "quorum: an insert that was there is answered at once",
        f"{REPLICA}/insert/insert.py",
        "            self.waits.found(map(Span.of_rows, known.lines))\n",
        "            pass\n",
        f"{TESTS}::test_a_duplicate_waits_for_the_quorum_of_the_first",
    ),
    LineMutant(
        "quorum: a block that was there is not waited for",
        f"{REPLICA}/insert/insert.py",
        "                self.waits.found([Span.of_part(part)])\n",
        "                pass\n",
        f"{TESTS}::test_a_block_of_another_insert_is_waited_for",
    ),
    LineMutant(
        "quorum: rows that were there without one count as if they had it",
        WAIT,
        "    while not _is_on_enough(replica, awaited):\n",
        "    while False:\n",
        f"{TESTS}::test_a_duplicate_of_rows_that_had_no_quorum_waits_until_they_are_on_two",
    ),
    LineMutant(
        "quorum: one that failed looks like one that was reached",
        WAIT,
        "    failed = _failed(replica, awaited, insert_id)\n",
        "    failed: list[PartName] = []\n",
        f"{TESTS}::test_who_waits_is_told_that_it_failed",
    ),
    LineMutant(
        "quorum: too few live replicas are no obstacle",
        WAIT,
        "    if active < required:\n",
        "    if False:\n",
        f"{TESTS}::test_too_few_live_replicas_leave_no_trace",
    ),
    LineMutant(
        "quorum: parts that wait are mutated",
        f"{REPLICA}/assign/mutations.py",
        " or part in view.awaiting_quorum:",
        ":",
        f"{TESTS}::test_a_part_that_waits_is_not_mutated",
    ),
    LineMutant(
        "quorum: parts that come while mutations are assigned are mutated",
        f"{REPLICA}/assign/mutations.py",
        "    mutations = load_mutations(replica)\n    pulled = pull_log(replica, afresh=True)\n"
        "    snapshot = queue_snapshot(keeper, replica.paths, memory.queue)\n"
        "    awaiting = awaiting_quorum(keeper, replica.table)\n",
        "    awaiting = awaiting_quorum(keeper, replica.table)\n"
        "    mutations = load_mutations(replica)\n    pulled = pull_log(replica, afresh=True)\n"
        "    snapshot = queue_snapshot(keeper, replica.paths, memory.queue)\n",
        "tests/unit/replica/insert/test_quorum_meanwhile.py",
    ),
    LineMutant(
        "quorum: a sequential reader sees what waits",
        f"{REPLICA}/readable.py",
        "            if part not in waiting\n",
        "            if True\n",
        f"{READS}::test_nor_one_that_waits_beside_others",
    ),
    LineMutant(
        "quorum: half a replica has the part of an insert",
        WAIT,
        "                None not in pair\n",
        "                pair[0] is not None\n",
        f"{HALF}::test_a_replica_whose_drop_was_cut_off_holds_nothing_for_the_insert_itself",
    ),
    LineMutant(
        "quorum: half a replica has the rows of a duplicate",
        WAIT,
        "zip(held, is_living, strict=True) if lives\n",
        "zip(held, is_living, strict=True)\n",
        f"{HALF}::test_a_replica_whose_drop_was_cut_off_holds_nothing_for_a_duplicate",
    ),
    LineMutant(
        "quorum: what only half a replica has counts as dropped",
        WAIT,
        "    anywhere = set().union(*held)\n",
        "    anywhere = set().union(*(one for one, living in zip(held, is_living) if living))\n",
        f"{HALF}::test_rows_that_only_a_half_dropped_replica_has_are_on_too_few",
    ),
    LineMutant(
        "quorum: half a replica is waited for",
        FATE,
        "            enough=len(there),\n",
        "            enough=len(names),\n",
        f"{HALF}::test_a_replica_whose_drop_was_cut_off_is_not_waited_for",
    ),
    LineMutant(
        "clean up: half a replica stops the trimming",
        f"{REPLICA}/upkeep/clean_up.py",
        "    if host is None:\n        return None\n    return ReplicaLogFacts",
        "    assert host is not None\n    return ReplicaLogFacts",
        HALF,
    ),
    LineMutant(
        "mutations: half a replica keeps them",
        f"{REPLICA}/mutations/mutations.py",
        "zip(names, hosts, strict=True) if host is not None]\n    try:",
        "zip(names, hosts, strict=True)]\n    try:",
        HALF,
    ),
    LineMutant(
        "lost parts: while a replica is away",
        f"{REPLICA}/upkeep/lost.py",
        "    guards += [Check(peer.is_active) for peer in peers]\n",
        "",
        f"{LOST}::test_nor_when_one_goes_away_meanwhile",
    ),
    LineMutant(
        "lost parts: whatever was assigned meanwhile",
        f"{REPLICA}/upkeep/lost.py",
        "Check(table.log, log_version), Check(table.replicas",
        "Check(table.replicas",
        f"{LOST}::test_what_is_assigned_meanwhile_comes_first",
    ),
    LineMutant(
        "lost parts: whoever joined meanwhile",
        f"{REPLICA}/upkeep/lost.py",
        "Check(table.replicas, replicas.version)]",
        "Check(table.replicas)]",
        f"{LOST}::test_a_replica_that_comes_meanwhile_is_asked_first",
    ),
    LineMutant(
        "lost parts: whoever gave one up meanwhile",
        f"{REPLICA}/upkeep/lost.py",
        "        Check(peer.is_lost, read[1].version)\n",
        "        Check(peer.is_lost)\n",
        f"{LOST}::test_who_gives_a_part_up_meanwhile_is_asked_again",
    ),
    LineMutant(
        "lost parts: whatever somebody brought back meanwhile",
        f"{REPLICA}/upkeep/lost.py",
        "        guards += absent(peer.part(part)) if peer.name != replica.name else []\n",
        "        pass\n",
        f"{LOST}::test_what_somebody_brings_back_meanwhile_is_not_replaced",
    ),
    LineMutant(
        "lost parts: their ids stay",
        f"{REPLICA}/upkeep/lost.py",
        "    return [*seen.guards, *noted, *(op for some in forgotten for op in some)]\n",
        "    return [*seen.guards, *noted]\n",
        f"{LOST}::test_its_insert_is_named_and_can_be_repeated",
    ),
    LineMutant(
        "lost parts: who has yet to look again is not waited for",
        f"{REPLICA}/upkeep/lost.py",
        "yet_to_look(replica, [part], queues) or ",
        "",
        f"{LOST}::test_what_could_not_be_read_for_a_moment_is_put_back",
    ),
    LineMutant(
        "lost parts: who failed to fetch has looked again",
        f"{REPLICA}/missing.py",
        "                and not Attempts.read(tried[0]).is_unseen\n",
        "",
        f"{LOST}::test_who_has_tried_to_fetch_it_only_has_yet_to_look_at_his_own",
    ),
    LineMutant(
        "lost parts: what was fetched and not told is not looked at",
        f"{REPLICA}/put_back.py",
        "    return store.marks.is_unseen(part) or _is_untold(store, part)\n",
        "    return store.marks.is_unseen(part)\n",
        f"{LOST}::test_what_is_broken_of_it_is_lost_then",
    ),
    LineMutant(
        "lost parts: who failed while another had it has looked",
        f"{REPLICA}/missing.py",
        "                and tried[1].modified_ms >= given_up_ms\n",
        "",
        f"{LOST}::test_also_when_he_has_failed_to_get_it_before",
    ),
    LineMutant(
        "lost parts: each of a replica's entries for one is waited for",
        f"{REPLICA}/missing.py",
        "        for part in (set().union(*brought.values()) - looked) | copying:\n",
        "        if len(brought) > len(looked):\n            looked.clear()\n"
        "        for part in (set().union(*brought.values()) - looked) | copying:\n",
        "tests/unit/replica/test_missing_parts.py"
        "::test_who_has_yet_to_look_on_his_own_disk_is_named",
    ),
    LineMutant(
        "lost parts: who has yet to carry out a replacement is not waited for",
        f"{REPLICA}/missing.py",
        "            if (parts := {part for part in parts_brought(entry) if part in wanted})\n",
        "            if not isinstance(entry, ReplaceRange)\n"
        "            and (parts := {part for part in parts_brought(entry) if part in wanted})\n",
        f"{LOST}::test_nor_while_somebody_has_yet_to_carry_out_what_brought_it",
    ),
    LineMutant(
        "lost parts: one that a replacement brings at this moment is replaced",
        f"{REPLICA}/upkeep/lost.py",
        "    if not isinstance(view.decide(nodes[0], Facts(has_rows=False)), Run):\n",
        "    if not isinstance(view.decide(nodes[0], Facts(has_rows=False)), Run) and False:\n",
        f"{LOST}::test_not_while_another_entry_that_brings_it_is_carried_out",
    ),
    LineMutant(
        "lost parts: other rows are put back",
        f"{REPLICA}/put_back.py",
        "        if difference is not None:\n",
        "        if difference is None:\n            return manifest\n        if not promise:\n",
        f"{LOST}::test_other_rows_are_not_put_back",
    ),
    LineMutant(
        "lost parts: where there is no room nothing is whole",
        f"{REPLICA}/put_back.py",
        "    problems: list[str] = []\n",
        "    problems: list[str] = []\n    store.marks.looked_again(part)\n",
        f"{LOST}::test_while_there_is_no_room_to_put_it_back_it_is_not_lost",
    ),
    LineMutant(
        "marks: an old one keeps its time",
        "rmt_pipeline/store/marks.py",
        "        self._note_promise(part, promise)\n",
        "        if self.given_up_s(part) is None:\n"
        "            self._note_promise(part, promise)\n",
        "tests/unit/replica/test_flipped_bytes.py"
        "::test_an_old_mark_is_not_forgotten_while_its_part_is_given_up_again",
    ),
    LineMutant(
        "restore: what was given up before is put back",
        f"{REPLICA}/life/restore.py",
        "        replica.store.marks.looked_again(part)\n",
        "        pass\n",
        "tests/unit/replica/life/test_restore.py"
        "::test_no_part_of_the_table_of_before_is_put_back_afterwards",
    ),
    LineMutant(
        "lost parts: nobody is waited for who may have a copy in another table",
        f"{REPLICA}/missing.py",
        "for part in wanted if _may_copy(queues, peer, part, queued)}\n",
        "for part in wanted if False}\n",
        "tests/unit/replica/partitions/test_from_table.py"
        "::test_a_part_is_not_lost_that_another_replica_has_a_copy_of",
    ),
    LineMutant(
        "lost parts: one is linked from another table after it was lost",
        f"{REPLICA}/work/replace.py",
        "if there is None}\n",
        "}\n",
        "tests/unit/replica/partitions/test_from_table.py"
        "::test_it_is_lost_when_that_one_has_looked_in_vain",
    ),
    LineMutant(
        "lost parts: one is linked from another table while it is lost",
        f"{REPLICA}/work/replace.py",
        "*found.dropping.finish(going, headers), *self.none_lost]",
        "*found.dropping.finish(going, headers)]",
        "tests/unit/replica/partitions/test_from_table.py"
        "::test_a_part_that_is_lost_while_another_replica_links_its_copy_is_lost_there_too",
    ),
    LineMutant(
        "lost parts: what a replacement brought is not looked at again",
        f"{REPLICA}/work/replace.py",
        "if is_unseen(self.replica, part):",
        "if is_unseen(self.replica, part) and False:",
        "tests/simulation/test_scenarios.py"
        "::test_what_a_replacement_brought_is_looked_at_again_before_it_is_lost",
    ),
    LineMutant(
        "lost: a part that only a half-dropped replica promises is somewhere",
        "rmt_pipeline/replica/missing.py",
        "    living = staying_replicas(replica.keeper, replica.table)\n    queued = _queued",
        "    living = replica.keeper.children(replica.table.replicas)\n    queued = _queued",
        "tests/unit/replica/test_half_dropped.py::test_a_part_that_only_it_promises_is_lost",
    ),
    LineMutant(
        "quorum: a half-dropped replica counts for a majority",
        f"{REPLICA}/insert/quorum.py",
        "    living = staying_replicas(replica.keeper, replica.table)\n    required",
        "    living = dict.fromkeys(replica.keeper.children(replica.table.replicas), True)\n"
        "    required",
        "tests/unit/replica/test_half_dropped.py::test_it_counts_for_no_majority",
    ),
    LineMutant(
        "quorum: who is dropped in the middle of it counts himself",
        FATE,
        "    return Counted((Check(host), *changed), failed)\n",
        "    return Counted(tuple(changed), failed)\n",
        f"{HALF}::test_it_does_not_count_itself_for_a_quorum",
    ),
    LineMutant(
        "publish: what a half-dropped replica promises is to be fetched",
        "rmt_pipeline/zookeeper/snapshot.py",
        "        if host is not None:\n            for part, read",
        "        if name:\n            for part, read",
        "tests/unit/replica/test_half_dropped.py"
        "::test_other_bytes_that_it_promises_are_not_waited_for",
    ),
    LineMutant(
        "waits: a replica whose drop was cut off is waited for",
        f"{REPLICA}/wait.py",
        "                keeper.get(paths.host)\n                if give_up():\n",
        "                if give_up():\n",
        "tests/unit/replica/test_half_dropped.py::test_a_drop_of_all_rows_does_not_wait_for_it",
    ),
    LineMutant(
        "waits: a mutation is waited for where a drop was cut off",
        f"{REPLICA}/mutations/mutations.py",
        "    return is_finished or keeper.exists(paths.host) is None\n",
        "    return is_finished\n",
        "tests/unit/replica/test_half_dropped.py::test_a_mutation_does_not_wait_for_it",
    ),
    LineMutant(
        "quorum: the status of a later insert is that of the one before",
        FATE,
        "        same = Check(self.table.quorum, self.version)\n",
        "        same = Check(self.table.quorum)\n",
        LATE,
    ),
    LineMutant(
        "quorum: an insert that waits does not tell its status from an earlier one",
        "rmt_pipeline/zookeeper/transactions.py",
        "        steps.append(([status, SetData(table.quorum)], Purpose.QUORUM, None))\n",
        "        steps.append(([status], Purpose.QUORUM, None))\n",
        LATE,
    ),
)
