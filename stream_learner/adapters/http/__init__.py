"""HTTP: predictions by the V1 protocol (TensorFlow Serving, KServe) and the Open Inference Protocol (V2).

The way of a request
--------------------

    socket
      |    bytes
    connection.py   uvicorn's parser, with a limit for each wait and a bound on the head and on what waits
      |    ASGI scope and messages
    gate.py         token (401), deadline (408, 504), counting; every error becomes an answer
      |
    routes.py       the path picks a route: `PredictRoute` reads a body, `ReadRoute` does not
      |    bodies.py reads the body up to `serve.max_body` (413), and decompresses it up to the same limit
      |    admission.py bounds the bytes of all bodies, and the requests worked on once theirs is complete (503)
      |
    executor.py     a small body is worked on in the event loop, a large one in a thread
      |
    v1.py, v2.py    JSON -> events -> `ServedModel.predict_json` or `predict_many` -> JSON
      |
    replies.py      status, headers and body as ASGI messages, back through the gate

`connection.py` answers an ordinary prediction request itself, with `at_once.py`: small, whole, of the usual path, with
status 200. That takes half of the processor's time, and gives the same bytes. All others take the way above from its
beginning.

A step that cannot go on raises `Refused` (a status and a reason) or `NotReady`; the gate answers `{"error": reason}`,
as both protocols ask. If the client goes away, `ClientGone` ends the request without an answer, and 499 is counted.
Anything else is a bug: the client gets 500, the log gets the traceback, the others go on.

One thread runs the event loop (`HttpThread` in `thread.py`). It never does long work, and never waits for a client
without a limit. Threads of `RequestExecutor` predict large requests, and decompress bodies. A `ServedModel` may be
called from any of them.

`PredictionServer` (`adapters/prediction_server.py`) puts all this together, refreshes token and certificate when their
files change (`security.py`), and stops in this order: not ready, accept nothing more, answer what was asked, end.
`models.py` says what a route needs of a model; the role scorer provides it. `openapi.json` describes every path;
`openapi.py` fills in names and limits. `thread.py` also has `TelemetryServer`: `/metrics`, `/healthz` and `/readyz` of
every role, over connections with the same limits and fewer of them.
"""
