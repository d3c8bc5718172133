-- powers of two, times of the day, the date that is none, and two forms of a mutation's text
-- r1
CREATE TABLE rd (id UInt32, v String, f Float64, t DateTime) ENGINE = ReplicatedMergeTree('{zk}/rd', '{r}') ORDER BY id;
INSERT INTO rd VALUES (1, 'a', 3.7, '2018-05-06 07:08:09'), (33, 'b', -0.3, '2018-12-31 23:59:59'), (4294967295, '0000-00-00', 1e308, '2018-01-01 00:00:00');
SELECT id, roundToExp2(id), roundToExp2(toInt32(id) - 5), roundToExp2(f), toTypeName(roundToExp2(toUInt8(33))) FROM rd ORDER BY id;
SELECT id, toTime(t), toTime(toDateTime(toString(t), 'Asia/Tokyo')), toTime(t) < toTime(toDateTime('2000-01-01 12:00:00')) FROM rd ORDER BY id;
SELECT toUInt16(toDate(v)), toUInt16(toDate('0000-00-00')), toUInt32(toDateTime(concat(v, ' 00:00:00'))) FROM rd WHERE id > 100;
ALTER TABLE rd DELETE WHERE (id, v) IN ((1, 'b')) AND toInt32(id) = -(-3);
ALTER TABLE rd DELETE WHERE (id, v) NOT IN ((1, 'a'), (33, 'b'));
-- wait mutations
SELECT command FROM system.mutations WHERE table = 'rd' ORDER BY mutation_id;
SELECT * FROM rd ORDER BY id;
