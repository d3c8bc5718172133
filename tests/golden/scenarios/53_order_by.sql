-- r1
CREATE TABLE ob (a Int64, b Int64, c Int64) ENGINE = ReplicatedSummingMergeTree('{zk}/ob', '{r}', c) PARTITION BY a % 2 ORDER BY (a, b);
-- r2
CREATE TABLE ob (a Int64, b Int64, c Int64) ENGINE = ReplicatedSummingMergeTree('{zk}/ob', '{r}', c) PARTITION BY a % 2 ORDER BY (a, b);
-- r1
INSERT INTO ob VALUES (1,1,1),(1,2,2),(2,1,3);
ALTER TABLE ob ADD COLUMN d Int64 AFTER b, MODIFY ORDER BY (a, b, d);
INSERT INTO ob VALUES (1,1,0,5),(1,1,7,6);
-- r2
SYSTEM SYNC REPLICA ob;
OPTIMIZE TABLE ob FINAL;
SELECT * FROM ob ORDER BY a, b, d;
SELECT sorting_key, primary_key FROM system.tables WHERE name = 'ob' AND database = 'default';
-- expect error
ALTER TABLE ob MODIFY ORDER BY (b, a);
-- expect error
ALTER TABLE ob DROP COLUMN b;
-- r1
SYSTEM SYNC REPLICA ob;
SELECT * FROM ob ORDER BY a, b, d;
