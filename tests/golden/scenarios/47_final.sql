-- r1
CREATE TABLE fi (id Int64, v String, ver UInt32) ENGINE = ReplicatedReplacingMergeTree('{zk}/fi', '{r}', ver) ORDER BY id;
-- r2
CREATE TABLE fi (id Int64, v String, ver UInt32) ENGINE = ReplicatedReplacingMergeTree('{zk}/fi', '{r}', ver) ORDER BY id;
-- r1
CREATE TABLE co (id Int64, v Int64, sign Int8) ENGINE = ReplicatedCollapsingMergeTree('{zk}/co', '{r}', sign) ORDER BY id;
-- r2
CREATE TABLE co (id Int64, v Int64, sign Int8) ENGINE = ReplicatedCollapsingMergeTree('{zk}/co', '{r}', sign) ORDER BY id;
-- r1
CREATE TABLE su (id Int64, a Int64, b Float64) ENGINE = ReplicatedSummingMergeTree('{zk}/su', '{r}') ORDER BY id;
-- r2
CREATE TABLE su (id Int64, a Int64, b Float64) ENGINE = ReplicatedSummingMergeTree('{zk}/su', '{r}') ORDER BY id;
-- r1
INSERT INTO fi VALUES (1,'a',1),(2,'b',5),(1,'c',3);
INSERT INTO fi VALUES (2,'x',4),(1,'d',3),(3,'e',0);
SELECT * FROM fi FINAL ORDER BY id;
SELECT count() FROM fi FINAL WHERE v = 'c';
INSERT INTO co VALUES (1,10,1),(2,20,1);
INSERT INTO co VALUES (1,10,-1),(1,11,1),(2,20,-1);
SELECT * FROM co FINAL ORDER BY id;
SELECT sum(v * sign) FROM co;
INSERT INTO su VALUES (1,1,0.5),(2,2,0.5);
INSERT INTO su VALUES (1,-1,-0.5),(2,3,1.5),(3,0,0);
SELECT * FROM su FINAL ORDER BY id;
-- r2
SYSTEM SYNC REPLICA fi;
SYSTEM SYNC REPLICA co;
SYSTEM SYNC REPLICA su;
OPTIMIZE TABLE fi FINAL;
OPTIMIZE TABLE co FINAL;
OPTIMIZE TABLE su FINAL;
SELECT * FROM fi ORDER BY id;
SELECT * FROM co ORDER BY id;
SELECT * FROM su ORDER BY id;
-- r1
SYSTEM SYNC REPLICA fi;
SYSTEM SYNC REPLICA co;
SYSTEM SYNC REPLICA su;
SELECT * FROM fi ORDER BY id;
SELECT * FROM co ORDER BY id;
SELECT * FROM su ORDER BY id;
