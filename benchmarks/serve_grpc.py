"""Load over gRPC, by h2load: one thread, each connection with one call under way, the same request again and again."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from pathlib import Path

import grpc
import numpy as np

from stream_learner.adapters.grpc.messages import SERVICE, message_class

__all__ = ["SERVICE", "Calls", "is_up"]

_HEADERS = ("-H", "content-type: application/grpc", "-H", "te: trailers")


class Calls:
    """Calls for predictions of so many events, as a file."""

    def __init__(self, folder: Path, model: str, texts: list[bytes], count: int) -> None:
        if shutil.which("h2load") is None:
            raise RuntimeError("h2load is not installed: apt-get install nghttp2-client")
        tensor = {
            "name": "events",
            "datatype": "BYTES",
            "shape": [count],
            "contents": {"bytes_contents": texts[:count]},
        }
        message = message_class("ModelInferRequest")(model_name=model, inputs=[tensor]).SerializeToString()
        self._file, self._log = folder / f"grpc-{count}", folder / f"grpc-{count}.log"
        self._file.write_bytes(struct.pack(">BI", 0, len(message)) + message)

    def load(self, url: str, connections: int, seconds: int) -> dict[str, float]:
        """What was measured, as `Bodies.load` has it. url: host and port. Raises RuntimeError if a call failed."""
        command = ["h2load", "-t1", "-m1", f"-c{connections}", f"-D{seconds}", *_HEADERS]
        command += ["-d", str(self._file), "--log-file", str(self._log), f"http://{url}/{SERVICE}/ModelInfer"]
        self._log.unlink(missing_ok=True)
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        data = re.search(r"\((\d+)\) data", told)
        status_and_us = np.loadtxt(self._log, usecols=(1, 2), ndmin=2)
        requests, taken_ms = len(status_and_us), status_and_us[:, 1] / 1000
        # A call that is refused has the status 200 as well, and no message.
        if data is None or int(data[1]) < 8 * requests or not (status_and_us[:, 0] == 200).all():
            raise RuntimeError(f"calls failed at {url}")
        p50, p99 = np.percentile(taken_ms, (50, 99))
        return {"requests": requests, "seconds": seconds, "p50_ms": float(p50), "p99_ms": float(p99), "failed": 0}


def is_up(url: str) -> bool:
    """Whether something answers calls there."""
    with grpc.insecure_channel(url) as channel:
        try:
            channel.unary_unary(f"/{SERVICE}/ServerLive")(b"", timeout=2)
        except grpc.RpcError as error:
            return error.code() == grpc.StatusCode.UNIMPLEMENTED
        return True
