-- tables compared by hashes of whole rows: f(*), floats, arrays, tuples
-- r1
CREATE TABLE hr (k UInt32, s String, f Float64, f4 Float32, d Date, a Array(UInt16), t Array(String), e Enum8('x' = 1, 'y' = 2), fs FixedString(3)) ENGINE = ReplicatedMergeTree('{zk}/hr', '{r}') ORDER BY k;
-- r2
CREATE TABLE hr (k UInt32, s String, f Float64, f4 Float32, d Date, a Array(UInt16), t Array(String), e Enum8('x' = 1, 'y' = 2), fs FixedString(3)) ENGINE = ReplicatedMergeTree('{zk}/hr', '{r}') ORDER BY k;
-- r1
INSERT INTO hr SELECT number, toString(number), number / 3, number / 7, toDate('2018-01-01') + number, range(number % 4), arrayMap(x -> toString(x), range(number % 3)), number % 2 + 1, toString(number) FROM numbers(100);
SELECT sum(cityHash64(*)) FROM hr;
SELECT count(), groupBitXor(cityHash64(*)) FROM hr WHERE k % 3 = 0;
SELECT k, cityHash64(*), cityHash64(f), cityHash64(f4), cityHash64(a), cityHash64(t), cityHash64(e) FROM hr WHERE k < 4 ORDER BY k;
SELECT cityHash64(k, a, s), cityHash64((k, f), t), cityHash64([a, a]), cityHash64(groupArray(k)) FROM (SELECT * FROM hr ORDER BY k) GROUP BY k, a, s, f, t ORDER BY k LIMIT 3;
SELECT cityHash64(groupArray(k)), cityHash64(groupArray(s)) FROM (SELECT k, s FROM hr ORDER BY k);
SELECT cityHash64(1.5), cityHash64(-0.0), cityHash64(toFloat32(1.5)), cityHash64([1, 2]), cityHash64([[1], []]), cityHash64(emptyArrayUInt8()), cityHash64('a', (1, 2));
SELECT cityHash64(1, n), cityHash64(n), cityHash64(*) FROM (SELECT CAST(NULL AS Nullable(UInt8)) AS n);
-- r2
SYSTEM SYNC REPLICA hr;
SELECT sum(cityHash64(*)) FROM hr;
SELECT tuple(*) FROM (SELECT k, s FROM hr ORDER BY k LIMIT 2);
