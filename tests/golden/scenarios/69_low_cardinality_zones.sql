-- r1
-- set allow_experimental_low_cardinality_type=1
CREATE TABLE lz (d Date, k LowCardinality(String), t DateTime('Europe/Moscow'), u DateTime('UTC'), f FixedString(4), n Nullable(Int32)) ENGINE = ReplicatedMergeTree('{zk}/lz', '{r}') PARTITION BY toYYYYMM(d) ORDER BY (k, t);
-- r2
-- set allow_experimental_low_cardinality_type=1
CREATE TABLE lz (d Date, k LowCardinality(String), t DateTime('Europe/Moscow'), u DateTime('UTC'), f FixedString(4), n Nullable(Int32)) ENGINE = ReplicatedMergeTree('{zk}/lz', '{r}') PARTITION BY toYYYYMM(d) ORDER BY (k, t);
-- r1
INSERT INTO lz VALUES ('2018-01-01', 'a', '2018-01-01 03:00:00', '2018-01-01 00:00:00', 'ab', NULL), ('2018-01-02', 'b', 1514764800, 1514764800, 'abcd', 5);
INSERT INTO lz VALUES ('2018-02-01', 'c', 172800, 172800, 'x', 0);
-- expect error
INSERT INTO lz VALUES ('2018-01-01', 'a', '2018-01-01 03:00:00', '2018-01-01 00:00:00', 'abcde', NULL);
-- r2
SYSTEM SYNC REPLICA lz;
SELECT d, k, t, u, toUnixTimestamp(t), toHour(t), toDate(t), f, length(f), n FROM lz ORDER BY k;
SELECT k, count() FROM lz WHERE k IN ('a', 'c') GROUP BY k ORDER BY k;
SELECT toTypeName(k), toTypeName(t), toTypeName(f), toTypeName(n) FROM lz LIMIT 1;
SELECT count() FROM lz WHERE u = '2018-01-01 00:00:00';
SELECT toString(t), toString(u), toDateTime(t, 'UTC') FROM lz WHERE k = 'a';
OPTIMIZE TABLE lz FINAL;
ALTER TABLE lz UPDATE n = 6 WHERE k = 'b';
-- wait mutations
SELECT k, n FROM lz ORDER BY k;
