-- joins ON a condition, with a name that both sides have; types of aggregates; arrays whose numbers do not fit
-- r1
CREATE TABLE jq (k UInt32, g String, v Int32) ENGINE = ReplicatedMergeTree('{zk}/jq', '{r}') ORDER BY (g, k);
CREATE TABLE jd (g String, name String, w Int32) ENGINE = ReplicatedMergeTree('{zk}/jd', '{r}') ORDER BY g;
INSERT INTO jq SELECT number, ['x', 'y', 'z'][number % 3 + 1], (number * 37) % 11 - 5 FROM numbers(12);
INSERT INTO jd VALUES ('x', 'ex', 1), ('y', 'why', 2), ('w', 'dbl', 3);
SELECT k, jd.name, jd.g FROM jq ALL LEFT JOIN jd ON g = jd.g WHERE k < 4 ORDER BY k;
SELECT k, jd.name, jd.g FROM jq ANY LEFT JOIN jd ON g = jd.g WHERE k < 4 ORDER BY k;
SELECT k, name FROM jq ANY LEFT JOIN jd ON jq.g = jd.g WHERE k < 4 ORDER BY k;
SELECT k, name, w FROM jq ANY INNER JOIN jd ON jq.g = jd.g WHERE k < 5 ORDER BY k;
SELECT k, name FROM jq ANY LEFT JOIN (SELECT g AS gg, name FROM jd) ON g = gg WHERE k < 4 ORDER BY k;
SELECT k, name FROM jq ANY LEFT JOIN jd ON jq.g = jd.g AND jq.v = jd.w ORDER BY k;
SELECT count(), sum(w) FROM jq ANY LEFT JOIN jd ON jq.g = jd.g;
SELECT toTypeName(sum(v)), toTypeName(count()), toTypeName(groupArray(g)) FROM jq;
SELECT toTypeName(max(v)) FROM jq WHERE 0;
CREATE TABLE ja (k UInt32, a Array(UInt32)) ENGINE = ReplicatedMergeTree('{zk}/ja', '{r}') ORDER BY k;
-- expect error
INSERT INTO ja VALUES (1, [-10]);
-- expect error
INSERT INTO ja VALUES (2, [1, 1.5]);
INSERT INTO ja VALUES (3, [1 + 1, 2]), (4, [1, 2]);
SELECT * FROM ja ORDER BY k;
