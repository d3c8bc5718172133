"""Planted bugs of one line each: the rules of a Replicated database."""

from tests.mutants.planting import LineMutant

CATCH_UP = "rmt_pipeline/sql/tasks/catch_up.py"
LOGGED = "rmt_pipeline/sql/tasks/database_log.py"
DATABASE = "rmt_pipeline/cluster/database.py"
LOOP = "rmt_pipeline/server/tasks.py"
WORKER = "rmt_pipeline/cluster/worker.py"
QUEUE = "rmt_pipeline/cluster/queue.py"
STORIES = "tests/unit/cluster/test_replicated_database.py"
MISSED = "tests/unit/cluster/test_missed_alters.py"
STATEMENTS = "tests/unit/cluster/test_on_cluster.py"

TASK = "rmt_pipeline/sql/tasks/task.py"
ON_CLUSTER = "rmt_pipeline/sql/run/on_cluster.py"
WAIT = "rmt_pipeline/replica/wait.py"
SAID = "rmt_pipeline/sql/run/databases.py"
RECORDED = "rmt_pipeline/sql/run/replicated.py"
LOST = "tests/unit/cluster/test_lost_database.py"
DIES = "tests/crash/test_restore_database.py"
NODES = "tests/unit/cluster/test_database_nodes.py"

