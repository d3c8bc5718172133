-- r1
CREATE TABLE lc (k Int64) ENGINE = ReplicatedMergeTree('{zk}/lc', '{r}') ORDER BY k;
-- r2
CREATE TABLE lc (k Int64) ENGINE = ReplicatedMergeTree('{zk}/lc', '{r}') ORDER BY k;
-- r1
INSERT INTO lc VALUES (1);
-- r2
SYSTEM SYNC REPLICA lc;
DROP TABLE lc;
-- r1
INSERT INTO lc VALUES (2);
OPTIMIZE TABLE lc FINAL;
INSERT INTO lc VALUES (3);
-- r2
CREATE TABLE lc (k Int64) ENGINE = ReplicatedMergeTree('{zk}/lc', '{r}') ORDER BY k;
SYSTEM SYNC REPLICA lc;
SELECT * FROM lc ORDER BY k;
-- expect error
CREATE TABLE lc (k Int64) ENGINE = ReplicatedMergeTree('{zk}/lc', '{r}') ORDER BY k;
CREATE TABLE lc_other (k Int64) ENGINE = ReplicatedMergeTree('{zk}/lc_other', '{r}') ORDER BY k;
RENAME TABLE lc TO lc2;
SELECT * FROM lc2 ORDER BY k;
-- expect error
SELECT * FROM lc;
INSERT INTO lc2 VALUES (4);
-- r1
SYSTEM SYNC REPLICA lc;
SELECT * FROM lc ORDER BY k;
DROP TABLE lc;
-- expect error
DROP TABLE lc;
DROP TABLE IF EXISTS lc;
-- r2
SELECT * FROM lc2 ORDER BY k;
DETACH TABLE lc2;
ATTACH TABLE lc2;
SELECT * FROM lc2 ORDER BY k;
INSERT INTO lc2 VALUES (5);
SELECT count() FROM lc2;
TRUNCATE TABLE lc2;
SELECT count() FROM lc2;
DROP TABLE lc2;
