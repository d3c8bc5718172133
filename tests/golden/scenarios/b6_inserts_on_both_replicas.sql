-- rows come by both replicas, and each has all
-- r1
CREATE TABLE bo (d Date, k UInt32, r String) ENGINE = ReplicatedMergeTree('{zk}/bo', '{r}') PARTITION BY toMonday(d) ORDER BY (r, k);
-- r2
CREATE TABLE bo (d Date, k UInt32, r String) ENGINE = ReplicatedMergeTree('{zk}/bo', '{r}') PARTITION BY toMonday(d) ORDER BY (r, k);
-- r1
INSERT INTO bo VALUES ('2018-01-01', 1, 'r1'), ('2018-01-08', 2, 'r1');
-- r2
INSERT INTO bo VALUES ('2018-01-02', 3, 'r2'), ('2018-01-09', 4, 'r2');
-- r1
INSERT INTO bo VALUES ('2018-01-03', 5, 'r1');
-- r2
SYSTEM SYNC REPLICA bo;
SELECT * FROM bo ORDER BY k;
INSERT INTO bo VALUES ('2018-01-01', 1, 'r1');
INSERT INTO bo VALUES ('2018-01-01', 1, 'r1'), ('2018-01-08', 2, 'r1');
SELECT count() FROM bo;
OPTIMIZE TABLE bo PARTITION '2018-01-01' FINAL;
SELECT name, partition, rows, min_date, max_date FROM system.parts WHERE table = 'bo' AND active ORDER BY name;
-- r1
SYSTEM SYNC REPLICA bo;
SELECT name, partition, rows FROM system.parts WHERE table = 'bo' AND active ORDER BY name;
SELECT r, groupArray(k) FROM (SELECT r, k FROM bo ORDER BY k) GROUP BY r ORDER BY r;
ALTER TABLE bo DROP PARTITION '2018-01-01';
INSERT INTO bo VALUES ('2018-01-01', 1, 'r1'), ('2018-01-08', 2, 'r1');
-- r2
SYSTEM SYNC REPLICA bo;
INSERT INTO bo VALUES ('2018-01-02', 3, 'r2'), ('2018-01-09', 4, 'r2');
SELECT * FROM bo ORDER BY k;
SELECT name FROM system.parts WHERE table = 'bo' AND active ORDER BY name;
