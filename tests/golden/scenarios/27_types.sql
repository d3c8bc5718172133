-- r1
CREATE TABLE ty (i8 Int8, u8 UInt8, i16 Int16, u16 UInt16, i32 Int32, u32 UInt32, i64 Int64, u64 UInt64, f32 Float32, f64 Float64, s String, fs FixedString(3), d Date, t DateTime('UTC'), u UUID, e Enum8('b' = 1, 'a' = 2), ns Nullable(String), ai Array(Int32), a2 Array(Array(String)), tu Tuple(Int8, String), de Decimal(9, 2)) ENGINE = ReplicatedMergeTree('{zk}/ty', '{r}') ORDER BY i64;
-- r2
CREATE TABLE ty (i8 Int8, u8 UInt8, i16 Int16, u16 UInt16, i32 Int32, u32 UInt32, i64 Int64, u64 UInt64, f32 Float32, f64 Float64, s String, fs FixedString(3), d Date, t DateTime('UTC'), u UUID, e Enum8('b' = 1, 'a' = 2), ns Nullable(String), ai Array(Int32), a2 Array(Array(String)), tu Tuple(Int8, String), de Decimal(9, 2)) ENGINE = ReplicatedMergeTree('{zk}/ty', '{r}') ORDER BY i64;
-- r1
INSERT INTO ty VALUES (-128,255,-32768,65535,-2147483648,4294967295,-9223372036854775808,18446744073709551615,1.5,1e300,'tab\t nl\n q\' b\\','abc','2020-02-29','2020-02-29 23:59:59','61f0c404-5cb3-11e7-907b-a6006ad3dba0','a',NULL,[1,-2],[['x'],[]],(1,'t'),12.34);
INSERT INTO ty VALUES (0,0,0,0,0,0,0,0,0,-0.0,'','','1970-01-02','1970-01-01 00:00:01','00000000-0000-0000-0000-000000000000','b','',[],[],(0,''),-0.01);
INSERT INTO ty (i64, f32, f64, d, t, de) VALUES (1, 0.1, 0.1,'2000-01-01','2000-01-01 00:00:00',1.25),(2, 1e-10, 123456789.123,'2000-01-01','2000-01-01 00:00:00',1.25),(3, 16777216, 1e21,'2000-01-01','2000-01-01 00:00:00',1.25),(4,1e10,0.30000000000000004,'2000-01-01','2000-01-01 00:00:00',1.25);
OPTIMIZE TABLE ty FINAL;
-- r2
SYSTEM SYNC REPLICA ty;
SELECT * FROM ty ORDER BY i64;
SELECT e, count() FROM ty GROUP BY e ORDER BY e;
SELECT sum(i8), min(d), max(t), avg(f64), uniq(s), any(u) FROM ty;
SELECT i64 FROM ty WHERE ns IS NULL ORDER BY i64;
SELECT i64, toString(f32), toString(f64), f32 + f64 FROM ty ORDER BY i64;
