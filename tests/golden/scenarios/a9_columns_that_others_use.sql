-- columns that ALIAS and DEFAULT columns are computed from are cleared; a group goes as a whole
-- r1
CREATE TABLE t7 (d Date, k UInt32, v UInt32, s String DEFAULT toString(v), al String ALIAS concat(s, 'x'), n Nested(x UInt8, y String)) ENGINE = ReplicatedMergeTree('{zk}/t7', '{r}') PARTITION BY toYYYYMM(d) ORDER BY k;
-- r2
CREATE TABLE t7 (d Date, k UInt32, v UInt32, s String DEFAULT toString(v), al String ALIAS concat(s, 'x'), n Nested(x UInt8, y String)) ENGINE = ReplicatedMergeTree('{zk}/t7', '{r}') PARTITION BY toYYYYMM(d) ORDER BY k;
-- r1
INSERT INTO t7 (d, k, v, n.x, n.y) VALUES ('2018-01-01', 1, 11, [1, 2], ['a', 'b']), ('2018-02-01', 2, 22, [], []);
ALTER TABLE t7 ADD COLUMN n.z Array(Int16) DEFAULT arrayMap(i -> i * 2, n.x);
INSERT INTO t7 (d, k, v, s) VALUES ('2018-01-02', 3, 33, 'own');
ALTER TABLE t7 CLEAR COLUMN s IN PARTITION 201801;
SELECT d, k, v, s, al, n.x, n.y, n.z FROM t7 ORDER BY k;
ALTER TABLE t7 CLEAR COLUMN v IN PARTITION 201801;
SELECT d, k, v, s, al FROM t7 ORDER BY k;
-- expect error
ALTER TABLE t7 DROP COLUMN v;
-- expect error
ALTER TABLE t7 DROP COLUMN n.x;
-- r2
SYSTEM SYNC REPLICA t7;
ALTER TABLE t7 DROP COLUMN n;
SELECT * FROM t7 ORDER BY k;
-- r1
SYSTEM SYNC REPLICA t7;
SELECT * FROM t7 ORDER BY k;
SELECT name, type, default_kind FROM system.columns WHERE table = 't7' AND database = 'default';
