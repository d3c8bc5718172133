-- parts that are older than a column go to another table, and come from one, as they are
-- r1
CREATE TABLE bc (p UInt32, k UInt32, v String) ENGINE = ReplicatedMergeTree('{zk}/bc', '{r}') PARTITION BY p ORDER BY k;
CREATE TABLE bd (p UInt32, k UInt32, v String) ENGINE = ReplicatedMergeTree('{zk}/bd', '{r}') PARTITION BY p ORDER BY k;
-- r2
CREATE TABLE bc (p UInt32, k UInt32, v String) ENGINE = ReplicatedMergeTree('{zk}/bc', '{r}') PARTITION BY p ORDER BY k;
CREATE TABLE bd (p UInt32, k UInt32, v String) ENGINE = ReplicatedMergeTree('{zk}/bd', '{r}') PARTITION BY p ORDER BY k;
-- r1
INSERT INTO bc VALUES (1, 1, 'a'), (1, 2, 'b'), (2, 3, 'c'), (3, 4, 'd'), (4, 5, 'e');
INSERT INTO bd VALUES (1, 10, 'x'), (2, 11, 'y');
ALTER TABLE bc ADD COLUMN z UInt8 DEFAULT 7, ADD COLUMN f Float64 AFTER p;
-- expect error
ALTER TABLE bd REPLACE PARTITION 1 FROM bc;
SELECT * FROM bd ORDER BY p, k;
ALTER TABLE bd ADD COLUMN z UInt8 DEFAULT 7, ADD COLUMN f Float64 AFTER p;
INSERT INTO bc (p, k, v, z, f) VALUES (1, 6, 'f', 9, 0.5);
ALTER TABLE bd REPLACE PARTITION 1 FROM bc;
ALTER TABLE bd ATTACH PARTITION 2 FROM bc;
SELECT * FROM bd ORDER BY p, k;
-- r2
SYSTEM SYNC REPLICA bc;
SYSTEM SYNC REPLICA bd;
SELECT * FROM bd ORDER BY p, k;
ALTER TABLE bd FETCH PARTITION 3 FROM '{zk}/bc';
ALTER TABLE bd ATTACH PARTITION 3;
SELECT * FROM bd ORDER BY p, k;
-- r1
SYSTEM SYNC REPLICA bd;
OPTIMIZE TABLE bd PARTITION 1 FINAL;
SELECT p, count(), sum(k), sum(z), sum(f) FROM bd GROUP BY p ORDER BY p;
ALTER TABLE bd DELETE WHERE z = 9;
-- wait mutations
SELECT * FROM bd ORDER BY p, k;
