-- rows of which all that is summed is 0 or NULL go with a merge, also where the column is Nullable
-- r1
CREATE TABLE nz (k UInt32, x Nullable(Int32), z Float64) ENGINE = ReplicatedSummingMergeTree('{zk}/nz', '{r}') ORDER BY k;
-- r2
CREATE TABLE nz (k UInt32, x Nullable(Int32), z Float64) ENGINE = ReplicatedSummingMergeTree('{zk}/nz', '{r}') ORDER BY k;
-- r1
SYSTEM STOP MERGES;
INSERT INTO nz VALUES (1, 0, 0), (2, NULL, 0), (3, 5, 0), (3, -5, 0), (4, NULL, 1), (4, NULL, -1), (5, 0, 1), (6, 3, 0), (6, NULL, 0), (7, 1, 0.5), (7, -1, -0.5);
INSERT INTO nz VALUES (6, -3, 0), (8, 0, 0), (9, NULL, 0), (10, 7, 0), (5, NULL, 1);
SELECT * FROM nz FINAL ORDER BY k;
SYSTEM START MERGES;
OPTIMIZE TABLE nz FINAL;
SELECT * FROM nz ORDER BY k;
-- r2
SYSTEM SYNC REPLICA nz;
SELECT * FROM nz ORDER BY k;
SELECT name, rows FROM system.parts WHERE table = 'nz' AND active;
