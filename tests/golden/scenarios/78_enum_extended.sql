-- r1
CREATE TABLE en (d Date, id UInt32, e Enum8('a' = 1, 'b' = 2), n Nullable(Int32)) ENGINE = ReplicatedMergeTree('{zk}/en', '{r}') PARTITION BY toYYYYMM(d) ORDER BY (e, id);
-- r2
CREATE TABLE en (d Date, id UInt32, e Enum8('a' = 1, 'b' = 2), n Nullable(Int32)) ENGINE = ReplicatedMergeTree('{zk}/en', '{r}') PARTITION BY toYYYYMM(d) ORDER BY (e, id);
-- r1
INSERT INTO en VALUES ('2018-01-01', 1, 'a', 1), ('2018-01-01', 2, 'b', NULL), ('2018-01-01', 3, 'b', 3);
ALTER TABLE en MODIFY COLUMN e Enum8('a' = 1, 'b' = 2, 'c' = 3, 'z' = -5);
INSERT INTO en VALUES ('2018-01-01', 4, 'c', 4), ('2018-01-01', 5, 'a', 5), ('2018-01-01', 6, 'z', 6);
SELECT id, e FROM en ORDER BY e, id;
SELECT count() FROM en WHERE e = 'b';
SELECT count() FROM en WHERE e > 'a';
-- r2
SYSTEM SYNC REPLICA en;
OPTIMIZE TABLE en FINAL;
SELECT id, e, n FROM en ORDER BY e, id;
ALTER TABLE en MODIFY COLUMN e Enum8('a' = 1, 'b' = 2, 'c' = 3, 'z' = -5, 'q' = 9);
INSERT INTO en VALUES ('2018-01-01', 7, 'q', 4);
ALTER TABLE en DELETE WHERE e = 'z';
-- wait mutations
ALTER TABLE en UPDATE n = toInt8(e) WHERE id < 5;
-- wait mutations
SELECT id, e, n FROM en ORDER BY e, id;
SELECT type FROM system.columns WHERE table = 'en' AND name = 'e';
-- r1
SYSTEM SYNC REPLICA en;
SELECT id, e, n FROM en ORDER BY e, id;
SELECT name, rows FROM system.parts WHERE table = 'en' AND active ORDER BY name;
