-- rows and their opposites, in one block and in several, with mutations after merges
-- r1
CREATE TABLE co (d Date, k UInt32, v Int32, sign Int8) ENGINE = ReplicatedCollapsingMergeTree('{zk}/co', '{r}', sign) PARTITION BY toYYYYMM(d) ORDER BY (d, k);
-- r2
CREATE TABLE co (d Date, k UInt32, v Int32, sign Int8) ENGINE = ReplicatedCollapsingMergeTree('{zk}/co', '{r}', sign) PARTITION BY toYYYYMM(d) ORDER BY (d, k);
-- r1
CREATE TABLE vc (d Date, k UInt32, v Int32, sign Int8, ver UInt64) ENGINE = ReplicatedVersionedCollapsingMergeTree('{zk}/vc', '{r}', sign, ver) PARTITION BY toYYYYMM(d) ORDER BY (d, k);
-- r2
CREATE TABLE vc (d Date, k UInt32, v Int32, sign Int8, ver UInt64) ENGINE = ReplicatedVersionedCollapsingMergeTree('{zk}/vc', '{r}', sign, ver) PARTITION BY toYYYYMM(d) ORDER BY (d, k);
-- r1
INSERT INTO co VALUES ('2018-01-01', 1, 10, 1), ('2018-01-01', 2, 20, 1), ('2018-02-01', 1, 5, 1);
INSERT INTO co VALUES ('2018-01-01', 1, 10, -1), ('2018-01-01', 1, 11, 1);
INSERT INTO co VALUES ('2018-01-01', 2, 20, -1);
INSERT INTO co VALUES ('2018-01-01', 3, 1, -1), ('2018-01-01', 3, 2, -1), ('2018-01-01', 3, 3, 1);
INSERT INTO co VALUES ('2018-01-01', 4, 1, 1), ('2018-01-01', 4, 2, 1), ('2018-01-01', 4, 3, -1), ('2018-01-01', 4, 4, 1);
SELECT * FROM co FINAL ORDER BY d, k, v;
SELECT d, sum(v * sign), sum(sign) FROM co GROUP BY d ORDER BY d;
INSERT INTO vc VALUES ('2018-01-01', 1, 10, 1, 1), ('2018-01-01', 1, 10, -1, 1), ('2018-01-01', 1, 20, 1, 2), ('2018-01-01', 2, 1, -1, 5);
INSERT INTO vc VALUES ('2018-01-01', 2, 1, 1, 5), ('2018-01-01', 2, 2, 1, 6), ('2018-01-01', 1, 20, 1, 2);
SELECT * FROM vc FINAL ORDER BY d, k, v, ver, sign;
-- r2
SYSTEM SYNC REPLICA co;
SYSTEM SYNC REPLICA vc;
OPTIMIZE TABLE co PARTITION 201801 FINAL;
OPTIMIZE TABLE vc FINAL;
SYSTEM SYNC REPLICA co;
SYSTEM SYNC REPLICA vc;
SELECT * FROM co ORDER BY d, k, v, sign;
SELECT * FROM vc ORDER BY d, k, v, ver, sign;
ALTER TABLE co DELETE WHERE sign = -1;
ALTER TABLE vc UPDATE v = v + 1 WHERE k = 1;
-- wait mutations
SELECT * FROM co ORDER BY d, k, v, sign;
SELECT * FROM vc ORDER BY d, k, v, ver, sign;
-- expect error
ALTER TABLE co UPDATE sign = 1 WHERE 1;
-- expect error
ALTER TABLE vc UPDATE ver = 1 WHERE 1;
SELECT name, rows FROM system.parts WHERE table = 'co' AND active ORDER BY name;
