-- tables where FINAL is refused, and subqueries with FINAL
-- r1
CREATE TABLE nf (k UInt32, v UInt32) ENGINE = ReplicatedMergeTree('{zk}/nf', '{r}') ORDER BY k;
-- r2
CREATE TABLE nf (k UInt32, v UInt32) ENGINE = ReplicatedMergeTree('{zk}/nf', '{r}') ORDER BY k;
-- r1
-- r1
CREATE TABLE nr (k UInt32, v UInt32) ENGINE = ReplicatedReplacingMergeTree('{zk}/nr', '{r}') PARTITION BY k % 2 ORDER BY k;
-- r2
CREATE TABLE nr (k UInt32, v UInt32) ENGINE = ReplicatedReplacingMergeTree('{zk}/nr', '{r}') PARTITION BY k % 2 ORDER BY k;
-- r1
INSERT INTO nf VALUES (1, 1);
-- expect error
SELECT * FROM nf FINAL;
INSERT INTO nr VALUES (1, 1), (2, 2);
INSERT INTO nr VALUES (1, 10), (4, 4);
SELECT * FROM (SELECT * FROM nr FINAL) ORDER BY k;
SELECT sum(v) FROM nr FINAL WHERE k IN (SELECT k FROM nr WHERE v < 10);
SELECT count(), uniq(k) FROM nr;
SELECT * FROM nr AS t FINAL ORDER BY k;
SELECT a.k, b.v FROM (SELECT k FROM nr FINAL) AS a ANY INNER JOIN (SELECT k, v FROM nr FINAL) AS b USING k ORDER BY k;
-- expect error
SELECT * FROM nr FINAL SAMPLE 0.5;
