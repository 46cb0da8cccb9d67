"""The OpenAPI document of the server: `openapi.json` beside this file, with names, limits and the version filled in.

Whoever changes a route changes that file: a test makes requests from the document and compares every answer with it.
In the file an error is written once, below `components.responses`; in the document it stands at each operation.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

FILE = Path(__file__).with_name("openapi.json")


def document(version: str, names: list[str], most_instances: int, with_token: bool) -> dict[str, Any]:
    """The document, as plain data.

    version: this program's. names: those that models are served under. most_instances: how many events a request may
    hold. with_token: whether it must carry a token.
    """
    found: dict[str, Any] = orjson.loads(FILE.read_bytes())
    found["info"]["version"] = version
    components = found["components"]
    components["parameters"]["name"]["schema"]["enum"] = names
    schemas = components["schemas"]
    schemas["V1Request"]["properties"]["instances"]["maxItems"] = most_instances
    schemas["V2Request"]["properties"]["inputs"]["items"]["properties"]["data"]["maxItems"] = most_instances
    errors = components.pop("responses")
    if not with_token:
        del components["securitySchemes"]
    for path in found["paths"].values():
        for operation in path.values():
            _fill_in(operation, errors, with_token)
    return found


def _fill_in(operation: dict[str, Any], errors: dict[str, Any], with_token: bool) -> None:
    """Put the errors into an operation, and take out what belongs to the token if there is none."""
    responses = operation["responses"]
    if not with_token:
        operation.pop("security", None)
        responses.pop("401", None)
    operation["responses"] = {code: errors[code] if "$ref" in given else given for code, given in responses.items()}
