-- r1
CREATE TABLE nu (k Nullable(Int64), s Nullable(String), a Array(Nullable(Int64)), d Nullable(Date)) ENGINE = ReplicatedMergeTree('{zk}/nu', '{r}') ORDER BY tuple();
-- r2
CREATE TABLE nu (k Nullable(Int64), s Nullable(String), a Array(Nullable(Int64)), d Nullable(Date)) ENGINE = ReplicatedMergeTree('{zk}/nu', '{r}') ORDER BY tuple();
-- r1
INSERT INTO nu VALUES (1,'a',[1,NULL],'2018-01-01'),(NULL,NULL,[],NULL),(3,'',[NULL],'2018-01-02');
INSERT INTO nu (k) VALUES (4);
INSERT INTO nu VALUES (NULL,NULL,[],NULL);
SELECT * FROM nu ORDER BY k;
-- r2
SYSTEM SYNC REPLICA nu;
SELECT count(), count(k), sum(k), avg(k), min(s), max(d), uniq(k) FROM nu;
SELECT s, count() FROM nu GROUP BY s ORDER BY s;
SELECT k FROM nu WHERE k != 3 ORDER BY k;
SELECT k IS NULL, isNotNull(s), assumeNotNull(k) FROM nu ORDER BY k;
OPTIMIZE TABLE nu FINAL;
SELECT * FROM nu ORDER BY k;
ALTER TABLE nu UPDATE s = 'was null' WHERE s IS NULL;
-- wait mutations
SELECT * FROM nu ORDER BY k;
ALTER TABLE nu DELETE WHERE k IS NULL;
-- wait mutations
-- r1
SYSTEM SYNC REPLICA nu;
SELECT * FROM nu ORDER BY k;
SELECT k, x FROM nu ARRAY JOIN a AS x ORDER BY k, x;
SELECT k, x, y FROM nu LEFT ARRAY JOIN a AS x, arrayEnumerate(a) AS y ORDER BY k, y;
