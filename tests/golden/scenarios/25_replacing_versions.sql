-- r1
CREATE TABLE re (k Int64, v String, ver UInt32) ENGINE = ReplicatedReplacingMergeTree('{zk}/re', '{r}', ver) ORDER BY k;
-- r2
CREATE TABLE re (k Int64, v String, ver UInt32) ENGINE = ReplicatedReplacingMergeTree('{zk}/re', '{r}', ver) ORDER BY k;
-- r1
INSERT INTO re VALUES (1,'a',5),(1,'b',5),(2,'x',1),(3,'only',0);
INSERT INTO re VALUES (1,'c',4),(2,'y',2);
INSERT INTO re VALUES (2,'z',2),(4,'q',7);
SELECT * FROM re FINAL ORDER BY k;
OPTIMIZE TABLE re FINAL;
-- r2
SYSTEM SYNC REPLICA re;
SELECT * FROM re ORDER BY k;
SELECT count() FROM re;
