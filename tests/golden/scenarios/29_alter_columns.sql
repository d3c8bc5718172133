-- r1
CREATE TABLE al (id Int64, v String) ENGINE = ReplicatedMergeTree('{zk}/al', '{r}') ORDER BY id;
-- r2
CREATE TABLE al (id Int64, v String) ENGINE = ReplicatedMergeTree('{zk}/al', '{r}') ORDER BY id;
-- r1
INSERT INTO al VALUES (1,'10'),(2,'20');
ALTER TABLE al ADD COLUMN n Int64 DEFAULT id * 2 AFTER id;
SELECT * FROM al ORDER BY id;
INSERT INTO al VALUES (3,5,'30');
-- r2
SYSTEM SYNC REPLICA al;
SELECT id, n, v FROM al ORDER BY id;
ALTER TABLE al MODIFY COLUMN v Int64;
SELECT id, n, v FROM al ORDER BY id;
-- r1
ALTER TABLE al ADD COLUMN w String;
SELECT * FROM al ORDER BY id;
ALTER TABLE al DROP COLUMN n;
-- r2
SYSTEM SYNC REPLICA al;
SELECT * FROM al ORDER BY id;
-- expect error
ALTER TABLE al DROP COLUMN id;
-- expect error
ALTER TABLE al ADD COLUMN v Int64;
-- expect error
ALTER TABLE al DROP COLUMN nosuch;
-- expect error
ALTER TABLE al MODIFY COLUMN nosuch Int64;
SELECT name, type, default_kind, default_expression FROM system.columns WHERE table = 'al' AND database = 'default';
-- r1
SYSTEM SYNC REPLICA al;
SELECT id, v, w FROM al ORDER BY id;
