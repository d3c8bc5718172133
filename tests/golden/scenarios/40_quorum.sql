-- r1
CREATE TABLE q (id Int64, v String) ENGINE = ReplicatedMergeTree('{zk}/q', '{r}') PARTITION BY id % 2 ORDER BY id;
-- r2
CREATE TABLE q (id Int64, v String) ENGINE = ReplicatedMergeTree('{zk}/q', '{r}') PARTITION BY id % 2 ORDER BY id;
-- r1
-- set insert_quorum=2
INSERT INTO q VALUES (1,'a'),(2,'b');
-- r2
SELECT * FROM q ORDER BY id;
-- set insert_quorum=2
INSERT INTO q VALUES (1,'a'),(2,'b');
-- set insert_quorum=2
INSERT INTO q VALUES (3,'c');
-- set select_sequential_consistency=1
SELECT * FROM q ORDER BY id;
-- r1
-- set select_sequential_consistency=1
SELECT * FROM q ORDER BY id;
-- expect error
-- set insert_quorum=3
INSERT INTO q VALUES (9,'z');
SELECT count() FROM q;
