"""River behind FastAPI, as a site would write it: `python -m benchmarks.serve_river PORT`.

The fast way to write it: the body is parsed by orjson, not checked, and answered by a handler that is a coroutine. It
predicts with the weights of FTRL-Proximal after 20,000 events.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import Any

import orjson
import uvicorn
from fastapi import FastAPI, Request
from river import linear_model, optim

from stream_learner.traffic.benchmark import benchmark_impressions

app = FastAPI()
model = linear_model.LogisticRegression(optim.FTRLProximal(alpha=0.05))


def features(event: dict[str, Any]) -> dict[str, int]:
    """One feature for each value, as a learner of categories has them."""
    return {f"{name}={value}": 1 for name, value in event.items()}


@app.post("/predict")
async def predict(request: Request) -> dict[str, list[float]]:
    """The probabilities of a click."""
    events = orjson.loads(await request.body())["instances"]
    return {"predictions": [model.predict_proba_one(features(event))[True] for event in events]}


def learn(count: int) -> None:
    """Learn from the events that are asked for later, every tenth of them clicked."""
    data, bounds = benchmark_impressions(count)
    for number, (first, last) in enumerate(pairwise(bounds.tolist())):
        model.learn_one(features(orjson.loads(data[first:last])), number % 10 == 0)


if __name__ == "__main__":
    learn(20_000)
    uvicorn.run(app, port=int(sys.argv[1]), loop="uvloop", http="httptools", access_log=False, log_level="warning")
