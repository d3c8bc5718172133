-- r1
CREATE TABLE su (k Int64, a Int64, b Float64, s String, n UInt8) ENGINE = ReplicatedSummingMergeTree('{zk}/su', '{r}') ORDER BY k;
-- r2
CREATE TABLE su (k Int64, a Int64, b Float64, s String, n UInt8) ENGINE = ReplicatedSummingMergeTree('{zk}/su', '{r}') ORDER BY k;
-- r1
INSERT INTO su VALUES (1,10,0.5,'x',200),(2,5,1.5,'y',1),(3,0,0,'z',0);
INSERT INTO su VALUES (1,-10,-0.5,'xx',100),(2,7,2.5,'yy',255),(4,0,0,'w',0);
OPTIMIZE TABLE su FINAL;
-- r2
SYSTEM SYNC REPLICA su;
SELECT * FROM su ORDER BY k;
INSERT INTO su VALUES (2,1,1,'zzz',1);
SELECT * FROM su FINAL ORDER BY k;
