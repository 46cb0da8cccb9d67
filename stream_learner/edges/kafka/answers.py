"""Answers of an admin client that are still to come.

In: a client, a question. Out: futures. This file must never let go of a client whose answers somebody waits for: one
that is dropped, as when credentials have changed, never gives them.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka.admin import AdminClient

K = TypeVar("K")
T = TypeVar("T")


class Answers(dict[K, Future[T]]):
    """Futures by what was asked for. They are given only while this lives: hold it until the last one is taken."""

    def __init__(self, client: AdminClient, ask: Callable[[AdminClient], Any]) -> None:
        super().__init__(ask(client))
        self._client = client
