"""Schemas of objects: Kubernetes' own, strict, by version; and trimmed ones of ours for what operators define.

It must never pass over a kind that it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator
from kubernetes_validate.utils import all_versions, schema_contents
from referencing import Registry, Resource

Schema = dict[str, Any]

SHIPPED = [version for version in all_versions() if "local" not in version]
TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}


def _object(properties: Schema, *required: str) -> Schema:
    return {"type": "object", "additionalProperties": False, "properties": properties, "required": list(required)}


def _list(items: Schema) -> Schema:
    return {"type": "array", "minItems": 1, "items": items}


_LABELS = {"type": "object", "additionalProperties": TEXT}
_SELECTOR = _object({"matchLabels": _LABELS}, "matchLabels")
_SPAN = {"type": "string", "pattern": "^[0-9]+(ms|s|m|h)$"}
_RELABELING = _object(
    {
        "sourceLabels": _list(TEXT),
        **dict.fromkeys(("separator", "targetLabel", "regex", "replacement", "action"), TEXT),
        "modulus": COUNT,
    }
)
_KEY = _object({"name": TEXT, "key": TEXT}, "name", "key")
_ENDPOINT = _object(
    {
        "port": TEXT,
        "path": TEXT,
        **dict.fromkeys(("interval", "scrapeTimeout"), _SPAN),
        "authorization": _object({"type": TEXT, "credentials": _KEY}, "credentials"),
        **dict.fromkeys(("relabelings", "metricRelabelings"), _list(_RELABELING)),
    },
    "port",
)
_MATCH = _object({"path": _object({"type": {"enum": ["Exact", "PathPrefix", "RegularExpression"]}, "value": TEXT})})
_ROUTE_RULE = _object(
    {
        "matches": _list(_MATCH),
        "backendRefs": _list(_object({"name": TEXT, "port": COUNT}, "name", "port")),
        "timeouts": _object({"request": _SPAN, "backendRequest": _SPAN}),
    }
)
_RULE = _object(
    {
        "alert": TEXT,
        "expr": TEXT,
        "for": {"type": "string", "pattern": "^[0-9]+(s|m|h|d)$"},
        "labels": _LABELS,
        "annotations": _LABELS,
    },
    "alert",
    "expr",
)
_POLICY = _object({"type": {"enum": ["Pods", "Percent"]}, "value": COUNT, "periodSeconds": COUNT}, "type", "value")
_SCALING = _object({"stabilizationWindowSeconds": {**COUNT, "maximum": 3600}, "policies": _list(_POLICY)}, "policies")
_BEHAVIOR = _object({"behavior": _object({"scaleUp": _SCALING, "scaleDown": _SCALING})})
_TRIGGER = _object(
    {
        "type": {"const": "prometheus"},
        "metricType": {"enum": ["AverageValue", "Value"]},
        "metadata": _object(
            {"serverAddress": TEXT, "query": TEXT, "threshold": TEXT, "ignoreNullValues": {"enum": ["true", "false"]}},
            "serverAddress",
            "query",
            "threshold",
        ),
    },
    "type",
    "metadata",
)
OPERATORS: dict[tuple[str, str], Schema] = {
    ("monitoring.coreos.com/v1", "PodMonitor"): _object(
        {"selector": _SELECTOR, "podMetricsEndpoints": _list(_ENDPOINT), "sampleLimit": COUNT},
        "selector",
        "podMetricsEndpoints",
    ),
    ("monitoring.coreos.com/v1", "ServiceMonitor"): _object(
        {"selector": _SELECTOR, "endpoints": _list(_ENDPOINT), "sampleLimit": COUNT}, "selector", "endpoints"
    ),
    ("monitoring.coreos.com/v1", "PrometheusRule"): _object(
        {"groups": _list(_object({"name": TEXT, "rules": _list(_RULE)}, "name", "rules"))}, "groups"
    ),
    ("gateway.networking.k8s.io/v1", "HTTPRoute"): _object(
        {
            "parentRefs": _list(_object(dict.fromkeys(("name", "namespace", "sectionName"), TEXT), "name")),
            "hostnames": _list(TEXT),
            "rules": _list(_ROUTE_RULE),
        },
        "parentRefs",
    ),
    ("keda.sh/v1alpha1", "ScaledObject"): _object(
        {
            "scaleTargetRef": _object({"apiVersion": TEXT, "kind": TEXT, "name": TEXT}, "name"),
            "minReplicaCount": COUNT,
            "maxReplicaCount": COUNT,
            "pollingInterval": COUNT,
            "advanced": _object({"horizontalPodAutoscalerConfig": _BEHAVIOR}),
            "triggers": _list(_TRIGGER),
        },
        "scaleTargetRef",
        "triggers",
    ),
}
"""The `spec` of what operators define, by apiVersion and kind: no more than the chart uses of it."""


def problems(document: dict[str, Any], version: str) -> Iterator[str]:
    """The faults of an object on a cluster of a version, such as "1.31.0"."""
    kind = (document["apiVersion"], document["kind"])
    if kind in OPERATORS:
        outer = _object({"apiVersion": TEXT, "kind": TEXT, "metadata": {"type": "object"}, "spec": OPERATORS[kind]})
        validator = Draft202012Validator(outer)
    else:
        validator = _validator(*kind, version)
    for error in validator.iter_errors(document):
        yield f"{kind[1]} {document['metadata']['name']}: {error.json_path}: {error.message}"


@cache
def _validator(api_version: str, kind: str, version: str) -> Draft202012Validator:
    folder = f"kubernetes-json-schema/v{version}-local-strict"
    group = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", api_version)
    schema = schema_contents(f"{folder}/{kind.lower()}-{group}.json", version)
    return Draft202012Validator(schema, registry=_definitions(folder, version))


@cache
def _definitions(folder: str, version: str) -> Registry[Any]:
    return Resource.from_contents(schema_contents(f"{folder}/_definitions.json", version)) @ Registry()
