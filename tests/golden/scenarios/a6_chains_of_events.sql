-- functions of chains of events, of JSON that is searched, hashes and bars
-- r1
CREATE TABLE fu (k UInt32, t DateTime, e String, v Float64, j String) ENGINE = ReplicatedMergeTree('{zk}/fu', '{r}') PARTITION BY sipHash64(k) % 2 ORDER BY (k, t);
-- r2
CREATE TABLE fu (k UInt32, t DateTime, e String, v Float64, j String) ENGINE = ReplicatedMergeTree('{zk}/fu', '{r}') PARTITION BY sipHash64(k) % 2 ORDER BY (k, t);
-- r1
INSERT INTO fu VALUES (1, '2018-01-01 00:00:00', 'view', 1, '{"a":1}'), (1, '2018-01-01 00:00:05', 'cart', 2, '{"a":-2,"b":"x\\ny"}'), (1, '2018-01-01 00:00:20', 'pay', 3, '{"c":{"d":[1,2]},"t":true}'), (2, '2018-01-01 00:00:00', 'view', 1, 'nothing'), (2, '2018-01-01 00:01:00', 'cart', 5, '{"a":"5","f":1.5e3}'), (3, '2018-01-01 00:00:00', 'cart', 0, '{"a" : 7}'), (3, '2018-01-01 00:00:02', 'view', 9, ''), (4, '2018-01-01 00:00:00', 'view', 1, '{"a":7,"b":""}');
SELECT partition, name, rows FROM system.parts WHERE table = 'fu' AND active ORDER BY name;
-- r2
SYSTEM SYNC REPLICA fu;
SELECT k, windowFunnel(10)(t, e = 'view', e = 'cart', e = 'pay') FROM fu GROUP BY k ORDER BY k;
SELECT k, windowFunnel(60)(t, e = 'view', e = 'cart', e = 'pay') FROM fu GROUP BY k ORDER BY k;
SELECT k, sequenceMatch('(?1).*(?2)')(t, e = 'view', e = 'cart', e = 'pay') FROM fu GROUP BY k ORDER BY k;
SELECT k, sequenceMatch('(?1)(?2)(?3)')(t, e = 'view', e = 'cart', e = 'pay') FROM fu GROUP BY k ORDER BY k;
SELECT k, sequenceMatch('(?1)(?t<=10)(?2)')(t, e = 'view', e = 'cart') FROM fu GROUP BY k ORDER BY k;
SELECT k, sequenceMatch('(?1)(?t>10)(?2)')(t, e = 'view', e = 'cart') FROM fu GROUP BY k ORDER BY k;
SELECT k, sequenceMatch('(?1).(?2)')(t, e = 'view', e = 'pay', e = 'cart') FROM fu GROUP BY k ORDER BY k;
SELECT k, sequenceCount('(?1)')(t, e = 'view', e = 'cart') FROM fu GROUP BY k ORDER BY k;
-- expect error
SELECT sequenceMatch('(?3)')(t, e = 'view', e = 'cart') FROM fu;
-- expect error
SELECT windowFunnel(10)(t) FROM fu;
SELECT k, t, visitParamExtractInt(j, 'a'), visitParamExtractUInt(j, 'a'), visitParamExtractFloat(j, 'a'), visitParamExtractString(j, 'b'), visitParamExtractRaw(j, 'c'), visitParamExtractBool(j, 't'), visitParamHas(j, 'a'), visitParamExtractFloat(j, 'f'), visitParamExtractRaw(j, 'a') FROM fu ORDER BY k, t, e;
SELECT sipHash64(e), sipHash64(k), sipHash64(k, e), sipHash64(''), sipHash64(toUInt8(1)), sipHash64(toInt64(-1)), sipHash64(v), sipHash64(t), sipHash64(toDate(t)), sipHash64('a rather long string that has more than eight bytes') FROM fu ORDER BY k, t, e;
SELECT sipHash64(tuple(k, e)), sipHash64([k, k]) FROM fu ORDER BY k, t, e LIMIT 1;
SELECT bar(v, 0, 9, 9), bar(v, 1, 3, 3), bar(v, 0, 5) FROM fu ORDER BY k, t, e;
SELECT k, runningAccumulate(s) FROM (SELECT k, sumState(v) AS s FROM fu GROUP BY k ORDER BY k);
SELECT k, anyHeavy(e) FROM fu WHERE k IN (3, 1) AND v > 2 GROUP BY k ORDER BY k;
SELECT DISTINCT k FROM fu ORDER BY k LIMIT 1 BY k LIMIT 3;
SELECT DISTINCT e FROM fu ORDER BY e;
