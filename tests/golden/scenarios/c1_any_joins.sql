-- r1
CREATE TABLE ja (id Int32, name String) ENGINE = ReplicatedMergeTree('{zk}/ja', '{r}') ORDER BY id;
CREATE TABLE jb (id Int32, t String) ENGINE = ReplicatedMergeTree('{zk}/jb', '{r}') ORDER BY id;
INSERT INTO ja VALUES (1, 'n0'), (2, 'n1'), (3, 'n2'), (3, 'n3');
INSERT INTO jb VALUES (2, 't0'), (3, 't1'), (3, 't2'), (4, 't3'), (4, 't4');
SELECT id, name, t FROM ja ANY INNER JOIN jb USING (id) ORDER BY id, name, t;
SELECT id, name, t FROM ja ANY LEFT JOIN jb USING (id) ORDER BY id, name, t;
SELECT id, name, t FROM ja ANY RIGHT JOIN jb USING (id) ORDER BY id, name, t;
SELECT id, name, t FROM ja ANY FULL JOIN jb USING (id) ORDER BY id, name, t;
SELECT id, name, t FROM ja ANY INNER JOIN jb ON ja.id = jb.id ORDER BY id, name, t;
SELECT id, name, t FROM ja ALL LEFT JOIN jb ON ja.id = jb.id ORDER BY id, name, t;
SELECT id, count() FROM ja AS a ALL INNER JOIN jb AS b ON a.id = b.id GROUP BY id ORDER BY id;
SELECT name FROM ja ALL INNER JOIN jb ON ja.id = jb.id WHERE id = 3 ORDER BY name;
