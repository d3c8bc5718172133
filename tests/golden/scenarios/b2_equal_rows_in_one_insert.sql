-- rows that repeat inside a block are kept; the same block in other partitions too
-- r1
CREATE TABLE er (d Date, k Int8) ENGINE = ReplicatedMergeTree('{zk}/er', '{r}') PARTITION BY d ORDER BY k;
-- r2
CREATE TABLE er (d Date, k Int8) ENGINE = ReplicatedMergeTree('{zk}/er', '{r}') PARTITION BY d ORDER BY k;
-- r1
INSERT INTO er VALUES ('2018-01-01', 1), ('2018-01-01', 1), ('2018-01-02', 1), ('2018-01-03', 1), ('2018-01-03', 1);
SELECT d, k, count() FROM er GROUP BY d, k ORDER BY d, k;
INSERT INTO er VALUES ('2018-01-01', 1), ('2018-01-02', 1), ('2018-01-02', 1), ('2018-01-03', 1), ('2018-01-03', 1);
SELECT d, k, count() FROM er GROUP BY d, k ORDER BY d, k;
SELECT substring(name, 1, 9) AS x, count() FROM system.zookeeper WHERE path = '{zk}/er/blocks' GROUP BY x ORDER BY x;
-- r2
SYSTEM SYNC REPLICA er;
ALTER TABLE er DELETE WHERE d = '2018-01-01' AND k = 1;
-- wait mutations
SELECT count() FROM er;
INSERT INTO er VALUES ('2018-01-01', 1), ('2018-01-01', 1);
SELECT count() FROM er WHERE d = '2018-01-01';
OPTIMIZE TABLE er FINAL DEDUPLICATE;
SELECT d, k, count() FROM er GROUP BY d, k ORDER BY d, k;
INSERT INTO er VALUES ('2018-01-02', 1), ('2018-01-02', 1);
-- r1
SYSTEM SYNC REPLICA er;
SELECT d, k, count() FROM er GROUP BY d, k ORDER BY d, k;
SELECT partition, name, rows, level FROM system.parts WHERE table = 'er' AND active ORDER BY name;
ALTER TABLE er DROP PARTITION '2018-01-02';
INSERT INTO er VALUES ('2018-01-02', 1), ('2018-01-02', 1);
SELECT d, k, count() FROM er GROUP BY d, k ORDER BY d, k;
