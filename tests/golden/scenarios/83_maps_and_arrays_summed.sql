-- sumMap and -ForEach beside SummingMergeTree, which sums the same maps
-- summing: maps, nullable, zero rows, string cols, float, negative, several keys
-- r1
CREATE TABLE b2 (d Date, k String, v Int32, f Float64, n Nullable(Int32), u8 UInt8, s String, sMap Nested(ID UInt16, cnt UInt64), st Nested(id UInt32, x Int32)) ENGINE = ReplicatedSummingMergeTree('{zk}/b2', '{r}') PARTITION BY toYYYYMM(d) ORDER BY (d, k);
-- r2
CREATE TABLE b2 (d Date, k String, v Int32, f Float64, n Nullable(Int32), u8 UInt8, s String, sMap Nested(ID UInt16, cnt UInt64), st Nested(id UInt32, x Int32)) ENGINE = ReplicatedSummingMergeTree('{zk}/b2', '{r}') PARTITION BY toYYYYMM(d) ORDER BY (d, k);
-- r1
INSERT INTO b2 VALUES ('2018-01-01', 'a', 1, 0.5, NULL, 200, 'first', [1,2], [10,20], [5], [50]);
INSERT INTO b2 VALUES ('2018-01-01', 'a', -1, 0.25, 3, 100, 'second', [2,3], [5,0], [5,6], [-50,1]);
INSERT INTO b2 VALUES ('2018-01-01', 'b', 1, 1, NULL, 1, 'x', [], [], [], []), ('2018-01-01', 'b', -1, -1, NULL, 255, 'y', [], [], [], []);
INSERT INTO b2 VALUES ('2018-01-01', 'c', 2147483647, 1e308, 1, 0, 'x', [1,1,1], [1,2,3], [2,1], [1,1]), ('2018-01-01', 'c', 1, 1e308, -1, 0, 'x', [1], [1], [1,2], [1,-1]);
INSERT INTO b2 VALUES ('2018-02-01', 'z', 0, 0, 0, 0, 'zero', [], [], [], []);
OPTIMIZE TABLE b2 FINAL;
-- r2
SYSTEM SYNC REPLICA b2;
SELECT * FROM b2 ORDER BY d, k;
SELECT k, sMap.ID, sMap.cnt FROM b2 WHERE k = 'a';
SELECT ID, sum(c) FROM b2 ARRAY JOIN sMap.ID AS ID, sMap.cnt AS c GROUP BY ID ORDER BY ID;
SELECT k, sMap.ID FROM b2 ARRAY JOIN sMap ORDER BY k, sMap.ID;
SELECT sumMap(sMap.ID, sMap.cnt) FROM b2;
SELECT count() FROM b2;
SELECT sumMap([number%3,5],[number,1]), toTypeName(sumMap([number%3,5],[number,1])) FROM numbers(6);
SELECT sumMap([toUInt8(1)],[toInt32(-1)],[1.5]) FROM numbers(6);
SELECT sumMap([1,2],[toInt8(1),-1]), sumMap([1,1],[1,2]), sumMap([3,1,2],[0,1,2]) FROM numbers(2);
SELECT sumMap(k, v) FROM (SELECT [number] AS k, [number] AS v FROM numbers(3)) WHERE 0;
SELECT sumMapIf([number],[number], number>1) FROM numbers(4);
SELECT sumForEach(range(number)), toTypeName(sumForEach(range(number))) FROM numbers(5);
SELECT countForEach(range(number)), avgForEach(range(number)), minForEach(range(number)), maxForEach(arrayMap(x->toString(x), range(number))) FROM numbers(5);
SELECT toTypeName(countForEach([1])), toTypeName(avgForEach([1])), toTypeName(minForEach(['a']));
SELECT sumForEach(x) FROM (SELECT [1] AS x) WHERE 0;
SELECT sumForEachIf([number], number>2), uniqForEach([number%2]), anyForEach([number]) FROM numbers(5);
SELECT sumForEach([1,NULL,3]), countForEach([1,NULL]), maxForEach([NULL,1]);
SELECT sumForEach([1.5]), groupArrayForEach([number]) FROM numbers(3);
SELECT groupArrayInsertAt(number, toUInt32(number%3)) FROM numbers(6);
SELECT groupArrayInsertAt(100,5)(number, toUInt32(number)) FROM numbers(3);
SELECT groupArrayInsertAt('x')(toString(number), toUInt32(number*2)) FROM numbers(3);
SELECT uniqUpTo(3)(number), uniqUpTo(10)(number), toTypeName(uniqUpTo(3)(number)) FROM numbers(6);
SELECT quantilesExact(0.1,0.5)(number), toTypeName(quantilesExact(0.5)(number)), quantileExact(1)(number), quantileExact(0)(number) FROM numbers(7);
SELECT quantileTiming(0.5)(number), toTypeName(quantileTiming(0.5)(number)), quantileTiming(0.9)(number), quantileTiming(number*1000), quantilesTiming(0.1,0.5)(number) FROM numbers(7);
SELECT medianTiming(x) FROM (SELECT toUInt32(1) AS x) WHERE 0;
SELECT quantileTiming(number), quantileTiming(0.99)(number) FROM numbers(1000);
SELECT retention(number=1,number=2,number=30), toTypeName(retention(number=1,number=2)) FROM numbers(5);
SELECT retention(number=50,number=2) FROM numbers(5);
SELECT sumKahan(number/3), toTypeName(sumKahan(number)) FROM numbers(10);