DATABASE_MUTANTS: tuple[LineMutant, ...] = (
    LineMutant(
        "on cluster: who did not carry a statement out answers at once",
        TASK,
        "                    self._wait_until_here(keeper, begun, step, executed)\n",
        "                    pass\n",
        f"{STATEMENTS}::test_who_did_not_carry_it_out_answers_when_it_is_so_there_too",
    ),
    LineMutant(
        "on cluster: what may happen still has failed",
        TASK,
        "                if not left and is_unknown:\n",
        "                if not left and is_unknown and False:\n",
        f"{STATEMENTS}::test_what_may_happen_still_is_not_said_to_have_failed",
    ),
    LineMutant(
        "on cluster: who finds it carried out answers at once",
        TASK,
        "        return outcome\n\n    def _carried_out(\n",
        "        return outcome or TaskOutcome()\n\n    def _carried_out(\n",
        f"{STATEMENTS}::test_who_finds_it_carried_out_by_one_that_died_answers_when_it_is_so_there",
    ),
    LineMutant(
        "on cluster: a replica that was dropped is waited for",
        TASK,
        "            except ReplicaDropped as error:  # no later session brings it back\n"
        "                return _failed(error)\n",
        "",
        f"{STATEMENTS}::test_a_replica_that_was_dropped_elsewhere_holds_up_nothing",
    ),
    LineMutant(
        "on cluster: what is not queued yet is not waited for",
        WAIT,
        "    last = log.next_sequence - 1\n",
        "    last = -1\n",
        f"{STATEMENTS}::test_who_did_not_carry_it_out_answers_when_it_is_so_there_too",
    ),
    LineMutant(
        "on cluster: a mutation is not waited for where it was not said",
        TASK,
        "stat.created_zxid == mark.created_zxid\n",
        "stat.created_zxid > mark.created_zxid\n",
        f"{STATEMENTS}::test_who_did_not_carry_it_out_answers_when_it_is_so_there_too",
    ),
    LineMutant(
        "on cluster: who is not to wait for partitions waits",
        ON_CLUSTER,
        "            return statement.answer.settings\n",
        "            return ()\n",
        f"{STATEMENTS}::test_who_is_not_to_wait_does_not",
    ),
    LineMutant(
        "on cluster: who comes late waits as if somebody were answered",
        TASK,
        "        left_s = query.receive_timeout - (clock.now_s() - created.created_ms / 1000)\n",
        "        left_s = float(query.receive_timeout)\n",
        f"{STATEMENTS}::test_who_comes_when_nobody_is_answered_any_more_waits_for_nothing",
    ),
    LineMutant(
        "on cluster: a table that is gone is waited for",
        TASK,
        "            self.context.table(step.table.name, database)\n",
        "",
        f"{STATEMENTS}::test_nobody_waits_for_a_table_that_is_not_there_any_more",
    ),
    LineMutant(
        "database: a record is ordered by how many ALTERs a shard's table has had",
        "rmt_pipeline/protocol/nodes/tasks.py",
        "        return (self.task, self.version) < (other.task, other.version)\n",
        "        return (self.version, self.task) < (other.version, other.task)\n",
        f"{MISSED}::test_a_shard_that_has_had_fewer_alters_tells_the_record_of_the_next_one",
    ),
    LineMutant(
        "database: the pointer is moved before the work",
        LOOP,
        "        worker.turn()\n        now = picture(worker.keeper, self._paths)\n",
        "        now = picture(worker.keeper, self._paths)\n"
        "        move_pointer(worker.keeper, self._paths, self._replica, now.last_task)\n"
        "        worker.turn()\n        now = picture(worker.keeper, self._paths)\n",
        f"{MISSED}::test_the_pointer_stays_before_what_is_not_worked_off",
    ),
    LineMutant(
        "database: what somebody needs is cleaned from the log",
        QUEUE,
        "        too_many = {name for name in too_many if sequence_number(name) < needed}\n",
        "        assert needed >= 0\n",
        f"{MISSED}::test_what_somebody_needs_of_the_log_is_not_cleaned_for_what_comes_after_it",
    ),
    LineMutant(
        "database: what a running server has not come to is cleaned from the log",
        LOGGED,
        "*(done + 1 for done in running), ",
        "",
        f"{MISSED}::test_what_somebody_needs_of_the_log_is_not_cleaned_for_what_comes_after_it",
    ),
    LineMutant(
        "database: an ALTER that all failed to carry out is kept in the log",
        LOGGED,
        "for one in self._untold if not one.is_vain]",
        "for one in self._untold]",
        f"{MISSED}::test_an_alter_that_nobody_could_carry_out_is_not_kept_in_the_log",
    ),
    LineMutant(
        "database: who goes on behind the end does not wait for ALTERs under way",
        LOOP,
        "            now = self._settled_picture(keeper)\n",
        "            now = picture(keeper, self._paths)\n",
        f"{STORIES}::test_a_new_server_has_what_others_have_still_to_carry_out",
    ),
    LineMutant(
        "database: who is away is not waited for though nobody has its ALTER",
        LOGGED,
        "                and (one.is_active or not alter.finished)\n",
        "                and one.is_active\n",
        f"{STORIES}::test_a_new_server_has_what_one_that_is_away_has_still_to_carry_out",
    ),
    LineMutant(
        "database: rows that come meanwhile are altered by which nobody said",
        "rmt_pipeline/replica/alter/request.py",
        "seen = replace(seen, end=end_of_log(replica))",
        "end_of_log(replica)",
        f"{MISSED}::test_rows_that_come_to_another_replica_meanwhile_are_not_touched",
    ),
    LineMutant(
        "database: rows that were given up are altered by which nobody said",
        CATCH_UP,
        "                if any(isinstance(entry, GetPart) for entry in queue):\n",
        "                if False:\n",
        f"{MISSED}::test_rows_that_come_to_another_replica_meanwhile_are_not_touched",
    ),
    LineMutant(
        "database: an ALTER is not followed in the other shard",
        CATCH_UP,
        "            self._alter_as_others(look, here, wanted)\n",
        "            return\n",
        f"{MISSED}::test_who_comes_to_a_shard_that_has_missed_an_alter_has_it",
    ),
    LineMutant(
        "database: an ALTER that nobody has still to come to is nobody's",
        LOGGED,
        "if replica not in one.finished]\n",
        "if False and replica not in one.finished]\n",
        f"{STORIES}::test_an_alter_that_nobody_has_still_to_come_to_is_carried_out",
    ),
    LineMutant(
        "database: what is not taken up is told to the record",
        CATCH_UP,
        "                if here is not None and self._is_of_now(keeper, here):\n",
        "                if here is not None:\n",
        f"{STORIES}::test_what_is_not_taken_up_here_is_not_told_to_the_record",
    ),
    LineMutant(
        "database: a record is told what a table is, and not up to which statement",
        CATCH_UP,
        "self._tell_record(look.keeper, here, look.picture.last_task)\n",
        "self._tell_record(look.keeper, here, record.task)\n",
        f"{MISSED}::test_an_alter_that_the_record_knows_of_is_not_carried_out_again",
    ),
    LineMutant(
        "database: a table is looked for under the name that its ALTER says",
        LOGGED,
        "alters = {renamed(name, parsed): tasks for name, tasks in alters.items()}\n",
        'renamed("", parsed)\n',
        f"{STORIES}::test_an_alter_that_nobody_has_still_to_come_to_is_carried_out",
    ),
    LineMutant(
        "database: an ALTER takes a DETACH back",
        DATABASE,
        "        told = replace(record, is_detached=known.is_detached)\n",
        "        told = replace(record)\n",
        f"{STORIES}::test_an_alter_that_is_carried_out_after_a_detach_was_said_brings_nothing_back",
    ),
    LineMutant(
        "database: a table of the name that holds rows is dropped",
        CATCH_UP,
        "        if not store.parts() and not store.detached():\n",
        "        if store is not None:\n",
        f"{STORIES}::test_what_was_forgotten_of_the_log_is_found_by_comparing",
    ),
    LineMutant(
        "database: rows are altered by which nobody said",
        CATCH_UP,
        "if not _only_adds(commands) and self._has_rows(keeper, now):",
        "if False:",
        f"{MISSED}::test_rows_are_not_touched_by_what_a_server_has_missed",
    ),
    LineMutant(
        "database: rows of others of the shard are not looked for",
        CATCH_UP,
        "        return any(stat is not None and stat.children_count for stat in stats)",
        "        return any(stat is None for stat in stats)",
        f"{MISSED}::test_rows_that_come_to_another_replica_meanwhile_are_not_touched",
    ),
    LineMutant(
        "database: another table at a typed path is altered",
        CATCH_UP,
        '        if record.origin not in table.root.split("/"):\n',
        "        if not table.root:\n",
        f"{MISSED}::test_another_table_at_the_path_is_not_taken_for_one_that_has_missed_an_alter",
    ),
    LineMutant(
        "database: a DROP is of whatever has the name",
        CATCH_UP,
        "        return names.get(here.uuid, called) != called\n",
        "        return False\n",
        f"{STORIES}::test_what_failed_before_it_does_not_make_a_statement_be_of_another_table",
    ),
    LineMutant(
        "database: who skips a statement stays at it",
        DATABASE,
        "    end_work(keeper, [task.active_on(replica) for task in tasks])\n",
        "",
        f"{MISSED}::test_who_skips_a_statement_is_not_at_it_any_more",
    ),
    LineMutant(
        "statements: who is done with one stays at it",
        WORKER,
        "[self.queue.task(name).active_on(self.host) for name in over]",
        "[]",
        f"{STATEMENTS}::test_a_server_whose_last_word_lands_late_does_not_stay_at_work",
    ),
    LineMutant(
        "statements: a begin without an answer stays",
        WORKER,
        "            with seen_to(self.keeper, [mine]):\n                self.keeper.multi([create",
        "            if seen_to is not None:\n                self.keeper.multi([create",
        f"{STATEMENTS}::test_a_begin_that_lands_when_the_statement_is_done_does_not_stay",
    ),
    LineMutant(
        "database: who restores it is there before its tables are",
        SAID,
        "    make_database(keeper, paths, name)\n",
        "    register(keeper, paths, name, replica=database.name, server=server.server.name)\n",
        f"{DIES}::test_whoever_comes_next_goes_on",
    ),
    LineMutant(
        "database: who is not there any more was dropped",
        DATABASE,
        "    if noted is not None:\n",
        "    if noted is not None or keeper.exists(database.root) is not None:\n",
        f"{LOST}::test_who_makes_it_anew_tells_no_other_that_it_was_dropped",
    ),
    LineMutant(
        "database: that a replica was dropped is not noted",
        DATABASE,
        "[Create(note)] if keeper.exists(note) is None else []",
        "[]",
        f"{LOST}::test_a_database_that_was_dropped_here_is_not_restored",
    ),
    LineMutant(
        "database: who drops a replica keeps a database that goes",
        DATABASE,
        "[Check(database.replicas), Create(database.dropped_replicas)]",
        "[Create(database.dropped_replicas)]",
        f"{NODES}::test_who_drops_a_replica_keeps_no_database_that_goes",
    ),
    LineMutant(
        "database: SYSTEM DROP DATABASE REPLICA takes the path of a table",
        DATABASE,
        "    if root is not None and not root[0].startswith(DATABASE_MARK):",
        "    if False:",
        f"{NODES}::test_a_replica_of_a_table_is_none_of_a_database",
    ),
    LineMutant(
        "database: a table that is detached is not restored",
        SAID,
        "    here += [(one.definition, one.permanently) for one in catalog.detached(name)]\n",
        "",
        f"{DIES}::test_whoever_comes_next_goes_on",
    ),
    LineMutant(
        "database: a name that the same table has got meanwhile is taken",
        SAID,
        "            known = _by_origin(keeper, paths)  # another server may have been faster\n",
        "",
        f"{DIES}::test_two_that_restore_it_at_once_end_as_one",
    ),
    LineMutant(
        "database: one that was dropped is restored",
        SAID,
        "    if not isinstance(problem, DatabaseLost):\n",
        "    if False:\n",
        f"{LOST}::test_a_database_that_was_dropped_here_is_not_restored",
    ),
    LineMutant(
        "database: an ALTER that the first one had missed is not restored",
        SAID,
        "            update_record(keeper, paths, known[origin], record)\n",
        "            pass\n",
        f"{LOST}::test_an_alter_that_a_server_had_missed_when_all_was_lost_is_made_there_too",
    ),
    LineMutant(
        "database: a replica whose server has started since is dropped",
        DATABASE,
        "        if refused.kind is RefusalKind.NOT_EMPTY:\n",
        "        delete_tree(keeper, database.replica(replica))\n"
        "        if refused.kind is RefusalKind.NOT_EMPTY and False:\n",
        f"{NODES}::test_a_replica_whose_server_starts_meanwhile_is_not_dropped",
    ),
    LineMutant(
        "database: a replica that was made anew since is dropped",
        DATABASE,
        "    keeper.multi([Check(database.replicas, replicas.version), *ops, *noted])\n",
        "    keeper.multi([Check(database.replicas), *ops, *noted])\n",
        f"{NODES}::test_a_replica_that_was_made_anew_meanwhile_is_not_dropped",
    ),
    LineMutant(
        "database: a server removes the replica of another one",
        DATABASE,
        "        if holder != server.encode():\n"
        "            return _remove_if_last(keeper, database)\n",
        "",
        f"{NODES}::test_a_server_does_not_remove_the_replica_of_another_one_in_its_place",
    ),
    LineMutant(
        "database: a server removes the replica that comes in the place of its own just then",
        DATABASE,
        "            _remove_nodes(keeper, database, stat, [*own, database.replica(replica)])\n",
        "            delete_tree(keeper, database.replica(replica))\n",
        f"{NODES}::test_nor_one_that_comes_in_its_place_just_then",
    ),
    LineMutant(
        "database: who comes while the last replica goes fails",
        DATABASE,
        "            if refused.kind is not RefusalKind.NO_NODE:\n",
        "            if refused.kind is not None:\n",
        f"{NODES}::test_who_comes_while_the_last_replica_goes_makes_the_database",
    ),
    LineMutant(
        "database: who creates one again that ZooKeeper has lost makes an empty one",
        SAID,
        "        if problem is not None:\n            raise problem\n",
        "        register(server.keeper(), paths, name, replica=definition.name, "
        "server=server.server.name)\n",
        f"{LOST}::test_who_creates_it_again_is_told_to_restore_it",
    ),
    LineMutant(
        "database: it is made below one that was made just then",
        DATABASE,
        "        require_apart(keeper, database.root)  # one may have come since: now none comes "
        "any more\n",
        "",
        f"{NODES}::test_nor_is_a_database_while_the_one_above_is_made",
    ),
    LineMutant(
        "database: who could not finish a removal keeps its lock",
        DATABASE,
        "        keeper.strays.leave([lock])\n",
        "        pass\n",
        f"{NODES}::test_who_could_not_finish_a_removal_leaves_no_lock",
    ),
    LineMutant(
        "database: a record is written over that of a table made meanwhile",
        RECORDED,
        "        return SetData(self.paths.metadata, "
        "version=0 if stat is None else stat.version)\n",
        "        return SetData(self.paths.metadata, version=-1 if stat is None else -1)\n",
        f"{NODES}::test_a_record_is_not_written_over_that_of_a_table_made_meanwhile",
    ),
    LineMutant(
        "database: what an ALTER made is told of a table made meanwhile",
        DATABASE,
        "                    Check(database.metadata, above[1].version),\n",
        "                    Check(database.metadata),\n",
        f"{NODES}::test_what_an_alter_made_of_a_table_is_not_told_of_one_made_meanwhile",
    ),
)
