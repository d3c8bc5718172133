-- r1
CREATE TABLE nd (d Date, id UInt32, n Nested(k String, v Int32), a UInt32 DEFAULT id + 1, m UInt32 MATERIALIZED id * 10, l ALIAS concat('x', toString(id)), s String DEFAULT 'none') ENGINE = ReplicatedMergeTree('{zk}/nd', '{r}') PARTITION BY toYYYYMM(d) ORDER BY id;
-- r2
CREATE TABLE nd (d Date, id UInt32, n Nested(k String, v Int32), a UInt32 DEFAULT id + 1, m UInt32 MATERIALIZED id * 10, l ALIAS concat('x', toString(id)), s String DEFAULT 'none') ENGINE = ReplicatedMergeTree('{zk}/nd', '{r}') PARTITION BY toYYYYMM(d) ORDER BY id;
-- r1
INSERT INTO nd (d, id, n.k, n.v) VALUES ('2018-01-01', 1, ['a', 'b'], [1, 2]);
INSERT INTO nd (d, id, a, s) VALUES ('2018-01-01', 2, 7, 'given');
-- expect error
INSERT INTO nd (d, id, n.k, n.v) VALUES ('2018-01-01', 3, ['a', 'b'], [1]);
-- expect error
INSERT INTO nd (d, id, m) VALUES ('2018-01-01', 4, 5);
-- r2
SYSTEM SYNC REPLICA nd;
SELECT * FROM nd ORDER BY id;
SELECT id, m, l FROM nd ORDER BY id;
SELECT id, k, v FROM nd ARRAY JOIN n.k AS k, n.v AS v ORDER BY id, k;
SELECT id, n.k FROM nd ARRAY JOIN n ORDER BY id, n.k;
ALTER TABLE nd ADD COLUMN n.w Array(UInt8);
ALTER TABLE nd ADD COLUMN z UInt32 DEFAULT a * 2 AFTER id;
SELECT id, n.k, n.w, z FROM nd ORDER BY id;
ALTER TABLE nd MODIFY COLUMN s String DEFAULT 'later';
INSERT INTO nd (d, id) VALUES ('2018-01-02', 9);
SELECT * FROM nd WHERE id = 9;
-- r1
SYSTEM SYNC REPLICA nd;
ALTER TABLE nd DROP COLUMN n;
-- expect error
SELECT n.k FROM nd;
SELECT * FROM nd ORDER BY id;
SELECT name, type, default_kind FROM system.columns WHERE table = 'nd' ORDER BY name;
