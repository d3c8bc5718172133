-- r1
CREATE TABLE co (k Int64, v String, sign Int8) ENGINE = ReplicatedCollapsingMergeTree('{zk}/co', '{r}', sign) ORDER BY k;
-- r2
CREATE TABLE co (k Int64, v String, sign Int8) ENGINE = ReplicatedCollapsingMergeTree('{zk}/co', '{r}', sign) ORDER BY k;
-- r1
INSERT INTO co VALUES (1,'a',1),(2,'b',1),(3,'c',-1),(4,'d',1);
INSERT INTO co VALUES (1,'a',-1),(1,'A',1),(2,'b',-1),(3,'c2',1);
INSERT INTO co VALUES (4,'d',-1),(5,'e',-1),(5,'f',-1);
OPTIMIZE TABLE co FINAL;
-- r2
SYSTEM SYNC REPLICA co;
SELECT * FROM co ORDER BY k, sign, v;
INSERT INTO co VALUES (1,'A',-1),(5,'e',1);
SELECT * FROM co FINAL ORDER BY k, sign, v;
