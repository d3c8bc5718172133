-- an Enum's element by its name and by its number, in queries and mutations
-- r1
CREATE TABLE en (k UInt32, e Enum8('b' = 1, 'a' = 2, 'minus' = -3), n UInt8) ENGINE = ReplicatedMergeTree('{zk}/en', '{r}') ORDER BY k;
-- r2
CREATE TABLE en (k UInt32, e Enum8('b' = 1, 'a' = 2, 'minus' = -3), n UInt8) ENGINE = ReplicatedMergeTree('{zk}/en', '{r}') ORDER BY k;
-- r1
INSERT INTO en VALUES (1, 'b', 1), (2, 'a', 1), (3, 'minus', 2), (4, 'a', 2);
SELECT k FROM en WHERE e = 1;
SELECT k FROM en WHERE e > 1 ORDER BY k;
SELECT k, e = n, e < 0, e != 2, e >= 1.5, e = 'a', e < 'a' FROM en ORDER BY k;
SELECT k, if(e = 2, 'two', 'other'), countIf(e = n) FROM en GROUP BY k, e ORDER BY k;
SELECT count() FROM (SELECT number FROM system.numbers_mt LIMIT 10);
ALTER TABLE en DELETE WHERE e = -3;
-- wait mutations
ALTER TABLE en UPDATE n = 9 WHERE e = n;
-- wait mutations
SELECT * FROM en ORDER BY k;
-- r2
SYSTEM SYNC REPLICA en;
SELECT * FROM en ORDER BY k;
SELECT command FROM system.mutations WHERE table = 'en' ORDER BY mutation_id;
