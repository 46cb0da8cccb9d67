"""Adapters: the only users of the libraries for Kafka, RocksDB, HTTP and telemetry.

    kafka/        clients, and what Kafka's errors mean
    rocksdb/      a state directory: checkpoints, the index of rows, copies of checkpoints
    http/         predictions over HTTP; health and metrics
    grpc/         predictions over gRPC
    telemetry/    metrics by name, logs

Each of these packages explains itself in its `__init__`; read that first. `prediction_server.py` puts together the
server of both protocols. `machine.py` (memory, disk) and `open_files.py` ask the system what this process may use.
`record_errors.py` turns what `core` says of a bad record into the error to stop with. Roles and operations call
adapters; an adapter decides nothing about what is read or written when.
"""
