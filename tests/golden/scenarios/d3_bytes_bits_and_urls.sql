-- functions of bytes, bits, URLs and weights; columns added without a type; nodes that are not there
-- r1
CREATE TABLE by (k UInt32, s String, u UInt8, t DateTime, url String) ENGINE = ReplicatedMergeTree('{zk}/by', '{r}') PARTITION BY murmurHash3_32(s) % 2 ORDER BY k;
-- r2
CREATE TABLE by (k UInt32, s String, u UInt8, t DateTime, url String) ENGINE = ReplicatedMergeTree('{zk}/by', '{r}') PARTITION BY murmurHash3_32(s) % 2 ORDER BY k;
-- r1
INSERT INTO by VALUES (1, 'abc', 50, '2018-05-06 07:08:09', 'http://www.ex.com/a/b?x=1&y=2#z'), (2, '', 0, '2018-12-31 23:59:59', 'https://news.a.co.uk/'), (3, 'a rather long string that is long', 255, '2018-01-01 00:00:00', 'nothing');
SELECT partition, name, rows FROM system.parts WHERE table = 'by' AND active ORDER BY name;
-- r2
SYSTEM SYNC REPLICA by;
SELECT k, murmurHash2_32(s), murmurHash2_64(s), murmurHash3_32(s), murmurHash3_64(s), hex(murmurHash3_128(s)) FROM by ORDER BY k;
SELECT k, murmurHash2_32(k, s), murmurHash2_64(u, t), murmurHash3_32(t, s, k), murmurHash3_64([k, k]), murmurHash3_64((u, s)) FROM by ORDER BY k;
SELECT hex(SHA224(s)), hex(sipHash128(s)), reinterpretAsUInt32(s), reinterpretAsFloat64(s), reinterpretAsDate(concat(s, 'xy')), reinterpretAsString(toUInt16(k + 24930)), hex(reinterpretAsFixedString(t)) FROM by ORDER BY k;
SELECT bitTestAll(u, 1, 4), bitTestAny(u, 0, 1), bitRotateLeft(u, 3), bitRotateRight(u, 3), bitmaskToList(u), bitmaskToArray(u), bitmaskToList(toInt8(u)) FROM by ORDER BY k;
SELECT URLHierarchy(url), URLPathHierarchy(url), extractURLParameters(url), extractURLParameterNames(url), firstSignificantSubdomain(url), cutToFirstSignificantSubdomain(url) FROM by ORDER BY k;
SELECT IPv4NumToStringClassC(toUInt32(k * 65537)), IPv6NumToString(IPv4ToIPv6(toUInt32(k * 65537))), IPv6NumToString(IPv6StringToNum('2001:db8::1')), MACNumToString(k * 65537), MACStringToNum('01:02:03:04:05:06'), MACStringToOUI('01:02:03:04:05:06'), UUIDNumToString(UUIDStringToNum('61f0c404-5cb3-11e7-907b-a6006ad3dba0')) FROM by ORDER BY k;
SELECT formatDateTime(t, '%Y-%m-%d %H:%M:%S'), formatDateTime(t, '%e|%d|%D'), timeSlots(t, toUInt32(u * 60)) FROM by ORDER BY k;
SELECT erf(u / 50), erfc(u / 50), lgamma(k), tgamma(k), arrayCumSumNonNegative([k, -5, u]), arrayUniq([1, 1, k], [1, 1, 2]) FROM by ORDER BY k;
SELECT quantileExactWeighted(0.3)(k, u), quantilesExactWeighted(0.1, 0.9)(u, k), quantileTimingWeighted(0.5)(u, k), quantileExactWeighted(t, u) FROM by;
ALTER TABLE by UPDATE url = toString(murmurHash2_64(s)) WHERE bitTestAll(u, 0, 1);
-- wait mutations
ALTER TABLE by ADD COLUMN c DEFAULT u + 1, ADD COLUMN a ALIAS concat(s, '!');
SELECT k, url, c, a, toTypeName(c), toTypeName(a) FROM by ORDER BY k;
-- r1
SYSTEM SYNC REPLICA by;
SELECT k, url, c, a FROM by ORDER BY k;
SELECT name, type, default_kind, default_expression FROM system.columns WHERE table = 'by' AND database = 'default';
-- expect error
SELECT name FROM system.zookeeper WHERE path = '{zk}/by/nosuch';
