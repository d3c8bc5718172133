-- r1
CREATE TABLE rt (id Int64) ENGINE = ReplicatedMergeTree('{zk}/rt', '{r}') ORDER BY id;
-- r2
CREATE TABLE rt (id Int64) ENGINE = ReplicatedMergeTree('{zk}/rt', '{r}') ORDER BY id;
-- r1
INSERT INTO rt VALUES (1),(2);
INSERT INTO rt VALUES (3);
-- r2
SYSTEM SYNC REPLICA rt;
TRUNCATE TABLE rt;
SELECT count() FROM rt;
-- r1
SYSTEM SYNC REPLICA rt;
SELECT count() FROM rt;
INSERT INTO rt VALUES (3);
SELECT * FROM rt;
DETACH TABLE rt;
-- expect error
SELECT * FROM rt;
-- r2
INSERT INTO rt VALUES (4);
-- r1
ATTACH TABLE rt;
SYSTEM SYNC REPLICA rt;
SELECT * FROM rt ORDER BY id;
