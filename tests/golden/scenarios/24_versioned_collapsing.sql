-- r1
CREATE TABLE vc (k Int64, v String, sign Int8, ver UInt8) ENGINE = ReplicatedVersionedCollapsingMergeTree('{zk}/vc', '{r}', sign, ver) ORDER BY k;
-- r2
CREATE TABLE vc (k Int64, v String, sign Int8, ver UInt8) ENGINE = ReplicatedVersionedCollapsingMergeTree('{zk}/vc', '{r}', sign, ver) ORDER BY k;
-- r1
INSERT INTO vc VALUES (1,'a',1,1),(2,'b',1,2),(3,'c',-1,1),(3,'c',1,1),(4,'x',1,1);
INSERT INTO vc VALUES (1,'a',-1,1),(1,'A',1,2),(2,'b',-1,1),(4,'x',1,1),(4,'x',-1,1);
OPTIMIZE TABLE vc FINAL;
-- r2
SYSTEM SYNC REPLICA vc;
SELECT * FROM vc ORDER BY k, ver, sign, v;
