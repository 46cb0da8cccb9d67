"""The pure part: bytes and numbers in, values out.

Nothing here does I/O, asks for the time, starts a thread, or logs; time and randomness are arguments. So every rule
about data can be tested, simulated and repeated without a broker. The roles call it and do the rest.

The folders stand in the order of the data:

    records of the inputs                              events of a request
             |                                                 |
             v                                                 |
    events/     bytes of an event -> id, time and a row of keys and values
             |                                                 |
             v                                                 |
    join/       impressions and clicks -> examples with labels, one tick after the other
             |                                                 |
             v                                                 |
    log/        examples and marks <-> records of the training log; rules W (writing) and R (reading)
             |                                                 |
             v                                                 |
    gate/       accepted ticks -> whether they may be learned, by what was learned before them
             |                                                 |
             v                                                 |
    model/      accepted ticks -> weights, losses and the digest of the state
             |                                                 |
             v                                                 v
    snapshots/  weights -> records of the snapshot topic -> a replica that predicts
             ^
             |
    control/    records of the control topic -> which model an alias serves, and what is paused or pinned

`machine/` is below all of them: how kernels are compiled, and what they are made of. `errors.py` has the errors of
records that somebody wrote and nobody can use; `parts.py` has the kernels of each role, to be compiled before its first
event.
"""
