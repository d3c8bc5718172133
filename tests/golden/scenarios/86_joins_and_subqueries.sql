-- r1
CREATE TABLE d2a (id Int32, name String, v Int32) ENGINE = ReplicatedMergeTree('{zk}/d2a', '{r}') ORDER BY id;
CREATE TABLE d2b (id Int32, title String, w Nullable(Int32)) ENGINE = ReplicatedMergeTree('{zk}/d2b', '{r}') ORDER BY id;
INSERT INTO d2a VALUES (1, 'a', 10), (2, 'b', 20), (3, 'c', 30), (3, 'c3', 31);
INSERT INTO d2b VALUES (2, 'B', 200), (3, 'C', NULL), (3, 'CC', 300), (4, 'D', 400);
SELECT id, name, title FROM d2a ANY INNER JOIN d2b USING (id) ORDER BY id, name;
SELECT id, name, title FROM d2a ANY LEFT JOIN d2b USING id ORDER BY id, name;
SELECT id, name, title, w FROM d2a ALL INNER JOIN d2b USING (id) ORDER BY id, name, title;
SELECT id, name, title, w FROM d2a ALL LEFT JOIN d2b USING (id) ORDER BY id, name, title;
SELECT id, name, title FROM d2a ALL RIGHT JOIN d2b USING (id) ORDER BY id, name, title;
SELECT id, name, title FROM d2a ALL FULL JOIN d2b USING (id) ORDER BY id, name, title;
SELECT id, name, title FROM d2a ALL INNER JOIN (SELECT id, title FROM d2b WHERE w > 0) USING id ORDER BY id, name, title;
SELECT a.id, b.title FROM d2a AS a ALL INNER JOIN d2b AS b ON a.id = b.id ORDER BY a.id, b.title;
SELECT a.id, b.title, a.v FROM d2a a ALL LEFT JOIN d2b b ON a.id = b.id ORDER BY a.id, b.title, a.v;
SELECT x, y FROM (SELECT 1 AS x, 2 AS y) CROSS JOIN (SELECT 3 AS z);
SELECT a.id, b.id FROM d2a AS a CROSS JOIN d2b AS b WHERE a.id = b.id - 1 ORDER BY a.id, b.id;
SELECT id, name FROM d2a WHERE id IN (SELECT id FROM d2b) ORDER BY id, name;
SELECT id, name FROM d2a WHERE id GLOBAL NOT IN (SELECT id FROM d2b) ORDER BY id;
SELECT count(), (SELECT max(w) FROM d2b) FROM d2a;
SELECT id, v / (SELECT sum(v) FROM d2a) AS share FROM d2a ORDER BY id, share;
SELECT * FROM (SELECT id, sum(v) AS s FROM d2a GROUP BY id) WHERE s > 15 ORDER BY id;
SELECT count() FROM (SELECT id FROM d2a UNION ALL SELECT id FROM d2b);
WITH 10 AS k SELECT id, v / k FROM d2a ORDER BY id, v;
WITH (SELECT max(v) FROM d2a) AS m SELECT id FROM d2a WHERE v = m;
SELECT name, id + 1 AS id FROM d2a ORDER BY id, name;
SELECT sum(v) AS v, count() FROM d2a;
SELECT id AS x, x + 1 AS y, y * 2 FROM d2a ORDER BY x, y LIMIT 2;
SELECT * FROM d2a ORDER BY id DESC, v DESC;
SELECT DISTINCT id FROM d2a ORDER BY id;
SELECT * FROM d2a LIMIT 0;
SELECT 1 WHERE 0;
SELECT 1, 'x', NULL, [1, 2], (1, 'a'), toDate('2018-01-01');
SELECT min(id), max(name), any(v) FROM d2a WHERE id = 99;
SELECT id, count() FROM d2a GROUP BY id ORDER BY count() DESC, id;
SELECT id % 2 AS odd, groupArray(name) FROM (SELECT * FROM d2a ORDER BY id, name) GROUP BY odd ORDER BY odd;
-- expect error
SELECT id, name FROM d2a GROUP BY id;
-- expect error
SELECT nosuchfunction(id) FROM d2a;
-- expect error
SELECT id FROM d2a WHERE sum(v) > 1;
-- expect error
SELECT * FROM d2a WHERE name > 5;
-- expect error
SELECT * FROM d2a ORDER BY nosuch;
-- expect error
SELECT 'a' + 1;
-- expect error
SELEC 1;
-- expect error
SELECT toUInt8('abc');
-- expect error
SELECT length(5);
-- expect error
SELECT d2a.nosuch FROM d2a;
-- expect error
SELECT id FROM d2a UNION ALL SELECT id, title FROM d2b;
