"""Planted bugs of one line each, for the tests of one narrow lane."""

from tests.mutants.lines_inserts import INSERT_MUTANTS
from tests.mutants.lines_quorum import QUORUM_MUTANTS
from tests.mutants.planting import LineMutant

PROTOCOL = "rmt_pipeline/protocol"
REPLICA = "rmt_pipeline/replica"
UNDO = "tests/unit/replica/partitions/test_undo.py"
DROPS = "tests/unit/replica/partitions/test_drop.py"
FETCHES = "tests/unit/replica/partitions/test_from_path.py"
FREEZES = "tests/unit/replica/partitions/test_freeze.py"
FROZEN = "tests/unit/store/test_frozen.py"
SWAPS = "tests/unit/replica/partitions/test_from_table.py"
OVERWRITES = "tests/unit/replica/partitions/test_overwrite.py"
ZOOKEEPER = "rmt_pipeline/zookeeper"
VALUES = "tests/unit/protocol/values tests/property/test_values.py"
UPKEEP = "tests/unit/protocol/upkeep"
MERGES = "tests/unit/protocol/merges tests/property/test_merges.py"
ACCOUNTING = "tests/unit/replica/test_accounting.py"
CLAIMS = "tests/unit/replica/test_claims.py"
BESIDE = "tests/simulation/test_scenarios_beside.py"
FETCH = "tests/unit/replica/work/test_fetch_sources.py"
BAD_PARTS = "tests/unit/replica/test_bad_parts.py"
CLONE = "tests/unit/replica/test_clone.py"
AGAIN = "tests/unit/replica/life/test_created_again.py"
ON_DISK = "tests/unit/replica/test_look_at_disk.py"
CLEAN_UP = "tests/unit/replica/test_clean_up.py"
INSERTS = "tests/unit/replica/test_insert_in_part.py"
MUTATIONS = "tests/unit/protocol/mutations tests/property/test_mutations.py"
FINISHED = "tests/unit/protocol/mutations tests/property/test_finished_mutations.py"
NOTED = "tests/unit/replica/test_mutations.py"
TOGETHER = "tests/unit/replica/test_publish_together.py"
EXCHANGE = "tests/unit/exchange/test_together.py"
LYING = "tests/unit/replica/work/test_lying_peer.py"
LOOKS = "tests/unit/replica/test_looks.py"
PULL = "tests/unit/replica/test_pull_log.py"
IDLE = "tests/unit/replica/test_idle.py"
QUEUE = "tests/unit/protocol/queue"
TRIES = "tests/unit/replica/work/test_merge_failures.py"
SCENARIOS = "tests/simulation/test_scenarios.py"
UNANSWERED = "tests/unit/replica/test_unanswered_changes.py"

TAKE_UP = """\
    take_up(replica, entry.metadata_text, entry.columns_text, entry.alter_version)
"""
APPLIED = """\
        replica.keeper.multi(
            applied_alter(
                replica.paths,
                node,
                metadata=entry.metadata_text.encode(),
                columns=entry.columns_text.encode(),
                version=entry.alter_version,
            )
        )
    except Refused as refused:
        if refused.kind is not RefusalKind.NO_NODE:
            raise  # else another worker of this replica was faster
"""

