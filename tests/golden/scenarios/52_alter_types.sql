-- r1
CREATE TABLE at (id Int64, e Enum8('a' = 1, 'b' = 2), n Nullable(Int32), s String, arr Array(Int32)) ENGINE = ReplicatedMergeTree('{zk}/at', '{r}') ORDER BY id;
-- r2
CREATE TABLE at (id Int64, e Enum8('a' = 1, 'b' = 2), n Nullable(Int32), s String, arr Array(Int32)) ENGINE = ReplicatedMergeTree('{zk}/at', '{r}') ORDER BY id;
-- r1
INSERT INTO at VALUES (1,'a',NULL,'7',[1,2]),(2,'b',5,'8',[]);
ALTER TABLE at MODIFY COLUMN e Enum8('a' = 1, 'b' = 2, 'c' = 3);
SELECT * FROM at ORDER BY id;
ALTER TABLE at MODIFY COLUMN s UInt8;
SELECT * FROM at ORDER BY id;
ALTER TABLE at MODIFY COLUMN n Nullable(String);
SELECT id, n FROM at ORDER BY id;
-- r2
SYSTEM SYNC REPLICA at;
ALTER TABLE at ADD COLUMN d DateTime DEFAULT toDateTime('2018-01-01 00:00:00', 'UTC') + id, DROP COLUMN arr;
SELECT id, e, n, s, toUnixTimestamp(d) FROM at ORDER BY id;
ALTER TABLE at MODIFY COLUMN e String;
SELECT id, e FROM at ORDER BY id;
ALTER TABLE at MODIFY COLUMN s DEFAULT 42;
SELECT id, e, n, s FROM at ORDER BY id;
DESCRIBE TABLE at;
-- r1
SYSTEM SYNC REPLICA at;
SELECT id, e, n, s FROM at ORDER BY id;
