-- DEFAULT, MATERIALIZED and ALIAS columns in mutations and through ALTERs
-- r1
CREATE TABLE i1 (d Date, k UInt32, s String, v Float64, da Array(UInt8), x UInt32 DEFAULT k * 2, y String MATERIALIZED concat(s, '!'), z UInt32 ALIAS x + 1) ENGINE = ReplicatedMergeTree('{zk}/i1', '{r}') PARTITION BY toYYYYMM(d) ORDER BY (k, s);
-- r2
CREATE TABLE i1 (d Date, k UInt32, s String, v Float64, da Array(UInt8), x UInt32 DEFAULT k * 2, y String MATERIALIZED concat(s, '!'), z UInt32 ALIAS x + 1) ENGINE = ReplicatedMergeTree('{zk}/i1', '{r}') PARTITION BY toYYYYMM(d) ORDER BY (k, s);
-- r1
INSERT INTO i1 (d, k, s, v, da) SELECT toDate('2018-01-01') + number * 7, number, concat('s', toString(number % 3)), number / 3, range(number % 4) FROM system.numbers LIMIT 12;
-- r2
SYSTEM SYNC REPLICA i1;
SELECT d, k, s, v, da, x, y, z FROM i1 ORDER BY k;
ALTER TABLE i1 ADD COLUMN w UInt32 DEFAULT x + 100;
SELECT k, w FROM i1 WHERE w > 110 ORDER BY k;
INSERT INTO i1 (d, k, s, v, w) VALUES ('2018-05-01', 100, 'new', 1.5, 7);
INSERT INTO i1 (d, k, s, x) VALUES ('2018-05-02', 101, 'newer', 1000);
-- r1
SYSTEM SYNC REPLICA i1;
SELECT k, s, v, x, w, y, z FROM i1 WHERE k >= 10 ORDER BY k;
ALTER TABLE i1 UPDATE v = v * 10, x = x + 1 WHERE s = 's1';
SYSTEM SYNC REPLICA i1;
-- wait mutations
SELECT k, v, x, w, z FROM i1 ORDER BY k;
ALTER TABLE i1 DELETE WHERE y = 's2!' OR z = 3;
SYSTEM SYNC REPLICA i1;
-- wait mutations
SELECT k, s, x, z FROM i1 ORDER BY k;
ALTER TABLE i1 MODIFY COLUMN s DEFAULT 'none';
INSERT INTO i1 (d, k) VALUES ('2018-06-01', 200);
SELECT k, s, y FROM i1 WHERE k = 200;
OPTIMIZE TABLE i1 FINAL;
-- r2
SYSTEM SYNC REPLICA i1;
SELECT * FROM i1 ORDER BY k;
SELECT partition, sum(rows) FROM system.parts WHERE table = 'i1' AND active GROUP BY partition ORDER BY partition;
-- expect error
ALTER TABLE i1 MODIFY COLUMN s UInt32;
-- expect error
ALTER TABLE i1 DROP COLUMN x;
-- expect error
ALTER TABLE i1 ADD COLUMN q UInt32 DEFAULT 'abc';
-- expect error
ALTER TABLE i1 UPDATE y = 'a' WHERE 1;
-- expect error
ALTER TABLE i1 UPDATE z = 1 WHERE 1;
