"""The OpenAPI document of the server: every path, every answer, errors included.

In: the limits that show in schemas. Out: OpenAPI 3.1 as plain data. This file must never describe what the routes do
not do: a test generates requests from it and compares every answer with it.
"""

from __future__ import annotations

from typing import Any

Node = dict[str, Any]

_NAME = {"type": "string", "pattern": "^[a-zA-Z0-9][a-zA-Z0-9._-]{0,199}$"}
_VERSION = {"type": "string", "pattern": "^[0-9]{1,19}$", "description": "A version: the number of a tick."}
_EVENT = {
    "type": "object",
    "description": "An event as it is in the topic of impressions; id and time may be left out.",
}


def document(version: str, names: list[str], most_instances: int, with_token: bool) -> Node:
    """The document.

    version: this program's. names: those that models are served under. most_instances: what a request may hold.
    with_token: whether it must carry a token.
    """
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "stream-learner serve",
            "version": version,
            "summary": "Click probabilities, by the V1 and the Open Inference (V2) protocol.",
        },
        "paths": {**_v1_paths(with_token), **_v2_paths(with_token), **_probe_paths(), **_document_path()},
        "components": {
            "parameters": _parameters(names),
            "schemas": {**_v1_schemas(most_instances), **_v2_schemas(most_instances), **_shared_schemas()},
            "headers": _headers(),
            **({"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}} if with_token else {}),
        },
    }


# ------------------------------------------------------------------------------------------------------ paths


def _v1_paths(with_token: bool) -> Node:
    predict = _post("Predict", "V1Request", "V1Response", with_token)
    status = _get("Is the model ready, and which version is served?", "V1Status", with_token, [404])
    status["responses"]["503"] = _answer("V1Status", "Not ready; `error` says why.", ("Retry-After",))
    return {
        "/v1/models": {"get": _get("The names served.", "V1Models", with_token)},
        "/v1/models/{name}": {"get": _with(status, "name")},
        "/v1/models/{name}/versions/{version}": {"get": _with(status, "name", "version")},
        "/v1/models/{name}:predict": {"post": _with(predict, "name")},
        "/v1/models/{name}/versions/{version}:predict": {"post": _with(predict, "name", "version")},
    }


def _v2_paths(with_token: bool) -> Node:
    infer = _post("Infer", "V2Request", "V2Response", with_token)
    metadata = _get("What the model takes and gives.", "V2Metadata", with_token, [404])
    ready = _get("Is the model ready?", "V2ModelReady", with_token, [404, 503])
    return {
        "/v2": {"get": _get("What this server is.", "V2Server", with_token)},
        "/v2/models/{name}": {"get": _with(metadata, "name")},
        "/v2/models/{name}/versions/{version}": {"get": _with(metadata, "name", "version")},
        "/v2/models/{name}/ready": {"get": _with(ready, "name")},
        "/v2/models/{name}/versions/{version}/ready": {"get": _with(ready, "name", "version")},
        "/v2/models/{name}/infer": {"post": _with(infer, "name")},
        "/v2/models/{name}/versions/{version}/infer": {"post": _with(infer, "name", "version")},
    }


def _probe_paths() -> Node:
    ready = _get("Are all models ready, and is the server not stopping?", "Ready", with_token=False)
    ready["responses"]["503"] = _answer("NotReady", "Not ready; `error` says why.", ("Retry-After",))
    live = _get("Does the server answer?", "Live", with_token=False)
    return {
        "/v2/health/live": {"get": live},
        "/v2/health/ready": {"get": ready},
        "/healthz": {"get": live},
        "/readyz": {"get": ready},
    }


def _document_path() -> Node:
    found = _get("This document.", "Document", with_token=False)
    return {"/openapi.json": {"get": found}}


# -------------------------------------------------------------------------------------------------- operations

_ERRORS = {
    400: "The request makes no sense, or an event cannot be scored; the message says which and why.",
    401: "The bearer token is missing or wrong.",
    404: "No such model, or another version is served.",
    408: "The request did not arrive in time.",
    413: "The body is too large, before or after decompression.",
    415: "The body's Content-Encoding is neither gzip nor identity.",
    503: "The model is not ready, or too many requests are under way.",
    504: "The request took too long.",
}


def _get(summary: str, schema: str, with_token: bool, errors: list[int] | None = None) -> Node:
    # Too many requests at once, and a slow answer, can meet every request but the probes.
    usual = [] if schema in ("Live", "Ready", "Document") else [503]
    codes = sorted({408, 504, *usual, *(errors or []), *([401] if with_token else [])})
    return {
        "summary": summary,
        **_security(with_token),
        "responses": {"200": _answer(schema, "The answer."), **_error_answers(codes)},
    }


def _post(verb: str, request: str, response: str, with_token: bool) -> Node:
    codes = [400, 404, 408, 413, 415, 503, 504, *([401] if with_token else [])]
    headers = (
        "Stream-Learner-Model",
        "Stream-Learner-Version",
        "Stream-Learner-Freshness-Ms",
        "Stream-Learner-Version-Age",
    )
    return {
        "summary": f"{verb}: click probabilities of events, in their order, all of one version of one model.",
        **_security(with_token),
        "requestBody": {"required": True, "content": {"application/json": {"schema": _ref(request)}}},
        "responses": {"200": _answer(response, "The probabilities.", headers), **_error_answers(sorted(codes))},
    }


def _security(with_token: bool) -> Node:
    return {"security": [{"token": []}]} if with_token else {}


def _with(operation: Node, *parameters: str) -> Node:
    return {**operation, "parameters": [{"$ref": f"#/components/parameters/{name}"} for name in parameters]}


def _parameters(names: list[str]) -> Node:
    schemas = {"name": {"enum": names}, "version": _VERSION}
    return {name: {"name": name, "in": "path", "required": True, "schema": schema} for name, schema in schemas.items()}


def _error_answers(codes: list[int]) -> Node:
    special = {401: ("WWW-Authenticate",), 503: ("Retry-After",), 504: ("Retry-After",)}
    return {str(code): _answer("Error", _ERRORS[code], special.get(code, ())) for code in codes}


def _answer(schema: str, description: str, headers: tuple[str, ...] = ()) -> Node:
    found: Node = {"description": description, "content": {"application/json": {"schema": _ref(schema)}}}
    if headers:
        found["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in headers}
    return found


def _ref(name: str) -> Node:
    return {"$ref": f"#/components/schemas/{name}"}


def _headers() -> Node:
    return {
        "Stream-Learner-Model": {"schema": _NAME, "required": True, "description": "The model that answered."},
        "Stream-Learner-Version": {"schema": _VERSION, "required": True, "description": "Its version."},
        "Stream-Learner-Freshness-Ms": {
            "schema": {"type": "integer"},
            "description": "The version's age: the clock minus the end of its tick, in milliseconds.",
        },
        "Stream-Learner-Version-Age": {
            "schema": {"type": "integer"},
            "description": "How long ago the version was applied, in seconds.",
        },
        "Retry-After": {"schema": {"type": "integer"}, "description": "Seconds after which to ask again."},
        "WWW-Authenticate": {"schema": {"type": "string"}, "required": True, "description": "`Bearer`."},
    }


# ----------------------------------------------------------------------------------------------------- schemas


def _object(required: dict[str, Node], optional: dict[str, Node] | None = None, *, closed: bool = True) -> Node:
    found: Node = {
        "type": "object",
        "required": list(required),
        "properties": {**required, **(optional or {})},
    }
    return {**found, "additionalProperties": False} if closed else found


def _list(items: Node, **bounds: int) -> Node:
    return {"type": "array", "items": items, **bounds}


_TEXT: Node = {"type": "string"}
_YES: Node = {"type": "boolean"}
_APPLIED: Node = {"type": ["integer", "null"], "description": "How long ago the version was applied, seconds."}
_AGE: Node = {"type": ["integer", "null"], "description": "The version's age in milliseconds."}
_IGNORED: Node = {"description": "Let pass, and not looked at."}
_P: Node = {"type": "number", "minimum": 0, "maximum": 1}


def _v1_schemas(most: int) -> Node:
    state = _object(
        {
            "version": _VERSION,
            "state": {"enum": ["LOADING", "AVAILABLE"]},
            "status": _object({"error_code": {"enum": ["OK", "UNAVAILABLE"]}, "error_message": _TEXT}),
        }
    )
    instance = {"oneOf": [_EVENT, {"type": "string", "description": "An event's JSON as text."}]}
    return {
        "V1Request": _object({"instances": _list(instance, maxItems=most)}, {"signature_name": _IGNORED}, closed=False),
        "V1Response": _object(
            {
                "predictions": _list(_P),
                "model_name": _NAME,
                "model_version": _VERSION,
                "freshness_ms": _AGE,
                "version_age_s": _APPLIED,
            }
        ),
        "V1Status": _object(
            {
                "name": _NAME,
                "ready": _YES,
                "model_name": _TEXT,
                "model_version_status": _list(state, minItems=1, maxItems=1),
                "freshness_ms": _AGE,
                "version_age_s": _APPLIED,
            },
            {"error": _TEXT},
        ),
        "V1Models": _object({"models": _list(_NAME)}),
    }


def _v2_schemas(most: int) -> Node:
    tensor = _object(
        {
            "name": {"const": "events"},
            "shape": _list({"type": "integer", "minimum": 0}, minItems=1, maxItems=1),
            "datatype": {"const": "BYTES"},
            "data": _list({"type": "string", "description": "An event's JSON as text."}, maxItems=most),
        },
        {"parameters": _IGNORED},
        closed=False,
    )
    output = _object(
        {
            "name": {"const": "p_click"},
            "shape": _list({"type": "integer", "minimum": 0}, minItems=1, maxItems=1),
            "datatype": {"const": "FP64"},
            "data": _list(_P),
        }
    )
    asked = _object({"name": {"const": "p_click"}}, {"parameters": _IGNORED}, closed=False)
    described = _object({"name": _TEXT, "datatype": _TEXT, "shape": _list({"type": "integer"})})
    return {
        "V2Request": _object(
            {"inputs": _list(tensor, minItems=1, maxItems=1)},
            {
                "id": {"type": ["string", "null"]},
                "parameters": _IGNORED,
                "outputs": {**_list(asked), "type": ["array", "null"]},
            },
            closed=False,
        ),
        "V2Response": _object(
            {
                "model_name": _NAME,
                "model_version": _VERSION,
                "parameters": _object({}, {"freshness_ms": {"type": "integer"}, "version_age_s": {"type": "integer"}}),
                "outputs": _list(output, minItems=1, maxItems=1),
            },
            {"id": _TEXT},
        ),
        "V2Metadata": _object(
            {
                "name": _NAME,
                "versions": _list(_VERSION, maxItems=1),
                "platform": _TEXT,
                "inputs": _list(described),
                "outputs": _list(described),
                "parameters": _object({"model": _TEXT}),
            }
        ),
        "V2ModelReady": _object({"name": _NAME, "ready": {"const": True}}),
        "V2Server": _object({"name": _TEXT, "version": _TEXT, "extensions": _list(_TEXT)}),
    }


def _shared_schemas() -> Node:
    return {
        "Error": _object({"error": _TEXT}),
        "Document": _object({"openapi": _TEXT, "info": {"type": "object"}, "paths": {"type": "object"}}, closed=False),
        "Live": _object({"live": {"const": True}}),
        "Ready": _object({"ready": {"const": True}}),
        "NotReady": _object({"ready": {"const": False}, "error": _TEXT}),
    }