MUTANTS: tuple[LineMutant, ...] = (
    *INSERT_MUTANTS,
    *QUORUM_MUTANTS,
    LineMutant(
        "parts: one without a greater level contains",
        f"{PROTOCOL}/parts/name.py",
        "                or self.level > other.level\n",
        "                or self.level >= other.level\n",
        VALUES,
    ),
    LineMutant(
        "parts: mutations do not count in containing",
        f"{PROTOCOL}/parts/name.py",
        "            and self.mutation >= other.mutation\n",
        "",
        VALUES,
    ),
    LineMutant(
        "parts: neighbours overlap",
        f"{PROTOCOL}/parts/name.py",
        "            or self.block_min > other.block_max\n",
        "            or self.block_min >= other.block_max\n",
        VALUES,
    ),
    LineMutant(
        "parts: a drop range includes its delimiter",
        f"{PROTOCOL}/parts/name.py",
        "PartName(partition, 0, delimiter - 1,",
        "PartName(partition, 0, delimiter,",
        VALUES,
    ),
    LineMutant(
        "parts: a merge keeps the level",
        f"{PROTOCOL}/parts/name.py",
        "max(part.level for part in sources) + 1,",
        "max(part.level for part in sources),",
        VALUES,
    ),
    LineMutant(
        "part set: what is covered stays",
        f"{PROTOCOL}/parts/set.py",
        "        members[low:high] = [part]\n",
        "        members[low:low] = [part]\n",
        VALUES,
    ),
    LineMutant(
        "retention: an active replica that is slow is lost",
        f"{PROTOCOL}/retention.py",
        "elif replica.is_active or replica.is_lost is None or",
        "elif replica.is_lost is None or",
        UPKEEP,
    ),
    LineMutant(
        "retention: the entry that is needed next goes",
        f"{PROTOCOL}/retention.py",
        "if number < first_needed)",
        "if number <= first_needed)",
        UPKEEP,
    ),
    LineMutant(
        "retention: who was taken for lost may come back",
        f"{PROTOCOL}/retention.py",
        "check_hosts=tuple((replica.name, replica.host_version) for replica in gone),",
        "check_hosts=(),",
        UPKEEP,
    ),
    LineMutant(
        "retention: ids stay beyond their age",
        f"{PROTOCOL}/retention.py",
        "        if created_ms[name] < now_ms - window_seconds * 1000:\n            break\n",
        "",
        UPKEEP,
    ),
    LineMutant(
        "retention: a part that is read goes",
        f"{PROTOCOL}/retention.py",
        "    if old.readers:\n",
        "    if old.readers < 0:\n",
        UPKEEP,
    ),
    LineMutant(
        "reconcile: a covered promise is fetched",
        f"{PROTOCOL}/reconcile.py",
        "part for part in expected if here.containing(part) is None",
        "part for part in names if part not in by_name",
        UPKEEP,
    ),
    LineMutant(
        "reconcile: never too much that is unknown",
        f"{PROTOCOL}/reconcile.py",
        "if not force and wrong_rows > wrong_rows_ratio_max * all_rows:",
        "if not force and wrong_rows < 0:",
        UPKEEP,
    ),
    LineMutant(
        "interpret: a lock that is gone is a gone table",
        f"{PROTOCOL}/inserts/interpret.py",
        '        case "no node", Purpose.UNLOCK, int(index):\n',
        '        case "other", Purpose.UNLOCK, int(index):\n',
        "tests/unit/protocol/inserts",
    ),
    LineMutant(
        "interpret: no answer to the question is a no",
        f"{PROTOCOL}/inserts/interpret.py",
        "        return StillUnknown()\n",
        "        return NotCommitted()\n",
        "tests/unit/protocol/inserts",
    ),
    LineMutant(
        "predicate: a part that waits for its quorum",
        f"{PROTOCOL}/merges/predicate.py",
        "        if part in self.awaiting_quorum:\n",
        "        if False:\n",
        MERGES,
    ),
    LineMutant(
        "predicate: a part that is going to be dropped",
        f"{PROTOCOL}/merges/predicate.py",
        "        if covering.is_drop_range:\n",
        "        if covering is part:\n",
        MERGES,
    ),
    LineMutant(
        "selector: larger than allowed",
        f"{PROTOCOL}/merges/selector.py",
        "        if size > self._bytes_max:\n",
        "        if size < 0:\n",
        MERGES,
    ),
    LineMutant(
        "selector: unbalanced ranges",
        f"{PROTOCOL}/merges/selector.py",
        "        if ratio >= needed:\n",
        "        if ratio >= needed / 2:\n",
        MERGES,
    ),
    LineMutant(
        "mutations: rows of its own number",
        f"{PROTOCOL}/mutations.py",
        "if source.data_version < number <= version",
        "if source.data_version <= number <= version",
        MUTATIONS,
    ),
    LineMutant(
        "mutations: the pointer passes one that is not done",
        f"{PROTOCOL}/mutations.py",
        "            is_prefix = is_prefix and is_done\n",
        "            is_prefix = is_done\n",
        FINISHED,
    ),
    LineMutant(
        "mutations: what is queued is not waited for",
        f"{PROTOCOL}/mutations.py",
        "        for part in [*active, *_to_come(queue)]:\n",
        "        for part in active:\n",
        FINISHED,
    ),
    LineMutant(
        "mutations: the log pulled before the numbers in flight are read",
        f"{REPLICA}/mutations/mutations.py",
        "        committing = _in_flight(replica, mutations, open_ids)\n"
        "        pulled = pull_log(replica, afresh=True)\n"
        "        snapshot = queue_snapshot(keeper, replica.paths, memory.queue)\n",
        "        pulled = pull_log(replica, afresh=True)\n"
        "        snapshot = queue_snapshot(keeper, replica.paths, memory.queue)\n"
        "        committing = _in_flight(replica, mutations, open_ids)\n",
        "tests/simulation/test_scenarios_merges.py",
    ),
    LineMutant(
        "mutations: a look that a clone cut in two",
        f"{REPLICA}/mutations/mutations.py",
        "        if noted.is_lost_version == pulled.is_lost_version == after:\n",
        "        if memory:\n",
        NOTED,
    ),
    LineMutant(
        "mutations: noted although parts came back",
        f"{ZOOKEEPER}/transactions.py",
        "        Check(replica.is_lost, noted.is_lost_version),\n        SetData(replica.mutation",
        "        SetData(replica.mutation",
        NOTED,
    ),
    LineMutant(
        "mutations: noted for ever, although the part was given up",
        f"{ZOOKEEPER}/transactions.py",
        '        SetData(replica.mutation_pointer, b"", noted.pointer_version),\n',
        "",
        NOTED,
    ),
    LineMutant(
        "mutations: who notes does not watch the note",
        f"{REPLICA}/assign/duty.py",
        ".exists(self._replica.paths.mutation_pointer, self._changed)",
        ".exists(self._replica.paths.mutation_pointer)",
        NOTED,
    ),
    LineMutant(
        "mutations: the notes of others taken back",
        f"{ZOOKEEPER}/transactions.py",
        "finished.pointer.encode(), noted.pointer_version),",
        "finished.pointer.encode()),",
        NOTED,
    ),
    LineMutant(
        "life: several writes at once do not say which replica they mean",
        f"{ZOOKEEPER}/bound.py",
        "self.session.multi_many([[self._creation, *ops] for ops in multis])",
        '[["", *one] if isinstance(one, list) else one for one in '
        "self.session.multi_many(multis)]",
        AGAIN,
    ),
    LineMutant(
        "life: what was refused is another operation",
        f"{ZOOKEEPER}/bound.py",
        "refused.index - 1)",
        "refused.index)",
        INSERTS,
    ),
    LineMutant(
        "life: a server serves the namesake of its replica",
        f"{REPLICA}/upkeep/rewound.py",
        """replica.definition.uuid not in ("", *names):\n""",
        "not names:\n",
        AGAIN,
    ),
    LineMutant(
        "life: a replica from before is dropped for good",
        f"{REPLICA}/upkeep/rewound.py",
        "    return names is not None\n",
        "    return names != []\n",
        AGAIN,
    ),
    LineMutant(
        "clone: of whoever has the name of the source by now",
        f"{REPLICA}/life/clone.py",
        "            *(Check(self.paths.creation(uuid)) for uuid in self.creations),\n",
        "",
        AGAIN,
    ),
    LineMutant(
        "insert: parts are taken away from the new table",
        f"{REPLICA}/insert/insert.py",
        "            if _is_there(replica):\n",
        "            if commits:\n",
        AGAIN,
    ),
    LineMutant(
        "clone: still finished with what it had finished",
        f"{REPLICA}/life/clone.py",
        "                    SetData(replica.paths.mutation_pointer),\n",
        "",
        NOTED,
    ),
    LineMutant(
        "mutations: who waits for one waits for those before it",
        f"{REPLICA}/mutations/mutations.py",
        "        return mutation_id in noted_mutations(keeper, paths).finished\n",
        "        return mutation_id <= noted_mutations(keeper, paths).finished.pointer\n",
        NOTED,
    ),
    LineMutant(
        "mutations: the first partition comes first",
        f"{REPLICA}/assign/mutations.py",
        "    for part in _oldest_first(view):\n",
        "    for part in view.active:\n",
        NOTED,
    ),
    LineMutant(
        "mutations: what was sent may come when its numbers are given back",
        f"{ZOOKEEPER}/transactions.py",
        "    return [*ops, *release_locks([lock] if lock else [])]\n",
        "    return ops\n",
        UNANSWERED,
    ),
    LineMutant(
        "mutations: without an answer taken for not there",
        f"{REPLICA}/mutations/mutations.py",
        "        return settle_mutation(replica, sent, is_held=True)\n",
        "        return None\n",
        UNANSWERED,
    ),
    LineMutant(
        "mutations: an allocation without an answer is forgotten",
        f"{REPLICA}/mutations/mutations.py",
        "        with seen_to(replica.keeper, strays):\n            created",
        "        if strays:\n            created",
        UNANSWERED,
    ),
    LineMutant(
        "alter: a submission is looked for and not fenced off",
        f"{REPLICA}/alter/request.py",
        "        keeper.multi(fence_alter(table, seen))\n",
        "        raise Refused(Kind.BAD_VERSION, table.alters)\n",
        UNANSWERED,
    ),
    LineMutant(
        "alter: what was sent may come when its numbers are given back",
        f"{ZOOKEEPER}/alter_transactions.py",
        "    return [*ops, *release_locks([texts.lock] if texts.lock else [])]\n",
        "    return ops\n",
        UNANSWERED,
    ),
    LineMutant(
        "alter: ZooKeeper is told before the disk",
        f"{REPLICA}/alter/apply.py",
        f"{TAKE_UP}    try:\n{APPLIED}",
        f"    try:\n{APPLIED}{TAKE_UP}",
        "tests/unit/replica/alter/test_alter.py",
    ),
    LineMutant(
        "wire: a name may lead elsewhere",
        "rmt_pipeline/exchange/wire.py",
        '_NAME = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)',
        '_NAME = re.compile(r"[A-Za-z0-9._/-]+", re.ASCII)',
        "tests/unit/exchange",
    ),
    LineMutant(
        "clean up: what covers may have been given up",
        "rmt_pipeline/zookeeper/transactions.py",
        "is_lost_version),\n        Check(replica.part(covering)),\n",
        "-1),\n        Check(replica.part(covering)),\n",
        CLEAN_UP,
    ),
    LineMutant(
        "clean up: what covers may be gone",
        "rmt_pipeline/zookeeper/transactions.py",
        "        Check(replica.part(covering)),\n",
        "",
        CLEAN_UP,
    ),
    LineMutant(
        "clean up: a directory may be claimed",
        "rmt_pipeline/zookeeper/snapshot.py",
        "        return part not in self.claimed and part not in self.parts\n",
        "        return part not in self.parts\n",
        CLEAN_UP,
    ),
    LineMutant(
        "clean up: a directory may be promised again",
        "rmt_pipeline/zookeeper/snapshot.py",
        "        return part not in self.claimed and part not in self.parts\n",
        "        return part not in self.claimed\n",
        CLEAN_UP,
    ),
    LineMutant(
        "check: a part that was fetched meanwhile is given up",
        "rmt_pipeline/replica/upkeep/check.py",
        "            if refused.kind is RefusalKind.BAD_VERSION:\n                continue\n",
        "            if refused.kind is RefusalKind.BAD_VERSION:\n                return problem\n",
        BAD_PARTS,
    ),
    LineMutant(
        "check: what cannot be set aside is not healed",
        "rmt_pipeline/replica/upkeep/check.py",
        '        return f"; it could not be set aside: {error}"\n',
        "        raise\n",
        BAD_PARTS,
    ),
    LineMutant(
        "start: files that are gone are not missed",
        "rmt_pipeline/replica/upkeep/check.py",
        "LocalPart(part, replica.store.inspect(part).rows)",
        "LocalPart(part, replica.store.manifest(part).rows)",
        BAD_PARTS,
    ),
    LineMutant(
        "merge: one source that is gone stops them all",
        "rmt_pipeline/replica/work/making.py",
        "                    suspect(replica, error)\n                    continue\n",
        "                    suspect(replica, error)\n                    return\n",
        BAD_PARTS,
    ),
    LineMutant(
        "publish: a directory without a manifest is in the way",
        "rmt_pipeline/replica/publish.py",
        "    if not replica.store.is_taken(part):\n",
        "    if not replica.store.has(part):\n",
        BAD_PARTS,
    ),
    LineMutant(
        "queue: what comes after an entry that waits waits too",
        f"{PROTOCOL}/queue/view.py",
        "                wait.append((node, decision.reason))\n",
        "                wait.append((node, decision.reason))\n                break\n",
        ON_DISK,
    ),
    LineMutant(
        "queue: waiting is a failed attempt",
        f"{REPLICA}/work/execute.py",
        "        altered, ready, awaiting = alters_first(",
        "        for node, why in plan.wait:\n            record_failure(replica, node, 1, why)\n"
        "        altered, ready, awaiting = alters_first(",
        ON_DISK,
    ),
    LineMutant(
        "store: what an attempt that died has staged is in the way",
        "rmt_pipeline/store/part_store.py",
        "        return str(layout.StagedName(kind, hint, self._ids.new_id()))\n",
        '        return str(layout.StagedName(kind, hint, "0" * 32))\n',
        f"{TRIES}::test_a_merge_that_is_killed_leaves_a_directory_that_is_swept",
    ),
    LineMutant(
        "queue: a drop leaves the merges inside its range",
        f"{PROTOCOL}/queue/view.py",
        "        case MergeParts() | MutatePart():\n            return part_range",
        "        case MutatePart():\n            return part_range",
        QUEUE,
    ),
    LineMutant(
        "insert: the number that a drop took away is not missed",
        f"{ZOOKEEPER}/transactions.py",
        "        ([Delete(block.lock)], Purpose.UNLOCK),\n",
        "        ([], Purpose.UNLOCK),\n",
        f"{SCENARIOS}::test_what_is_dropped_while_it_is_in_flight_is_cancelled",
    ),
    LineMutant(
        "queue: a part is made before a drop of a part that it touches",
        f"{PROTOCOL}/queue/rules.py",
        "    for dropped, node in question.state.drop_parts.overlapping(part):\n"
        '        return f"{node}, which drops part {dropped}, must run before {part} is produced"\n'
        "    return None\n\n\ndef _replaces",
        "    return None\n\n\ndef _replaces",
        QUEUE,
    ),
    LineMutant(
        "queue: a part is dropped before a replacement brings it",
        f"{PROTOCOL}/queue/rules.py",
        "    DropPart: (_no_overlapping_drop, _replacement_came_first),\n",
        "    DropPart: (_no_overlapping_drop,),\n",
        QUEUE,
    ),
    LineMutant(
        "check: the disk is asked before ZooKeeper",
        f"{REPLICA}/upkeep/check.py",
        "        lost, promise = keeper.get_many([paths.is_lost, paths.part(part)])\n"
        "        if lost is None or promise is None:\n            return None\n"
        "        problem = _problem(look or replica.store.inspect, part)\n",
        "        problem = _problem(look or replica.store.inspect, part)\n"
        "        lost, promise = keeper.get_many([paths.is_lost, paths.part(part)])\n"
        "        if lost is None or promise is None:\n            return None\n",
        ON_DISK,
    ),
    LineMutant(
        "store: a whole part that was taken for a broken one is swept",
        "rmt_pipeline/store/layout.py",
        '    name = f"moved_tmp_{part}_{attempt}"\n    assert _MOVED.fullmatch(name), '
        'f"{name} is not a name for what was moved"\n',
        '    name = f"{_DELETING}{part}_{attempt}"\n',
        "tests/unit/store/test_part_store.py",
    ),
    LineMutant(
        "worker: a part that cannot be read stops the pool",
        "rmt_pipeline/replica/work/worker.py",
        "            problem = suspect(self.replica, error)\n",
        "            problem = None\n",
        BAD_PARTS,
    ),
    LineMutant(
        "worker: nobody watches the log",
        "rmt_pipeline/replica/work/worker.py",
        "pull_log(self.replica, self._log.fire)",
        "pull_log(self.replica)",
        IDLE,
    ),
    LineMutant(
        "worker: nobody watches the queue",
        "rmt_pipeline/replica/work/worker.py",
        "self.executor.glance(self._queue.fire)",
        "self.executor.glance(None)",
        IDLE,
    ),
    LineMutant(
        "worker: nobody watches the claims of others",
        "rmt_pipeline/replica/work/execute.py",
        "        claims_watch = watch if self._left else None\n",
        "        claims_watch = None\n",
        IDLE,
    ),
    LineMutant(
        "worker: what is left is not looked at again",
        "rmt_pipeline/replica/work/worker.py",
        "            waits.append(self._patience_s)\n",
        "",
        IDLE,
    ),
    LineMutant(
        "worker: what could not be read is taken for seen",
        "rmt_pipeline/replica/work/worker.py",
        "            self._queue.renew()\n",
        "",
        IDLE,
    ),
    LineMutant(
        "worker: there is no safety net",
        "rmt_pipeline/replica/work/worker.py",
        "                self._log.renew()\n                self._retry_s = 0.0\n",
        "",
        IDLE,
    ),
    LineMutant(
        "merges: inserts here are not heard of",
        "rmt_pipeline/replica/assign/duty.py",
        "seen is None or self._log.is_fired or now_s",
        "seen is None or now_s",
        IDLE,
    ),
    LineMutant(
        "merges: what was fetched since is not seen",
        "rmt_pipeline/replica/work/worker.py",
        "            self._merges.look_again()\n",
        "",
        IDLE,
    ),
    LineMutant(
        "merges: what stood between two parts stands there for ever",
        "rmt_pipeline/replica/assign/duty.py",
        "        if not mergeable_runs(view.predicate, view.active).boundaries:\n",
        "        if view.active:\n",
        IDLE,
    ),
    LineMutant(
        "publish together: what was promised is not compared",
        "rmt_pipeline/replica/work/execute.py",
        "        difference = expected and difference_from_promise(store, staged, expected)",
        "        difference = None",
        TOGETHER,
    ),
    LineMutant(
        "fetch: what a peer claims of other files is believed",
        "rmt_pipeline/replica/fetch.py",
        "    if rows_are_those_of(staged.manifest, paths):",
        "    if paths is not None:",
        LYING,
    ),
    LineMutant(
        "publish together: one that went takes all with it",
        "rmt_pipeline/replica/publish_batch.py",
        "        if one.part in together:\n",
        "        if one.part not in together:\n",
        TOGETHER,
    ),
    LineMutant(
        "publish together: one that fails stops the others",
        "rmt_pipeline/replica/publish_batch.py",
        "        except Exception as error:  # noqa: BLE001  of this part alone\n",
        "        except RmtError as error:\n",
        TOGETHER,
    ),
    LineMutant(
        "publish together: what nobody promised is taken for compared",
        "rmt_pipeline/replica/work/execute.py",
        "staged, expected is not None, awaited)",
        "staged, True, awaited)",
        TOGETHER,
    ),
    LineMutant(
        "merges: a partition is at rest while a block is on its way",
        f"{PROTOCOL}/merges/predicate.py",
        "            self._numbers.get(partition) == []\n",
        "            True\n",
        MERGES,
    ),
    LineMutant(
        "merges: a partition is at rest although more is promised",
        f"{PROTOCOL}/merges/predicate.py",
        "            and active.is_same_in(partition, self.virtual)\n",
        "",
        MERGES,
    ),
    LineMutant(
        "merges: a run that might be better is not looked at",
        f"{PROTOCOL}/merges/selector.py",
        "        if best is not None and run.least >= best.score:\n",
        "        if best is not None and run.least >= best.score / 2:\n",
        MERGES,
    ),
    LineMutant(
        "accounting: what a merge covers is not looked at when it is decided",
        "rmt_pipeline/replica/assign/merges.py",
        "        [entry],\n        log_version=",
        "        [],\n        log_version=",
        ACCOUNTING,
    ),
    LineMutant(
        "accounting: what was decided on another state is taken for a bug",
        "rmt_pipeline/replica/accounting.py",
        "        if versions == [log_version, is_lost_version]:\n",
        "        if versions:\n",
        ACCOUNTING,
    ),
    LineMutant(
        "accounting: what a mutation covers is not looked at when it is decided",
        "rmt_pipeline/replica/assign/mutations.py",
        "        replica, entries, log_version=",
        "        replica, [], log_version=",
        ACCOUNTING,
    ),
    LineMutant(
        "accounting: a part that is given up between two listings is in neither",
        "rmt_pipeline/replica/accounting.py",
        "            if before == keeper.exists(paths.is_lost):\n",
        "            if before is not None:\n",
        ACCOUNTING,
    ),
    LineMutant(
        "accounting: what does not add up is taken again",
        "rmt_pipeline/replica/accounting.py",
        "            where = self._set_aside(entry.result, staged)\n",
        '            where = "kept"\n',
        ACCOUNTING,
    ),
    LineMutant(
        "accounting: nor before it is published",
        "rmt_pipeline/replica/accounting.py",
        "        require_covered(self.replica, entry.result, sources_of(entry), there)\n",
        "",
        ACCOUNTING,
    ),
    LineMutant(
        "accounting: sums in ZooKeeper are not compared",
        "rmt_pipeline/replica/accounting.py",
        "        if made.row_hash != expected and not self._differs(entry.result, made):\n",
        "        if made.row_hash < 0 and not self._differs(entry.result, made):\n",
        ACCOUNTING,
    ),
    LineMutant(
        "fetch: who could not send a part is asked again and again",
        "rmt_pipeline/replica/work/execute.py",
        "            peer=peer,\n",
        "",
        FETCH,
    ),
    LineMutant(
        "fetch: when all have failed the first is asked for ever",
        "rmt_pipeline/replica/backoff.py",
        "frozenset() if peer in before.peers else before.peers",
        "before.peers",
        FETCH,
    ),
    LineMutant(
        "fetch: what others have may not be taken, and nobody is asked",
        "rmt_pipeline/replica/work/execute.py",
        "                    self._backoff.forgive(node)\n",
        "",
        FETCH,
    ),
    LineMutant(
        "worker: what the disk can't do keeps claims",
        "rmt_pipeline/replica/work/execute.py",
        "        finally:\n            self.give_back(batch)\n",
        "        finally:\n            pass\n",
        CLAIMS,
    ),
    LineMutant(
        "worker: what another session is at is begun again",
        "rmt_pipeline/replica/work/worker.py",
        "                elsewhere=self._hands.made_elsewhere(living.session),\n",
        "",
        BESIDE,
    ),
    LineMutant(
        "worker: the loop does the work itself",
        "rmt_pipeline/replica/work/worker.py",
        "            self._spawn(lambda: self._run(executor, batch))\n",
        "            self._run(executor, batch)\n",
        BESIDE,
    ),
    LineMutant(
        "insert: goes on from a record of before",
        "rmt_pipeline/zookeeper/transactions.py",
        "        going_on = SetData(path, change.text, change.version)\n",
        "        going_on = SetData(path, change.text)\n",
        INSERTS,
    ),
    LineMutant(
        "insert: other rows of a token are its retry",
        "rmt_pipeline/replica/insert/insert.py",
        "        if not known.record.is_whole and is_other:\n",
        "        if known.record.row_hash == '' and not known.record.is_whole:\n",
        INSERTS,
    ),
    LineMutant(
        "check: giving up a part does not tell who clones",
        "rmt_pipeline/zookeeper/transactions.py",
        "        SetData(replica.is_lost, is_lost, is_lost_version),\n",
        "        Check(replica.is_lost, is_lost_version),\n",
        CLONE,
    ),
    LineMutant(
        "clean up: an old plan forgets what was inserted again since",
        f"{ZOOKEEPER}/transactions.py",
        '    return [SetData(parent, b"", version), *ops]\n',
        "    return [*ops]\n",
        "tests/unit/replica/test_clean_up.py",
    ),
    LineMutant(
        "clone: the pointer of its source is not asserted",
        "rmt_pipeline/replica/life/clone.py",
        "                    Check(source.paths.log_pointer, stat.version),\n",
        "",
        CLONE,
    ),
    LineMutant(
        "clone: its source may have become lost",
        "rmt_pipeline/replica/life/clone.py",
        "                *source.unchanged(),\n                SetData(",
        "                SetData(",
        CLONE,
    ),
    LineMutant(
        "clone: done although it was marked lost anew",
        "rmt_pipeline/replica/life/clone.py",
        'SetData(replica.paths.is_lost, b"0", own_version),',
        'SetData(replica.paths.is_lost, b"0"),',
        CLONE,
    ),
    LineMutant(
        "clean up: who came back is marked lost",
        "rmt_pipeline/zookeeper/transactions.py",
        "    return [Check(replica.host, host_version), SetData(",
        "    return [SetData(",
        CLONE,
    ),
    LineMutant(
        "clean up: the log goes although who was lost came back",
        "rmt_pipeline/zookeeper/transactions.py",
        "        *(Check(table.replica(name).host, version) for name, version in hosts),\n",
        "",
        CLONE,
    ),
    LineMutant(
        "start: what the log lost is not missed",
        "rmt_pipeline/replica/life/start.py",
        "    mark_lost_if_log_is_gone(replica)\n",
        "",
        CLONE,
    ),
    LineMutant(
        "pull: what was inserted here is here for ever",
        f"{ZOOKEEPER}/transactions.py",
        "        *(Check(replica.part(part)) for part in here),\n",
        "",
        PULL,
    ),
    LineMutant(
        "pull: nobody's quorum counts what was inserted here",
        "rmt_pipeline/replica/pull_log.py",
        "            and not entry.quorum\n",
        "",
        PULL,
    ),
    LineMutant(
        "looks: what one session added another one believes",
        f"{ZOOKEEPER}/snapshot.py",
        "        return found == known and self.session in {0, session}\n",
        "        return found == known\n",
        LOOKS,
    ),
    LineMutant(
        "looks: what was listed meanwhile is counted twice",
        f"{ZOOKEEPER}/snapshot.py",
        "            self.parts.learn({replica.parts: before.joined(parts, session)})\n",
        "            known = self.listed(replica) or before\n"
        "            self.parts.learn({replica.parts: known.joined(parts, session)})\n",
        LOOKS,
    ),
    LineMutant(
        "looks: is_lost is read behind the queue",
        f"{ZOOKEEPER}/snapshot.py",
        "    lost = lost or now_lost\n",
        "    lost = now_lost\n",
        LOOKS,
    ),
    LineMutant(
        "looks: what our hands have published is finished once more",
        f"{REPLICA}/work/execute.py",
        " if node not in self._at_hand]\n        finish",
        "]\n        finish",
        LOOKS,
    ),
    LineMutant(
        "exchange: a small part may have other bytes than its peer announces",
        "rmt_pipeline/exchange/client.py",
        "            if reader.received - began != size:\n",
        "            if reader.received < began:\n",
        EXCHANGE,
    ),
    LineMutant(
        "exchange: what is sent together has no bound",
        "rmt_pipeline/exchange/server.py",
        "            left -= len(answer)\n",
        "",
        EXCHANGE,
    ),
    LineMutant(
        "worker: a queue that was emptied here is not listed again",
        f"{REPLICA}/work/worker.py",
        "                self._retry_s = min(self._retry_s, self._now_s() + OWN_CHANGES_S)\n",
        "                pass\n",
        IDLE,
    ),
    LineMutant(
        "worker: what another loop has pulled waits",
        f"{REPLICA}/work/worker.py",
        " or pulled.pointer - pulled.entries != before\n",
        "\n",
        IDLE,
    ),
    LineMutant(
        "pull: entries that went from the end are not missed",
        "rmt_pipeline/replica/pull_log.py",
        "        if nothing_new and index >= log.next_sequence:\n",
        "        if nothing_new:\n",
        CLONE,
    ),
    LineMutant(
        "start: what is queued is not under way",
        "rmt_pipeline/replica/upkeep/check.py",
        "        or part in queued  #",
        "        #",
        ON_DISK,
    ),
    LineMutant(
        "start: what has a block number is not under way",
        "rmt_pipeline/replica/upkeep/check.py",
        "        or part.block_min in locks.get(part.partition, ())\n",
        "",
        ON_DISK,
    ),
    LineMutant(
        "start: what is claimed is not under way",
        "rmt_pipeline/replica/upkeep/check.py",
        "        if part in claimed\n",
        "        if part is None\n",
        ON_DISK,
    ),
    LineMutant(
        "retention: an empty log",
        f"{PROTOCOL}/retention.py",
        "    if not entries:\n",
        "    if False:\n",
        UPKEEP,
    ),
    LineMutant(
        "upkeep: one table stops the others",
        "rmt_pipeline/server/upkeep.py",
        "        except Exception:\n",
        "        except ValueError:\n",
        "tests/unit/replica/test_upkeep_loop.py",
    ),
    LineMutant(
        "part names: leading zeros",
        f"{PROTOCOL}/parts/name.py",
        "        return part if str(part) == text else None",
        "        return part",
        VALUES,
    ),
    LineMutant(
        "drop: the disk is not told",
        f"{REPLICA}/work/drop.py",
        "        store.drops.note(drop.part)",
        "        pass",
        f"{DROPS}::test_a_start_after_a_death_in_the_middle_shows_nothing_that_was_dropped",
    ),
    LineMutant(
        "drop: commands on partitions do not exclude each other",
        "rmt_pipeline/zookeeper/partition_transactions.py",
        'SetData(table.alter_partition_version, b"", version),',
        "SetData(table.alter_partition_version),",
        f"{DROPS}::test_two_drops_at_once_come_one_after_the_other",
    ),
    LineMutant(
        "swap: queue entries inside stay",
        f"{REPLICA}/partitions/swap.py",
        "nodes=() if one.range is None else looked.nodes[one.range],",
        "nodes=(),",
        f"{SWAPS}::test_a_merge_of_what_is_replaced_is_thrown_away",
    ),
    LineMutant(
        "swap: what goes stays promised here",
        f"{REPLICA}/partitions/swap.py",
        "parts=() if one.range is None else looked.parts[one.range],",
        "parts=(),",
        f"{SWAPS}::test_a_replaced_partition_has_the_rows_of_the_other_table_on_every_replica",
    ),
    LineMutant(
        "swap: the log may have moved",
        f"{REPLICA}/partitions/swap.py",
        "log_version=found.log_version,",
        "log_version=-1,",
        f"{SWAPS}::test_a_merge_that_is_assigned_while_it_is_replaced_comes_first",
    ),
    LineMutant(
        "swap: commands on partitions do not exclude each other",
        f"{REPLICA}/partitions/swap.py",
        "side.version = partition_version(side.replica)",
        "side.version = -1",
        f"{SWAPS}::test_parts_that_are_attached_while_a_drop_is_decided_come_after_it",
    ),
    LineMutant(
        "swap: inserts in flight are not cancelled",
        f"{REPLICA}/partitions/swap.py",
        "            cancel_inserts(side.replica, side.ranges)\n",
        "            pass\n",
        f"{SWAPS}::test_an_insert_in_flight_is_cancelled_and_a_later_one_stays",
    ),
    LineMutant(
        "swap: what may be in the log is taken back",
        f"{REPLICA}/partitions/swap.py",
        "        if is_sent[0]:  # it may be in the log\n",
        "        if not sides:\n",
        f"{SWAPS}::test_nobody_knowing_leaves_what_may_be_in_the_table",
    ),
    LineMutant(
        "swap: who died is not known by his entry",
        f"{REPLICA}/upkeep/check.py",
        "    return [one for one in dropped if one is not None and one.is_drop_range]\n",
        "    return [one for one in dropped if one is not None and one.level == 0]\n",
        f"{SWAPS}::test_a_start_after_a_death_shows_nothing_that_was_replaced",
    ),
    LineMutant(
        "swap: parts that changed meanwhile are replaced unread",
        f"{REPLICA}/partitions/swap.py",
        "        if frozenset(active) != expected:\n",
        "        if len(active) > 99:\n",
        f"{OVERWRITES}::test_a_table_that_is_altered_while_it_is_read_is_told",
    ),
    LineMutant(
        "replace: an own copy with other bytes is taken",
        f"{REPLICA}/work/replace.py",
        "            if manifest.header().hash_of_all_files.hex().upper() != checksum:\n",
        "            if not checksum:\n",
        f"{SWAPS}::test_an_own_copy_with_other_bytes_is_not_used",
    ),
    LineMutant(
        "replace: a part that was dropped since is waited for",
        f"{REPLICA}/work/replace.py",
        "            and not view.is_dropped_later(part, self.node)\n",
        "",
        f"{SWAPS}::test_a_new_part_that_was_dropped_is_not_waited_for",
    ),
    LineMutant(
        "replace: an empty source drops",
        f"{REPLICA}/partitions/from_table.py",
        "if not parts and not self.query.allow_replace_partition_from_empty_source:",
        "if not parts and not self.query:",
        f"{SWAPS}::test_an_empty_source_is_refused_unless_that_is_allowed",
    ),
    LineMutant(
        "move: a source that lags behind is read",
        f"{REPLICA}/partitions/from_table.py",
        "        if not node and not waiting:\n",
        "        if not waiting:\n",
        f"{SWAPS}::test_a_source_that_has_yet_to_get_rows_is_waited_for",
    ),
    LineMutant(
        "backfill: rows that stay pass by a mutation",
        f"{REPLICA}/partitions/swap.py",
        "    _require_no_mutation(side)\n",
        "",
        f"{OVERWRITES}::test_rows_that_stay_do_not_pass_by_a_mutation",
    ),
    LineMutant(
        "backfill: inserts of rows that stay are forgotten",
        f"{REPLICA}/partitions/swap.py",
        "            if side.ranges and wanted.keeps_ids:\n"
        "                ops = _with_renumbering(side, ops)\n"
        "            elif side.ranges:\n",
        "            if side.ranges:\n",
        f"{OVERWRITES}::test_inserts_whose_rows_stay_stay_known_and_those_replaced_do_not",
    ),
    LineMutant(
        "backfill: they are forgotten by who carries it out",
        f"{REPLICA}/work/replace.py",
        "            if entry.source_replica == replica.name and entry.keeps_ids:\n",
        "            if entry.source_replica == replica.name and False:\n",
        f"{OVERWRITES}::test_rows_that_stay_and_are_lost_are_known_to_be",
    ),
    LineMutant(
        "backfill: a token stands although its rows were replaced",
        f"{REPLICA}/partitions/overwrite.py",
        "        if self.condition is not None:  # else it goes with the rows\n",
        "        if not numbers:\n",
        f"{OVERWRITES}::test_a_token_stands_until_what_it_brought_is_replaced",
    ),
    LineMutant(
        "backfill: of a whole table a partition stays that only the log has",
        f"{REPLICA}/partitions/from_table.py",
        "for part in _view(replica).virtual)",
        "for part in _view(replica).current)",
        f"{OVERWRITES}::test_the_whole_table_is_replaced_whatever_is_on_its_way",
    ),
    LineMutant(
        "backfill: rows on their way do not count",
        f"{REPLICA}/partitions/overwrite.py",
        "return same and not is_behind(replica, partitions) and not",
        "return same and not",
        f"{OVERWRITES}::test_without_a_token_rows_beside_are_replaced_again",
    ),
    LineMutant(
        "drop: what runs inside is not stopped",
        f"{REPLICA}/work/drop.py",
        "                stop_making(replica, drop.part)\n",
        "",
        f"{DROPS}::test_a_merge_that_runs_inside_is_stopped_not_waited_for",
    ),
    LineMutant(
        "drop: records of inserts stay",
        f"{REPLICA}/forget.py",
        "*_records(replica, dropped, are_lost=are_lost, but=but)]",
        "]",
        f"{DROPS}::test_what_was_dropped_can_be_inserted_again_and_nothing_else",
    ),
    LineMutant(
        "drop: a record goes with any block of it",
        f"{PROTOCOL}/inserts/rows.py",
        "if all(_is_in(line, dropped) for line in lines)",
        "if any(_is_in(line, dropped) for line in lines)",
        f"{DROPS}::test_a_part_of_an_insert_in_several_blocks_is_dropped_and_does_not_come_twice",
    ),
    LineMutant(
        "undo: what was merged with others' rows goes with them",
        f"{REPLICA}/partitions/undo.py",
        "if not part.is_drop_range and not _is_inside(part, line):",
        "if False:",
        f"{UNDO}::test_rows_that_were_merged_with_others_are_refused",
    ),
    LineMutant(
        "undo: all blocks from the first to the last are its own",
        f"{REPLICA}/insert/blocks.py",
        "own: int = NO_BLOCK",
        "own: int = 0",
        f"{UNDO}::test_rows_that_another_insert_had_are_that_one_s",
    ),
    LineMutant(
        "undo: the record stays",
        f"{REPLICA}/partitions/undo.py",
        "ops += take_out(replica, insert_id, known.record, known.version, rows)",
        "ops += []",
        f"{UNDO}::test_it_is_undone_once",
    ),
    LineMutant(
        "drop: blocks that others had are not in the record",
        f"{REPLICA}/insert/blocks.py",
        "        for block, there in self.there:\n",
        "        for block, there in self.there[:0]:\n",
        f"{DROPS}::test_a_block_whose_rows_a_later_drop_leaves_is_known_still",
    ),
    LineMutant(
        "drop: inserts without ids are not cancelled",
        "rmt_pipeline/zookeeper/transactions.py",
        "    data = table.insert_lock_data(holder)\n",
        "    data = (table.insert_lock_data if block_id else table.other_lock_data)(holder)\n",
        f"{DROPS}::test_an_insert_in_flight_is_cancelled_by_a_drop",
    ),
    LineMutant(
        "drop: a part that is to be merged goes",
        f"{REPLICA}/partitions/drop.py",
        "    refusal = view.predicate.may_merge_one(part)",
        "    refusal = None",
        f"{DROPS}::test_a_part_that_is_being_merged_is_not_dropped",
    ),
    LineMutant(
        "drop: a detached copy is made once more",
        f"{REPLICA}/work/drop.py",
        'store.detach_copy(part, "", once=True)',
        'store.detach_copy(part, "")',
        f"{DROPS}::test_a_detached_partition_is_kept_by_every_replica_that_had_it",
    ),
    LineMutant(
        "fetch partition: parts have names that are attached as they come",
        "rmt_pipeline/store/fetching.py",
        'store.set_aside_safely(again, part, "tmp-fetch")',
        'store.set_aside_safely(again, part, "")',
        f"{FETCHES}::test_who_dies_before_all_is_here_goes_on_with_what_has_come",
    ),
    LineMutant(
        "fetch partition: what died half named stays half named",
        f"{REPLICA}/partitions/attach.py",
        "    finish_fetches(store)\n",
        "    pass\n",
        f"{FETCHES}::test_who_dies_while_parts_get_their_names_has_fetched",
    ),
    LineMutant(
        "fetch partition: what is listed no more is attached",
        f"{REPLICA}/partitions/from_path.py",
        "            if part not in listed.parts or differs:\n",
        "            if differs:\n",
        f"{FETCHES}::test_a_drop_of_one_part_meanwhile_takes_it_out_of_what_is_fetched",
    ),
    LineMutant(
        "fetch partition: parts of other columns come",
        f"{REPLICA}/partitions/from_path.py",
        "        if not is_current(there,",
        "        if not there and not is_current(there,",
        f"{FETCHES}::test_a_part_as_it_was_before_an_alter_is_refused",
    ),
    LineMutant(
        "detached: the name of a fetched part proves that its rows are here",
        f"{REPLICA}/partitions/detached.py",
        """\
    if name.reason == "":
        return _why_plain_kept(replica, active, name)
""",
        "",
        f"{FETCHES}::test_numbers_of_another_table_prove_nothing",
    ),
    LineMutant(
        "freeze: names of files are not synced",
        "rmt_pipeline/store/frozen.py",
        "            disk.fsync_trees(trees)",
        "            pass",
        FROZEN,
    ),
    LineMutant(
        "freeze: what a dead one left stays",
        "rmt_pipeline/store/frozen.py",
        "        self._sweep(known)\n        new =",
        "        new =",
        FROZEN,
    ),
    LineMutant(
        "unfreeze: files go before the list",
        "rmt_pipeline/store/frozen.py",
        """\
        if not staying and (going or partition is None):
            self.shadow.retire(self.path)
""",
        """\
        if not staying and (going or partition is None):
            self._sweep(())
            self.shadow.retire(self.path)
""",
        FROZEN,
    ),
    LineMutant(
        "freeze: what was frozen under the name is mixed with it",
        "rmt_pipeline/store/frozen.py",
        "            if part in known:\n",
        "            if part is None:\n",
        FROZEN,
    ),
    LineMutant(
        "freeze: parts are not held",
        "rmt_pipeline/table.py",
        "                pinned.enter_context(self.store.pin(found.active))\n",
        "                self.store.pin(found.active)\n",
        f"{FREEZES}::test_a_drop_meanwhile_takes_nothing_from_it",
    ),
    LineMutant(
        "drop: who asked does not see to ids",
        f"{REPLICA}/work/drop.py",
        "        forget(replica, [drop.part])",
        "        pass",
        f"{DROPS}::test_ids_that_do_not_fit_beside_the_drop_are_forgotten_by_who_asked",
    ),
)
