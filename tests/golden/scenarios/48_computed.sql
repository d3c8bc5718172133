-- r1
CREATE TABLE mt (id Int64, d Date DEFAULT toDate('2018-01-01') + id, m Int64 MATERIALIZED id * 2, a String ALIAS concat('x', toString(id)), s String) ENGINE = ReplicatedMergeTree('{zk}/mt', '{r}') PARTITION BY toYYYYMM(d) ORDER BY (id, d);
-- r2
CREATE TABLE mt (id Int64, d Date DEFAULT toDate('2018-01-01') + id, m Int64 MATERIALIZED id * 2, a String ALIAS concat('x', toString(id)), s String) ENGINE = ReplicatedMergeTree('{zk}/mt', '{r}') PARTITION BY toYYYYMM(d) ORDER BY (id, d);
-- r1
INSERT INTO mt (id, s) VALUES (1,'a'),(40,'b');
INSERT INTO mt (id, d, s) VALUES (2,'2018-02-11','c');
SELECT * FROM mt ORDER BY id;
SELECT id, d, m, a, s FROM mt ORDER BY id;
-- expect error
INSERT INTO mt (id, m) VALUES (1, 1);
-- expect error
INSERT INTO mt (id, a) VALUES (1, 'x');
-- r2
SYSTEM SYNC REPLICA mt;
SELECT id, d, m, a, s FROM mt ORDER BY id;
DESCRIBE TABLE mt;
SELECT partition, name, rows FROM system.parts WHERE table = 'mt' AND active ORDER BY name;
ALTER TABLE mt DROP PARTITION 201801;
SELECT id FROM mt ORDER BY id;
-- expect error
ALTER TABLE mt DROP PARTITION ('a', 1);
ALTER TABLE mt DROP PARTITION 201802;
SELECT id FROM mt ORDER BY id;
