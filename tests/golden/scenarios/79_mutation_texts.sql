-- the texts of mutations: in system.mutations, and after they were read again to be carried out
-- r1
CREATE TABLE mx (k Int32, a Int32, n Nullable(Int32), s String, ar Array(Int32)) ENGINE = ReplicatedMergeTree('{zk}/mx', '{r}') ORDER BY k;
-- r2
CREATE TABLE mx (k Int32, a Int32, n Nullable(Int32), s String, ar Array(Int32)) ENGINE = ReplicatedMergeTree('{zk}/mx', '{r}') ORDER BY k;
-- r1
INSERT INTO mx SELECT number, number % 3, if(number % 4 = 0, NULL, number), concat('s', toString(number)), range(number % 3) FROM numbers(20);
ALTER TABLE mx UPDATE n = -k WHERE n IS NULL AND NOT (k = 8 OR a = 2);
-- wait mutations
SELECT k, n FROM mx WHERE n < 0 OR n IS NULL ORDER BY k;
ALTER TABLE mx DELETE WHERE k IN (3) OR s IN ('s5') OR -(a + k) < -19;
-- wait mutations
-- r2
SYSTEM SYNC REPLICA mx;
SELECT count(), sum(k) FROM mx;
ALTER TABLE mx UPDATE s = CASE WHEN n IS NOT NULL THEN concat(s, '!') ELSE 'null' END, ar = arrayMap(x -> -x, ar) WHERE NOT a = 0 AND NOT k BETWEEN 10 AND 12, DELETE WHERE ar[1] = 0 AND NOT (k < 15);
-- wait mutations
SELECT * FROM mx ORDER BY k;
SELECT mutation_id, command FROM system.mutations WHERE table = 'mx' ORDER BY mutation_id, command;
-- r1
SYSTEM SYNC REPLICA mx;
SELECT * FROM mx ORDER BY k;
SELECT mutation_id, command FROM system.mutations WHERE table = 'mx' ORDER BY mutation_id, command;
