"""Child processes: ZooKeeper, Spark and others. None outlives the process that started it."""
