-- tables without a key beside a replicated one: rows go from one to the other
-- r1
CREATE TABLE be (k UInt32, s String) ENGINE = ReplicatedMergeTree('{zk}/be', '{r}') ORDER BY k;
CREATE TABLE be_m (k UInt32, s String) ENGINE = Memory;
CREATE TABLE be_l (k UInt32, s String) ENGINE = Log;
CREATE TABLE be_t (k UInt32, v Float64) ENGINE = TinyLog;
CREATE TABLE be_s AS be ENGINE = StripeLog;
-- expect error
CREATE TABLE be_x (k UInt32) ENGINE = Memory ORDER BY k;
-- expect error
CREATE TABLE be_x (k UInt32) ENGINE = Log PARTITION BY k;
-- r2
CREATE TABLE be (k UInt32, s String) ENGINE = ReplicatedMergeTree('{zk}/be', '{r}') ORDER BY k;
-- r1
INSERT INTO be_m VALUES (1, 'one'), (2, 'two');
INSERT INTO be_m VALUES (1, 'one'), (2, 'two');
INSERT INTO be_l SELECT k + 10, s FROM be_m WHERE k = 1;
INSERT INTO be_t VALUES (1, 1.5), (11, 2.5);
INSERT INTO be SELECT * FROM be_m;
INSERT INTO be SELECT * FROM be_m;
INSERT INTO be_s SELECT * FROM be;
SELECT * FROM be_m ORDER BY k;
SELECT * FROM be_l;
SELECT * FROM be ORDER BY k;
SELECT k, s, v FROM be ANY LEFT JOIN be_t USING k ORDER BY k;
SELECT k, count() FROM be_s GROUP BY k ORDER BY k;
SELECT k FROM be WHERE k IN (SELECT k FROM be_t) ORDER BY k;
SELECT name, engine, sorting_key, partition_key FROM system.tables WHERE database = 'default' AND name LIKE 'be%' ORDER BY name;
-- r2
SYSTEM SYNC REPLICA be;
SELECT * FROM be ORDER BY k;
-- expect error
SELECT * FROM be_m;
-- r1
TRUNCATE TABLE be_m;
SELECT count() FROM be_m;
DROP TABLE be_t;
-- expect error
SELECT * FROM be_t;
