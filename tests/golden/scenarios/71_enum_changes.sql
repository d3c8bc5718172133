-- r1
-- An ALTER of a type takes a block number in each partition here (spec 8); so each INSERT after one is in a partition of its own.
CREATE TABLE en (d Date, id UInt32, e Enum8('a' = 1, 'b' = 2)) ENGINE = ReplicatedMergeTree('{zk}/en', '{r}') PARTITION BY toYYYYMM(d) ORDER BY id;
-- r2
CREATE TABLE en (d Date, id UInt32, e Enum8('a' = 1, 'b' = 2)) ENGINE = ReplicatedMergeTree('{zk}/en', '{r}') PARTITION BY toYYYYMM(d) ORDER BY id;
-- r1
INSERT INTO en VALUES ('2018-01-01', 1, 'a'), ('2018-01-01', 2, 'b'), ('2018-01-01', 3, 'b');
-- expect error
INSERT INTO en VALUES ('2018-01-01', 4, 'c');
ALTER TABLE en MODIFY COLUMN e Enum8('a' = 1, 'b' = 2, 'c' = 3);
INSERT INTO en VALUES ('2018-02-01', 4, 'c'), ('2018-02-01', 5, 'a');
-- r2
SYSTEM SYNC REPLICA en;
SELECT id, e, toInt8(e), e = 'a', e > 'b' FROM en ORDER BY id;
ALTER TABLE en MODIFY COLUMN e Enum8('a' = 1, 'b' = 2, 'c' = 3, 'd' = 100);
INSERT INTO en VALUES ('2018-03-01', 6, 'd');
SELECT id, e, toInt8(e) FROM en ORDER BY e DESC, id;
-- r1
SYSTEM SYNC REPLICA en;
ALTER TABLE en MODIFY COLUMN e Enum16('a' = 1, 'b' = 2, 'c' = 3, 'd' = 100, 'e' = 1000);
-- r2
SYSTEM SYNC REPLICA en;
SELECT id, e, toInt16(e) FROM en ORDER BY e DESC, id;
ALTER TABLE en MODIFY COLUMN e String;
SELECT id, e FROM en ORDER BY id;
-- r1
SYSTEM SYNC REPLICA en;
SELECT e, count() FROM en GROUP BY e ORDER BY e;
