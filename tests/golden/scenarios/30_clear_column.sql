-- r1
CREATE TABLE ck (id Int64, v Int64, p Date) ENGINE = ReplicatedMergeTree('{zk}/ck', '{r}') PARTITION BY toYYYYMM(p) ORDER BY id;
-- r2
CREATE TABLE ck (id Int64, v Int64, p Date) ENGINE = ReplicatedMergeTree('{zk}/ck', '{r}') PARTITION BY toYYYYMM(p) ORDER BY id;
-- r1
INSERT INTO ck VALUES (1,1,'2020-01-05'),(2,2,'2020-02-06');
INSERT INTO ck VALUES (3,3,'2020-01-07');
ALTER TABLE ck CLEAR COLUMN v IN PARTITION 202001;
-- r2
SYSTEM SYNC REPLICA ck;
SELECT * FROM ck ORDER BY id;
