-- r1
CREATE TABLE em (k Int64, v String DEFAULT concat('v', toString(k)), m Int64 MATERIALIZED k + 1) ENGINE = ReplicatedMergeTree('{zk}/em', '{r}') ORDER BY k;
-- r2
CREATE TABLE em (k Int64, v String DEFAULT concat('v', toString(k)), m Int64 MATERIALIZED k + 1) ENGINE = ReplicatedMergeTree('{zk}/em', '{r}') ORDER BY k;
-- r1
INSERT INTO em (k) VALUES (1),(2);
INSERT INTO em VALUES (3,'x');
ALTER TABLE em DELETE WHERE 1;
-- wait mutations
SELECT count() FROM em;
INSERT INTO em (k) VALUES (1),(2);
INSERT INTO em (k) VALUES (7),(8);
SELECT k, v, m FROM em ORDER BY k;
OPTIMIZE TABLE em FINAL;
-- r2
SYSTEM SYNC REPLICA em;
SELECT k, v, m FROM em ORDER BY k;
DROP TABLE em;
-- r1
SELECT k, v, m FROM em ORDER BY k;
