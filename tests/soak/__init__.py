"""Real servers and a real ZooKeeper that are killed while clients insert: `make soak`."""
