-- r1
CREATE TABLE de (k Int64, v String, p Int64) ENGINE = ReplicatedMergeTree('{zk}/de', '{r}') PARTITION BY p ORDER BY k;
-- r2
CREATE TABLE de (k Int64, v String, p Int64) ENGINE = ReplicatedMergeTree('{zk}/de', '{r}') PARTITION BY p ORDER BY k;
-- r1
INSERT INTO de VALUES (1,'a',1),(2,'b',2);
INSERT INTO de VALUES (1,'a',1),(3,'c',3);
INSERT INTO de VALUES (2,'b',2);
-- r2
SYSTEM SYNC REPLICA de;
INSERT INTO de VALUES (3,'c',3),(4,'d',3);
-- set insert_deduplicate=0
INSERT INTO de VALUES (1,'a',1);
-- r1
SYSTEM SYNC REPLICA de;
SELECT * FROM de ORDER BY p, k;
OPTIMIZE TABLE de FINAL DEDUPLICATE;
SELECT * FROM de ORDER BY p, k;
