-- r1
CREATE TABLE sc (k Int64, p Int64, a Int64, b Int64) ENGINE = ReplicatedSummingMergeTree('{zk}/sc', '{r}', (a)) PARTITION BY p ORDER BY k;
-- r2
CREATE TABLE sc (k Int64, p Int64, a Int64, b Int64) ENGINE = ReplicatedSummingMergeTree('{zk}/sc', '{r}', (a)) PARTITION BY p ORDER BY k;
-- r1
INSERT INTO sc VALUES (1,1,10,100),(1,1,20,200),(1,2,5,50);
INSERT INTO sc VALUES (1,1,-30,7),(2,1,1,1);
OPTIMIZE TABLE sc PARTITION 1 FINAL;
-- r2
SYSTEM SYNC REPLICA sc;
SELECT * FROM sc ORDER BY p, k;
