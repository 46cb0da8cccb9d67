"""RocksDB: checkpoints, and the index of rows. The only user of rocksdict."""
