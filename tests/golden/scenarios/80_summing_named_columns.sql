-- columns that are named to be summed: a String among them keeps its first value, a Nested group is summed key by key
-- r1
CREATE TABLE z2 (k UInt32, s String, x UInt64, y UInt64) ENGINE = ReplicatedSummingMergeTree('{zk}/z2', '{r}', (x, s)) ORDER BY k;
CREATE TABLE z6 (k UInt32, counts Nested(ID UInt16, v UInt64), x UInt64) ENGINE = ReplicatedSummingMergeTree('{zk}/z6', '{r}', (counts, x)) ORDER BY k;
-- r2
CREATE TABLE z2 (k UInt32, s String, x UInt64, y UInt64) ENGINE = ReplicatedSummingMergeTree('{zk}/z2', '{r}', (x, s)) ORDER BY k;
-- r1
INSERT INTO z2 VALUES (1, 'a', 1, 1), (1, 'b', 2, 2), (2, '', 0, 1), (3, 'c', 0, 1), (3, 'd', 5, 2);
INSERT INTO z2 VALUES (1, 'c', 10, 3), (4, 'e', 0, 4);
SELECT * FROM z2 FINAL ORDER BY k, s;
OPTIMIZE TABLE z2 FINAL;
SELECT * FROM z2 ORDER BY k, s;
INSERT INTO z6 VALUES (1, [1, 2], [10, 20], 1), (1, [2, 3], [5, 7], 2), (2, [1], [1], 5);
INSERT INTO z6 VALUES (1, [1], [1], 1);
OPTIMIZE TABLE z6 FINAL;
SELECT * FROM z6 ORDER BY k;
-- r2
SYSTEM SYNC REPLICA z2;
SELECT * FROM z2 ORDER BY k, s;
