"""gRPC: predictions by the Open Inference Protocol, the same that `adapters/http/v2.py` speaks over HTTP.

`messages` has the protocol's messages, `infer` makes an answer of a request, `server` answers calls in the event loop
of the HTTP server. Token, counters and limits are the objects that the HTTP server has; a `Refused` becomes the status
of gRPC that says the same.

This folder needs the libraries of `stream-learner[grpc]`, so nothing outside imports it before `serve.grpc_port` asks
for it.
"""

import os

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # or the library writes to stderr for calls that it refuses itself
