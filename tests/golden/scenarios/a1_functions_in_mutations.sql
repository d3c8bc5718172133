-- functions that are operators, and operators, as mutations are written down
-- r1
CREATE TABLE mt (k UInt32, s String, d Date, t DateTime, n Nullable(Int32), a Array(UInt32), f Float64, u UInt8) ENGINE = ReplicatedMergeTree('{zk}/mt', '{r}') ORDER BY k;
-- r2
CREATE TABLE mt (k UInt32, s String, d Date, t DateTime, n Nullable(Int32), a Array(UInt32), f Float64, u UInt8) ENGINE = ReplicatedMergeTree('{zk}/mt', '{r}') ORDER BY k;
-- r1
ALTER TABLE mt DELETE WHERE tuple(k, s) IN (tuple(1, 'a'), tuple(2, 'b'));
ALTER TABLE mt DELETE WHERE tuple(k) = tuple(1);
ALTER TABLE mt DELETE WHERE array(k, 1) = array(2, 3);
ALTER TABLE mt DELETE WHERE plus(k, 1) = 2 AND minus(k, 1) = 2 AND multiply(k, 2) = 4 AND divide(k, 2) = 1 AND modulo(k, 2) = 0;
ALTER TABLE mt DELETE WHERE equals(k, 1) AND notEquals(k, 2) AND less(k, 3) AND greater(k, 0) AND lessOrEquals(k, 4) AND greaterOrEquals(k, 0);
ALTER TABLE mt DELETE WHERE and(k = 1, s = 'x') OR or(k = 2, s = 'y') OR not(k = 3) OR xor(k = 1, k = 2);
ALTER TABLE mt DELETE WHERE and(k = 1, k = 2, k = 3);
ALTER TABLE mt DELETE WHERE like(s, 'a%') AND notLike(s, 'b%') AND in(k, (1, 2)) AND notIn(k, (3, 4));
ALTER TABLE mt DELETE WHERE negate(k) < 0 AND arrayElement(a, 1) = 2 AND tupleElement((k, s), 1) = 3;
ALTER TABLE mt DELETE WHERE (k, s).1 = 5;
ALTER TABLE mt DELETE WHERE CAST(s AS Nullable(String)) IS NULL;
ALTER TABLE mt DELETE WHERE CAST(k AS Enum8('a' = 1, 'b' = 2)) = 'a';
ALTER TABLE mt DELETE WHERE toInt32(s) = -1 AND k = +1;
ALTER TABLE mt DELETE WHERE s = 'a''b' OR s = 'a\\b' OR s = 'ü' OR s = '\x41' OR s = '\0';
ALTER TABLE mt DELETE WHERE f = 1.0 OR f = 1.50 OR f = 100000000000000000000 OR f = 1e100 OR f = .5 OR f = 1e-7 OR f = inf OR f = nan;
ALTER TABLE mt DELETE WHERE k IN (1, 2, -3) OR s IN ('a') OR (k) IN (5, 6) OR k IN (7, NULL);
ALTER TABLE mt DELETE WHERE length(s) BETWEEN 1 AND 2 OR NOT k BETWEEN 3 AND 4;
ALTER TABLE mt DELETE WHERE arrayMap((x, y) -> x + y, a, a) = [] OR arrayFilter(x -> (x % 2) = 0, a) = a;
ALTER TABLE mt DELETE WHERE s LIKE 'x' OR s NOT LIKE 'y' AND NOT s LIKE 'z';
ALTER TABLE mt DELETE WHERE (((k = 1)));
ALTER TABLE mt DELETE WHERE k = 1 AND (s = 'a' AND f = 1);
ALTER TABLE mt DELETE WHERE (k = 1 AND s = 'a') AND f = 1;
ALTER TABLE mt DELETE WHERE k = 1 OR (s = 'a' OR f = 1);
ALTER TABLE mt DELETE WHERE k + 1 + 2 - 3 * 4 / 5 % 6 = 7;
ALTER TABLE mt DELETE WHERE k - (1 - 2) = 3 AND (k + 1) * 2 = 4;
ALTER TABLE mt DELETE WHERE a[k + 1] = 2 AND a[1] + a[-1] = 3;
-- expect error
ALTER TABLE mt DELETE WHERE count = 1;
ALTER TABLE mt DELETE WHERE u;
ALTER TABLE mt DELETE WHERE NOT u;
ALTER TABLE mt DELETE WHERE u AND NOT u = 1;
ALTER TABLE mt DELETE WHERE 1 = 0;
ALTER TABLE mt DELETE WHERE toString(k) || s || 'x' = 'y';
ALTER TABLE mt DELETE WHERE concat(s, 'a', 'b') = '';
ALTER TABLE mt DELETE WHERE d = toDate('2018-01-01') OR toYYYYMM(d) IN (201801, 201802);
ALTER TABLE mt DELETE WHERE n IS NULL OR n IS NOT NULL AND n = 5;
ALTER TABLE mt DELETE WHERE n = NULL OR isNull(n + 1);
ALTER TABLE mt DELETE WHERE SUBSTRING(s, 1, 2) = 'ab' OR LOWER(s) = 'x' OR Upper(s) = 'Y';
-- expect error
ALTER TABLE mt DELETE WHERE s = 'x' AS alias;
ALTER TABLE mt UPDATE s = s || '!' , f = f / 2, u = NOT u, n = if(k > 1, NULL, n) WHERE k IN (1, 2);
ALTER TABLE mt UPDATE a = arrayConcat(a, [k]), f = -f WHERE not(k = 0);
ALTER TABLE mt UPDATE `s` = 'q' WHERE `k` = 1;
-- expect error
ALTER TABLE mt DELETE WHERE 1 UPDATE s = 'x' WHERE 1;
ALTER TABLE mt UPDATE s = CASE WHEN k = 1 THEN 'a' WHEN k = 2 THEN 'b' ELSE s END WHERE 1;
ALTER TABLE mt UPDATE s = toString(CASE k WHEN 1 THEN 10 ELSE 20 END) WHERE 1;
ALTER TABLE mt DELETE WHERE EXTRACT(YEAR FROM d) = 2018;
-- wait mutations
SELECT mutation_id, command FROM system.mutations WHERE table = 'mt' ORDER BY mutation_id;
