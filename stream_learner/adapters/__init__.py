"""Thin adapters to Kafka, RocksDB, HTTP and telemetry: the only users of those libraries."""
