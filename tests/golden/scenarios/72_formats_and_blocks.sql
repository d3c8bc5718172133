-- r1
CREATE TABLE fb (d Date, id UInt32, s String, x Float64) ENGINE = ReplicatedMergeTree('{zk}/fb', '{r}') PARTITION BY toYYYYMM(d) ORDER BY id;
-- r2
CREATE TABLE fb (d Date, id UInt32, s String, x Float64) ENGINE = ReplicatedMergeTree('{zk}/fb', '{r}') PARTITION BY toYYYYMM(d) ORDER BY id;
-- r1
INSERT INTO fb FORMAT CSV
2018-01-01,1,"a, b",1.5
2018-01-01,2,c,-2;
INSERT INTO fb FORMAT JSONEachRow {"d": "2018-01-02", "id": 3, "s": "j\u00e9", "x": 1e3} {"id": 4, "d": "2018-01-02"};
INSERT INTO fb FORMAT Values ('2018-01-03', 5, 'it\'s', 0.1), ('2018-01-03', 6, '', nan);
INSERT INTO fb (id, d) FORMAT TSV 7	2018-01-04;
-- expect error
INSERT INTO fb FORMAT CSV 2018-01-01,x,a,1;
-- expect error
INSERT INTO fb FORMAT NoSuchFormat 1;
-- set max_insert_block_size=10
-- set min_insert_block_size_rows=0
-- set min_insert_block_size_bytes=0
-- set max_block_size=10
INSERT INTO fb SELECT toDate('2018-02-01'), number, toString(number), number / 4 FROM system.numbers LIMIT 30;
-- set max_insert_block_size=10
-- set min_insert_block_size_rows=0
-- set min_insert_block_size_bytes=0
-- set max_block_size=10
INSERT INTO fb SELECT toDate('2018-02-01'), number, toString(number), number / 4 FROM system.numbers LIMIT 30;
-- r2
SYSTEM SYNC REPLICA fb;
SELECT id, s, x FROM fb WHERE d < '2018-02-01' ORDER BY id;
SELECT count(), sum(x) FROM fb;
OPTIMIZE TABLE fb PARTITION 201802 FINAL;
-- expect error
OPTIMIZE TABLE fb PARTITION 201802 FINAL DEDUPLICATE BY nosuch;
INSERT INTO fb VALUES ('2018-03-01', 1, 'a', 1), ('2018-03-01', 1, 'a', 1), ('2018-03-01', 1, 'b', 1);
INSERT INTO fb VALUES ('2018-03-01', 1, 'a', 1), ('2018-03-01', 2, 'a', 1);
-- r1
SYSTEM SYNC REPLICA fb;
OPTIMIZE TABLE fb PARTITION 201803 FINAL DEDUPLICATE;
-- r2
SYSTEM SYNC REPLICA fb;
SELECT id, s, count() FROM fb WHERE toYYYYMM(d) = 201803 GROUP BY id, s ORDER BY id, s;
