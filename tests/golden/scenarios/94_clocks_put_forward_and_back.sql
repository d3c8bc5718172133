-- local times that clocks show twice, or leave out
-- r1
CREATE TABLE dst (k UInt8, t DateTime('Europe/Berlin'), u DateTime('America/New_York')) ENGINE = ReplicatedMergeTree('{zk}/dst', '{r}') PARTITION BY toDate(t) ORDER BY (k, t);
-- r2
CREATE TABLE dst (k UInt8, t DateTime('Europe/Berlin'), u DateTime('America/New_York')) ENGINE = ReplicatedMergeTree('{zk}/dst', '{r}') PARTITION BY toDate(t) ORDER BY (k, t);
-- r1
INSERT INTO dst VALUES (1, '2018-10-28 02:30:00', '2018-11-04 01:30:00'), (2, '2018-03-25 02:30:00', '2018-03-11 02:30:00'), (3, '2018-10-28 03:00:00', '2018-11-04 02:00:00'), (4, '2018-03-25 01:59:59', '2018-03-11 03:00:00');
INSERT INTO dst SELECT 5, toDateTime(concat('2018-10-28 ', '02:30:00'), 'Europe/Berlin'), toDateTime('2018-03-11 02:30:00', 'America/New_York');
INSERT INTO dst FORMAT CSV 6,"2018-03-25 02:30:00","2018-11-04 01:30:00";
-- r2
SYSTEM SYNC REPLICA dst;
SELECT k, toUnixTimestamp(t), toUnixTimestamp(u), t, u FROM dst ORDER BY k;
SELECT toUnixTimestamp(toDateTime('2018-10-28 02:30:00', 'Europe/Berlin')), toUnixTimestamp('2018-10-28 02:30:00', 'Europe/Berlin'), toUnixTimestamp(toDateTime('2018-03-25 02:30:00', 'Europe/Berlin'));
SELECT k FROM dst WHERE t = toDateTime('2018-10-28 02:30:00', 'Europe/Berlin') ORDER BY k;
SELECT partition, sum(rows) FROM system.parts WHERE table = 'dst' AND active GROUP BY partition ORDER BY partition;
