"""Bugs in what is known of an insert of which some was lost or moved."""

from tests.mutants.planting import LineMutant

REPLICA = "rmt_pipeline/replica"
ROWS = "rmt_pipeline/protocol/inserts/rows.py"
RULES = "tests/unit/protocol/inserts/test_rows.py"
TESTS = "tests/unit/replica/insert/test_lost_blocks.py"
IDS = "tests/unit/replica/insert/test_ids_in_zookeeper.py"

STEPS = "tests/unit/replica/insert/test_steps.py"

IN_PART = "tests/unit/replica/life/test_restore_in_part.py"
AFTER = "tests/unit/replica/life/test_after_restore.py"
AGAIN = "tests/unit/replica/life/test_restore_said_again.py"
DEAD_TRIES = "tests/unit/replica/life/test_restore_dead_tries.py"
UNKNOWN = "tests/unit/replica/insert/test_unknown_commits.py"

INSERT_MUTANTS = (
    LineMutant(
        "insert: that no part and no id is there proves that it never landed",
        "rmt_pipeline/protocol/inserts/interpret.py",
        "NotCommitted() if evidence.log_is_whole else StillUnknown()",
        "NotCommitted()",
        f"{UNKNOWN}::test_without_the_log_it_stays_unknown",
    ),
    LineMutant(
        "insert: a log of after a restore is asked for a commit of before",
        f"{REPLICA}/insert/pending.py",
        "log_is_whole=replica.creation == self.creation\n",
        "log_is_whole=True\n",
        "tests/unit/replica/life/test_after_restore.py"
        "::test_the_log_of_a_table_that_is_made_again_tells_nothing_of_earlier_commits",
    ),
    LineMutant(
        "insert: how long the log was is read once and for all",
        f"{REPLICA}/insert/insert.py",
        " and now_s - known.seen_s < _LOG_KNOWN_S:\n",
        ":\n",
        f"{UNKNOWN}::test_a_log_that_grew_by_the_inserts_of_others_tells_enough",
    ),
    LineMutant(
        "insert: what the log says of it is not looked at",
        f"{REPLICA}/insert/pending.py",
        "            log_entry=any(read is not None and read[0] in written for read in entries),\n",
        "",
        f"{UNKNOWN}::test_what_a_condition_left_is_not_there_twice",
    ),
    LineMutant(
        "notes: a merge across the numbers of a commit that never landed leaves its note",
        f"{REPLICA}/work/carry.py",
        "                settle_notes(self._replica, task.part)\n",
        "                pass\n",
        f"{IN_PART}::test_a_merge_across_what_never_landed_does_not_have_its_rows",
    ),
    LineMutant(
        "restore: which blocks are of dead tries is decided by a disk alone",
        f"{REPLICA}/life/disk_parts.py",
        "    maximal, overlapping = outermost(manifests)\n",
        "    for part in unseen:\n"
        "        if any(small[one].content_hash == small[part].content_hash\n"
        "               for one in small.keys() - unseen):\n"
        "            left_out.append((part, str(manifests.pop(part))))\n"
        "    maximal, overlapping = outermost(manifests)\n",
        f"{DEAD_TRIES}"
        "::test_what_was_inserted_again_after_a_drop_is_no_repeat_of_what_was_dropped",
    ),
    LineMutant(
        "drop: what was noted when the table was made again stays noted",
        "rmt_pipeline/replica/upkeep/clean_up.py",
        "    forget_undone_drops(replica)\n",
        "",
        f"{AFTER}::test_a_drop_that_a_process_of_before_notes_takes_nothing_when_it_is_lost_again",
    ),
    LineMutant(
        "start: what was noted when the table was made again stays noted",
        f"{REPLICA}/upkeep/check.py",
        "    forget_undone_drops(replica)\n    disk",
        "    disk",
        f"{AFTER}::test_a_drop_that_a_process_of_before_notes_takes_nothing_when_it_is_lost_again",
    ),
    LineMutant(
        "drop: what is noted and not carried out yet is forgotten",
        f"{REPLICA}/upkeep/check.py",
        "        if one not in queued and any(",
        "        if one and any(",
        "tests/unit/replica/life/test_restore_dropped.py"
        "::test_a_drop_that_is_noted_and_not_carried_out_yet_stays_noted",
    ),
    LineMutant(
        "alter: who means the replica of before a restore takes up an ALTER",
        f"{REPLICA}/alter/apply.py",
        "        if before.creation != replica.definition.creation:\n",
        "        if before.uuid != replica.definition.uuid:\n",
        f"{AFTER}::test_an_alter_of_before_that_is_taken_up_afterwards_stops_no_server",
    ),
    LineMutant(
        "restore: a replica that an older copy of ZooKeeper knows is the one of before",
        f"{REPLICA}/life/announce.py",
        "and made.created_zxid < restoring.created_zxid\n",
        "and made.created_zxid > restoring.created_zxid\n",
        f"{AFTER}::test_an_alter_of_before_that_is_taken_up_afterwards_stops_no_server",
    ),
    LineMutant(
        "restore: what merges went across is what stays",
        "rmt_pipeline/protocol/restoring.py",
        "        and covering.blocks_count > 1\n",
        "        and covering.blocks_count < 1\n",
        f"{DEAD_TRIES}::test_what_merges_went_across_is_not_what_stays",
    ),
    LineMutant(
        "restore: ids and records name the block of a try that died",
        f"{REPLICA}/life/known_inserts.py",
        "    if united.repeats:\n",
        "    if not united:\n",
        f"{DEAD_TRIES}::test_what_stays_of_two_tries_is_what_is_forgotten_when_it_is_dropped",
    ),
    LineMutant(
        "restore: what is forgotten with a dropped block names a later one too late",
        f"{REPLICA}/life/opening.py",
        "    _name_what_came_again(replica, said, united, held, ranges)\n"
        "    _forget_dropped(replica, ranges)\n",
        "    _forget_dropped(replica, ranges)\n"
        "    _name_what_came_again(replica, said, united, held, ranges)\n",
        f"{AGAIN}::test_what_was_dropped_and_inserted_again_is_known",
    ),
    LineMutant(
        "restore: a token is that of the block that was dropped",
        f"{REPLICA}/life/known_inserts.py",
        "        return ops or what_to_move(unbound(replica), moves)\n",
        "        return ops\n",
        f"{AGAIN}::test_what_was_dropped_and_inserted_again_is_known",
    ),
    LineMutant(
        "restore: a block that no server has noted has no id of its rows",
        f"{REPLICA}/life/known_inserts.py",
        "            if read is not None and names_earlier(read[0], part)\n",
        "            if read is None\n",
        f"{AGAIN}::test_what_was_dropped_and_inserted_again_is_known",
    ),
    LineMutant(
        "restore: rows under another token are those of the insert",
        f"{REPLICA}/life/known_inserts.py",
        "            if name.startswith(ids.BY_ROWS)\n",
        "            if name\n",
        f"{AGAIN}::test_an_insert_of_the_same_rows_under_another_token_is_another_one",
    ),
    LineMutant(
        "restore: rows that came again are known by blocks that are cut as before alone",
        "rmt_pipeline/protocol/restoring.py",
        "        if gone and not are_equal:\n",
        "        if not gone and are_equal:\n",
        f"{AGAIN}::test_what_was_inserted_again_cut_otherwise_is_known",
    ),
    LineMutant(
        "restore: a dead try is unknown to the record of an older copy, and so stays",
        f"{REPLICA}/life/known_inserts.py",
        "InsertTries(blocks | tries.keys(), unsure)",
        "InsertTries(blocks, unsure)",
        f"{DEAD_TRIES}"
        "::test_a_dead_try_of_an_insert_that_an_older_copy_of_zookeeper_knows_goes",
    ),
    LineMutant(
        "restore: rows of a dead try count as rows of an insert in part",
        f"{REPLICA}/life/known_inserts.py",
        "known.version, lines, rows_left=rows_left)",
        "known.version, lines)",
        f"{IN_PART}::test_two_that_went_on_with_an_insert_know_together_what_is_in",
    ),
    LineMutant(
        "restore: a merge has the rows of each number that it goes across",
        f"{REPLICA}/life/disk_parts.py",
        "        if sources and source is None:\n",
        "        if False:\n",
        f"{DEAD_TRIES}"
        "::test_a_dead_try_across_whose_number_others_were_merged_is_not_in_the_table",
    ),
    LineMutant(
        "notes: what never landed comes back with a power cut",
        "rmt_pipeline/store/marks.py",
        "        if paths and self._durable:\n",
        "        if not paths:\n",
        "tests/unit/store/test_marks.py"
        "::test_the_note_of_a_commit_stays_forgotten_after_a_power_cut",
    ),
    LineMutant(
        "drop: a range that was forgotten comes back with a power cut",
        "rmt_pipeline/store/dropped.py",
        "        self._disk.remove_tree(self._path(part_range))\n        if self._durable:\n",
        "        self._disk.remove_tree(self._path(part_range))\n        if False:\n",
        "tests/unit/store/test_marks.py"
        "::test_a_dropped_range_stays_forgotten_after_a_power_cut",
    ),
    LineMutant(
        "notes: a commit that is under way is taken for one that never landed",
        f"{REPLICA}/upkeep/commit_notes.py",
        "if is_young or any(replica.keeper.exists_many(locks)):",
        "if is_young:",
        f"{IN_PART}::test_a_note_of_a_commit_that_is_under_way_stays",
    ),
    LineMutant(
        "ids: who undoes an insert without ids does not tell who read its record",
        f"{REPLICA}/partitions/undo.py",
        " or [SetData(replica.table.inserts)]\n",
        "\n",
        f"{IDS}::test_who_forgets_what_was_undone_forgets_nothing_that_was_said_again",
    ),
    LineMutant(
        "ids: an insert is filtered by those that it remembers",
        f"{REPLICA}/insert/insert.py",
        "        holder = replica.new_holder()\n        tagged",
        "        known = replica.memory.partitions.of([block.block_id for block in blocks])\n"
        "        replica.memory.partitions.learn({block.block_id: None for block in blocks})\n"
        "        if known:\n"
        "            self._is_there(replica, self._todo.pop(partitions.pop()))\n"
        "            return lambda: None\n"
        "        holder = replica.new_holder()\n        tagged",
        f"{IDS}::test_what_another_replica_has_dropped_is_inserted",
    ),
    LineMutant(
        "ids: one that has gone since the refusal is there all the same",
        f"{REPLICA}/insert/insert.py",
        "            if read is None or above is None:\n                continue\n",
        "            if read is None or above is None:\n"
        "                partition = block.staged.manifest.partition_id\n"
        "                self._is_there(replica, self._todo.pop(partition))\n"
        "                continue\n",
        f"{IDS}::test_a_block_whose_id_goes_meanwhile_is_inserted",
    ),
    LineMutant(
        "group commit: one that is refused takes the others along",
        f"{REPLICA}/insert/steps.py",
        "            return keeper.multi_many(multis)\n        except Exception",
        "            raise\n        except Exception",
        STEPS,
    ),
    LineMutant(
        "group commit: what got no answer is sent again",
        f"{REPLICA}/insert/steps.py",
        "        except Refused:\n            return keeper.multi_many(multis)\n",
        "        except Exception:\n            return keeper.multi_many(multis)\n",
        STEPS,
    ),
    LineMutant(
        "group commit: a sync that failed is tried again for each",
        f"{REPLICA}/insert/steps.py",
        " and isinstance(error, MissingPart | Conflict):\n",
        ":\n",
        f"{STEPS}::test_an_error_of_the_disk_is_that_of_all_and_no_sync_is_tried_again",
    ),
    LineMutant(
        "group commit: the session of the first sends for all",
        f"{REPLICA}/insert/steps.py",
        "by_keeper.setdefault(id(walk.replica.keeper), [])",
        "by_keeper.setdefault(0, [])",
        f"{STEPS}::test_each_multi_is_sent_in_the_session_of_its_insert",
    ),
    LineMutant(
        "group commit: the steps of an insert stop where another thread was interrupted",
        f"{REPLICA}/insert/steps.py",
        "        steps.throw(interrupted)\n",
        "        pass\n",
        f"{STEPS}::test_who_is_interrupted_leaves_the_others_to_themselves",
    ),
    LineMutant(
        "group commit: all wait while one reads why it may not allocate",
        f"{REPLICA}/insert/insert.py",
        "partial(self._explain_allocation, replica, blocks, tagged, refused)\n",
        "(self._explain_allocation(replica, blocks, tagged, refused), lambda: None)[1]\n",
        f"{STEPS}::test_what_a_refused_one_reads_keeps_nobody_waiting",
    ),
    LineMutant(
        "group commit: all wait while one reads why it may not commit",
        f"{REPLICA}/insert/insert.py",
        "partial(self._explain_commit, replica, batch, tagged, refused)\n",
        "(self._explain_commit(replica, batch, tagged, refused), lambda: None)[1]\n",
        f"{STEPS}::test_what_a_refused_one_reads_keeps_nobody_waiting",
    ),
    LineMutant(
        "group commit: whose steps are interrupted when it has its numbers keeps their locks",
        f"{REPLICA}/insert/insert.py",
        "        try:\n"
        "            step = self._progress(batch, blocks, locks) if insert_id else None\n",
        "        step = self._progress(batch, blocks, locks) if insert_id else None\n"
        "        try:\n",
        f"{STEPS}::test_who_is_interrupted_between_two_steps_of_another_one_leaves_no_lock",
    ),
    LineMutant(
        "group commit: each is told what became of the first",
        "rmt_pipeline/replica/together.py",
        "() if results is None else results[number : number + 1]\n",
        "() if results is None else results[:1]\n",
        "tests/unit/replica/test_together.py",
    ),
    LineMutant(
        "group commit: who is interrupted takes back what is still to be sent",
        "rmt_pipeline/replica/together.py",
        "        while asked.outcome is None and asked in self._under_way:\n",
        "        while False:\n",
        "tests/unit/replica/test_together.py"
        "::test_who_is_interrupted_while_it_is_done_for_him_learns_it_when_it_is_over",
    ),
    LineMutant(
        "lost blocks: what is in of a partition stands for all of it",
        f"{REPLICA}/insert/insert.py",
        "            if name in incomplete:\n",
        "            if name in incomplete and False:\n",
        f"{TESTS}::test_one_block_after_another_is_lost_and_comes_back",
    ),
    LineMutant(
        "lost blocks: a record forgets that rows are missing",
        f"{REPLICA}/insert/record.py",
        "one for one in before.missing if one.partition not in completed",
        "one for one in before.missing if one.partition in completed",
        f"{TESTS}::test_one_block_after_another_is_lost_and_comes_back",
    ),
    LineMutant(
        "lost blocks: those that are in are not left out",
        f"{REPLICA}/insert/blocks.py",
        "if at not in found]",
        "]",
        f"{TESTS}::test_two_who_bring_it_back_at_once_bring_it_once",
    ),
    LineMutant(
        "lost blocks: the missing one has the token's id of one that is in",
        f"{REPLICA}/insert/blocks.py",
        "        for block in self.blocks if token else ():\n",
        "        for block in ():\n",
        f"{TESTS}::test_blocks_that_come_in_another_order_are_the_same",
    ),
    LineMutant(
        "lost blocks: another cut is taken for the same",
        ROWS,
        "    is_told = wanted.total() == 0 and len(found) < len(contents)\n",
        "    is_told = len(found) < len(contents)\n",
        f"{RULES}::test_a_retry_with_every_block_that_is_in_brings_the_others",
    ),
    LineMutant(
        "lost blocks: rows that were merged when given count as others",
        "rmt_pipeline/protocol/nodes/records.py",
        "        return self.rows, self.row_hash, self.rows_given\n",
        "        return self.rows, self.row_hash, 0\n",
        f"{RULES}::test_a_retry_with_every_block_that_is_in_brings_the_others",
    ),
    LineMutant(
        "lost blocks: what is left of none is missing in part",
        ROWS,
        "(is_alone or not insert_id.startswith(REPLACEMENT))",
        "is_alone",
        f"{RULES}::test_when_nothing_of_a_partition_is_left_it_is_missing_as_a_whole",
    ),
    LineMutant(
        "lost blocks: one of an old line stands for all of it",
        ROWS,
        "    if any(line.first != line.last or line.first == UNKNOWN_BLOCK for line in lines):\n",
        "    if not lines:\n",
        f"{RULES}::test_a_line_of_several_blocks_tells_nothing_of_a_part_of_them",
    ),
    LineMutant(
        "lost blocks: their insert is forgotten by clean-up",
        f"{REPLICA}/forget.py",
        "    if left.record.missing and not left.batches and not",
        "    if False and not left.batches and not",
        f"{TESTS}::test_what_has_rows_missing_says_so_until_they_are_back",
    ),
    LineMutant(
        "lost blocks: other inserts rely on one unseen",
        "rmt_pipeline/zookeeper/transactions.py",
        "            [SetData(table.block(one.block_id), one.part.encode(), one.version)],\n",
        "            [],\n",
        f"{TESTS}::test_who_relies_on_a_block_while_it_is_forgotten_has_rows_missing",
    ),
    LineMutant(
        "lost blocks: who relied on one meanwhile is not seen",
        f"{REPLICA}/forget.py",
        "        [Delete(path, read[1].version)]\n",
        "        [Delete(path)]\n",
        f"{TESTS}::test_who_relies_on_a_block_while_it_is_forgotten_has_rows_missing",
    ),
    LineMutant(
        "lost parts: what a replacement brought is waited for",
        f"{REPLICA}/upkeep/lost.py",
        "            return entry.new_parts\n",
        "            return ()\n",
        "tests/unit/replica/test_lost_parts.py"
        "::test_what_a_replacement_brought_and_nobody_has_is_not_waited_for_for_ever",
    ),
    LineMutant(
        "backfill: a token whose rows were there is not known",
        f"{REPLICA}/partitions/overwrite.py",
        "                    self._note_same(self.living(), unchanged)\n",
        "",
        "tests/unit/replica/partitions/test_overwrite.py"
        "::test_a_token_whose_rows_were_there_already_is_known",
    ),
    LineMutant(
        "backfill: rows that stay keep their old numbers",
        f"{REPLICA}/forget.py",
        "        if part is not None and (now := moved.part(part)) != part:\n",
        "        if part is not None and (now := moved.part(part)) is None:\n",
        "tests/unit/replica/partitions/test_overwrite.py"
        "::test_rows_that_stay_and_are_dropped_can_be_inserted_again",
    ),
    LineMutant(
        "backfill: a quorum is passed over",
        f"{REPLICA}/partitions/overwrite.py",
        "        if Quorum.of(self.query).replicas != 1:\n",
        "        if Quorum.of(self.query).replicas == 0:\n",
        "tests/unit/replica/partitions/test_overwrite.py"
        "::test_a_quorum_is_refused_as_nobody_would_wait_for_it",
    ),
    LineMutant(
        "reports: a lost replica says that rows were dropped",
        f"{REPLICA}/insert/report.py",
        'any(one is None or one[0] == b"1" for one in lost)',
        "None in lost",
        "tests/unit/replica/insert/test_report.py"
        "::test_a_lost_replica_does_not_say_that_rows_were_dropped",
    ),
    LineMutant(
        "retention: ids are there longer than their record",
        "rmt_pipeline/protocol/retention.py",
        "if oldest is None or written[one].zxid < oldest",
        "if one",
        f"{TESTS}::test_ids_are_not_there_longer_than_the_record_that_they_belong_to",
    ),
    LineMutant(
        "ids: one that is there again is the one that was found",
        "rmt_pipeline/zookeeper/transactions.py",
        "for version in sorted({one.forgotten for one in there})",
        "for version in sorted({one.forgotten for one in there if False})",
        f"{IDS}::test_an_id_that_is_there_again_is_not_the_one_that_was_found",
    ),
    LineMutant(
        "ids: what came since is forgotten",
        f"{REPLICA}/forget.py",
        "replace(op, version=op.version + multis)",
        "replace(op, version=-1)",
        f"{IDS}::test_who_forgets_what_was_dropped_forgets_nothing_that_came_since",
    ),
    LineMutant(
        "ids: those who forget many are in their own way",
        f"{REPLICA}/forget.py",
        "replace(op, version=op.version + multis)",
        "replace(op, version=op.version)",
        f"{IDS}::test_many_are_forgotten_with_several_multis",
    ),
)
