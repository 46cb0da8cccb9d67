"""Incidents: what goes wrong in production, one at a time, on a real broker with the processes of a deployment.

    traffic ──▶ world (broker, two joiners, a learner, two servers) ◀── load (predictions, without a pause)
                  │ an incident of `catalogue`: begins, is seen, is mended, an operator decides
                  └──▶ verdict: the log and the model against the oracle

`run` carries incidents out; `python -m proofs.chaos --incidents` is its command.
"""
