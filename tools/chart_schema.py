"""The schema of the chart's values: what Helm refuses before anything is made.

It is a JSON schema, draft 7, as Helm 3 reads it. It must never let a value through that has no effect: every object
names all that may be in it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from stream_learner.adapters.kafka.properties import OURS
from stream_learner.config import Config

Schema = dict[str, Any]

OWNED = (
    ("model",),
    ("kafka",),
    ("join", "instance_id"),
    ("learner", "state_dir"),
    ("serve", "port"),
    ("serve", "token"),
    ("serve", "tls_certificate"),
    ("serve", "tls_key"),
    ("telemetry", "http_port"),
    ("telemetry", "token"),
)
"""Settings that the chart makes itself, from other values: `config` must not say otherwise."""

SECRET_OPTIONS = (
    r"(password|secret$|secret\.|credential|jaas|private|api\.key|oauthbearer\.config|\.pem$|assertion\.file)"
)
"""Options of librdkafka whose value must be a reference, so that no secret comes into a ConfigMap."""

NAME = r"^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$"
MODEL = r"^[a-zA-Z0-9][a-zA-Z0-9._-]{0,199}$"
MOMENT = r"^(earliest|\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?([zZ]|[+-]\d\d:\d\d))$"
QUANTITY = r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$"

TEXT: Schema = {"type": "string"}
BOOLEAN: Schema = {"type": "boolean"}
MAPPING: Schema = {"type": "object"}
TEXTS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
OBJECTS: Schema = {"type": "array", "items": {"type": "object"}}
PERCENT: Schema = {"type": "integer", "minimum": 1, "maximum": 80}
AMOUNT: Schema = {"anyOf": [{"type": "string", "pattern": QUANTITY}, {"type": "number", "exclusiveMinimum": 0}]}


def schema(descriptions: dict[str, str]) -> Schema:
    """The whole schema; `descriptions` are those of values.yaml, by dotted path."""
    values = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart stream-learner",
        **_object(_top()),
        "definitions": {"secrets": _secrets(), **_roles(), **_config()},
    }
    for path, text in descriptions.items():
        _at(values, path)["description"] = text
    return values


def _at(values: Schema, path: str) -> Schema:
    """The schema of the value at a dotted path, copied out of what it shares with others: its text is its own."""
    place = values
    for part in path.split("."):
        if "$ref" in place:
            place = values["definitions"][place["$ref"].split("/")[-1]]
        properties = place["properties"]
        properties[part] = copy.deepcopy(properties[part])
        place = properties[part]
    if "$ref" in place:
        place["allOf"] = [{"$ref": place.pop("$ref")}]
    return place


def _object(properties: dict[str, Schema], required: Iterable[str] = ()) -> Schema:
    found: Schema = {"type": "object", "additionalProperties": False, "properties": properties}
    if required:
        found["required"] = list(required)
    return found


def _whole(least: int, most: int | None = None) -> Schema:
    return {"type": "integer", "minimum": least, **({} if most is None else {"maximum": most})}


def _one_of(*values: str) -> Schema:
    return {"enum": list(values)}


def _or_null(found: Schema) -> Schema:
    return {"anyOf": [found, {"type": "null"}]}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/definitions/{name}"}


def _by_role(values: Schema) -> Schema:
    return _object(dict.fromkeys(("joiner", "learner", "scorer", "backfill", "topics"), values))


def _top() -> dict[str, Schema]:
    return {
        "global": {"description": "Set by a chart that this one is part of; nothing here reads it.", **MAPPING},
        "nameOverride": {"type": "string", "maxLength": 40},
        "fullnameOverride": {"type": "string", "maxLength": 52},
        "image": _image(),
        "imagePullSecrets": {"type": "array", "items": _object({"name": TEXT}, ["name"])},
        "kafka": _kafka(),
        "secrets": _ref("secrets"),
        "config": _ref("config"),
        "models": {
            "type": "object",
            "propertyNames": {"pattern": NAME},
            "additionalProperties": _ref("model"),
        },
        "backfills": {"type": "array", "items": _ref("backfillEntry")},
        **{role: _ref(role) for role in ("joiner", "learner", "scorer", "backfill", "topics", "pod")},
        "podSecurity": _object({name: _or_null(_whole(1)) for name in ("user", "group", "fsGroup")}),
        "topologySpread": _object(
            {name: _one_of("ScheduleAnyway", "DoNotSchedule", "Off") for name in ("zone", "host")}
        ),
        "serviceAccounts": _object({"create": BOOLEAN, "names": _by_role(TEXT), "annotations": _by_role(TEXTS)}),
        "networkPolicy": _network_policy(),
        "monitoring": _monitoring(),
    }


def _image() -> Schema:
    return _object(
        {
            "repository": {"type": "string", "minLength": 1},
            # A tag that moves is no version: nobody could say what runs.
            "tag": {"type": "string", "pattern": "^[A-Za-z0-9_.-]*$", "not": {"const": "latest"}},
            "digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
            "pullPolicy": _one_of("IfNotPresent", "Always", "Never"),
        }
    )


def _kafka() -> Schema:
    reference = {"anyOf": [_object({name: {"type": "string", "minLength": 1}}, [name]) for name in ("file", "env")]}
    scalar = {"type": ["string", "number", "boolean"]}
    return {
        "type": "object",
        "patternProperties": {SECRET_OPTIONS: reference},
        "propertyNames": {"not": {"enum": sorted(OURS)}},
        "additionalProperties": {"anyOf": [scalar, *reference["anyOf"]]},
    }


def _secrets() -> Schema:
    entry = _object(
        {
            "secretName": {"type": "string", "minLength": 1},
            "mountPath": {"type": "string", "pattern": "^/run/secrets/.+"},
            "env": {**TEXTS, "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}},
        },
        ["secretName"],
    )
    return {"type": "array", "items": {**entry, "anyOf": [{"required": ["mountPath"]}, {"required": ["env"]}]}}


def _roles() -> dict[str, Schema]:
    return {
        "pod": _pod(),
        "resources": _resources(),
        "joiner": _object(
            {
                **_role(startup=True),
                "enabled": BOOLEAN,
                "replicas": _whole(0),
                "bufferPercent": PERCENT,
                "podDisruptionBudget": _budget(),
                "autoscaling": _object(
                    {
                        "enabled": BOOLEAN,
                        "minReplicas": _whole(1),
                        "prometheusAddress": {"type": "string", "pattern": "^(https?://.+)?$"},
                        "lagSeconds": _whole(1),
                        "pollingInterval": _whole(1),
                        "scaleDownStabilizationSeconds": _whole(0, 3600),
                    }
                ),
            }
        ),
        "learner": _object(
            {
                **_role(startup=True),
                "enabled": BOOLEAN,
                "standby": BOOLEAN,
                "bufferPercent": PERCENT,
                "persistence": _persistence({"existingClaim": TEXT}),
            }
        ),
        "scorer": _scorer(),
        "backfill": _object(
            {
                **_role(),
                "joinBufferPercent": PERCENT,
                "learnerBufferPercent": PERCENT,
                "backoffLimit": _whole(0),
                "persistence": _persistence({}),
            }
        ),
        "topics": _object(
            {
                **_role(),
                **dict.fromkeys(("enabled", "hook", "createInputs", "apply"), BOOLEAN),
                "backoffLimit": _whole(0),
            }
        ),
        "model": _model(),
        "backfillEntry": _backfill_entry(),
    }


def _role(*, startup: bool = False) -> dict[str, Schema]:
    return {
        "resources": _ref("resources"),
        **({"startupSeconds": _whole(5)} if startup else {}),
        "terminationGracePeriodSeconds": _whole(10),
        "secrets": _or_null(_ref("secrets")),
        "pod": _ref("pod"),
    }


def _scorer() -> Schema:
    service = _object(
        {"type": _one_of("ClusterIP", "NodePort", "LoadBalancer"), "port": _whole(1, 65_535), "annotations": TEXTS}
    )
    share = {"anyOf": [_whole(1), {"type": "string", "pattern": "^[0-9]{1,2}%$"}]}
    role = _role()
    # It follows from serve.drain and serve.request_timeout.
    del role["terminationGracePeriodSeconds"]
    return _object(
        {
            **role,
            "enabled": BOOLEAN,
            "replicas": _whole(0),
            "startupSeconds": _or_null(_whole(5)),
            "preStopSeconds": _whole(0, 600),
            "copies": _object({"enabled": BOOLEAN, "existingClaim": TEXT}),
            "service": service,
            "tls": _object({"secretName": TEXT}),
            "token": _token(),
            "podDisruptionBudget": _budget(share),
            "autoscaling": _object(
                {
                    "enabled": BOOLEAN,
                    "minReplicas": _whole(1),
                    "maxReplicas": _whole(1),
                    "targetCPUPercent": _whole(1, 100),
                }
            ),
        }
    )


def _pod() -> Schema:
    return _object(
        {
            "annotations": TEXTS,
            "labels": TEXTS,
            "extraEnv": OBJECTS,
            "extraVolumes": OBJECTS,
            "extraVolumeMounts": OBJECTS,
            "nodeSelector": TEXTS,
            "tolerations": OBJECTS,
            "affinity": MAPPING,
            "priorityClassName": TEXT,
        }
    )


def _resources() -> Schema:
    amounts = {"type": "object", "additionalProperties": AMOUNT}
    return _object({"requests": amounts, "limits": amounts})


def _budget(most: Schema | None = None) -> Schema:
    return _object({"enabled": BOOLEAN, "maxUnavailable": most or _whole(1)})


def _persistence(further: dict[str, Schema]) -> Schema:
    return _object({"enabled": BOOLEAN, **further, "storageClass": TEXT, "size": AMOUNT})


def _model() -> Schema:
    return _object(
        {
            "model": {
                "type": "string",
                "pattern": MODEL,
                "description": "Its name in Kafka, where that is not the name it has here.",
            },
            "partitions": {
                **_whole(1, 100_000),
                "description": "Partitions that each of its two input topics has; needed where it has joiners.",
            },
            "config": {
                "allOf": [_ref("config")],
                "description": "Its settings; they are merged over the shared `config`.",
            },
            **{
                role: {"allOf": [_ref(role)], "description": f"What it has instead of what the shared `{role}` says."}
                for role in ("joiner", "learner", "scorer")
            },
        }
    )


def _backfill_entry() -> Schema:
    entry = {
        "model": (TEXT, "Which of `models` it is trained like; that model is live and stays as it is."),
        "as": ({"type": "string", "pattern": MODEL}, "Name in Kafka of the model to train."),
        "from": ({"type": "string", "pattern": MOMENT}, "First impressions: `earliest`, or a moment with its zone."),
        "until": ({"type": "string", "pattern": MOMENT}, "Where it ends: before the impressions of this moment."),
        "joiners": (_whole(1, 256), "Processes that join, all in the Job's one pod; 1 where nothing is said."),
        "maxRate": (_whole(1), "Most impressions a second that each of them reads."),
        "fromLog": (
            {"type": "string", "pattern": MODEL},
            "A model whose training log is folded instead of joining again.",
        ),
        "variants": (
            {"type": "array", "items": {"type": "string", "pattern": "^[^:]+:.+=.*$"}},
            "Further models learned in the same pass, each `NAME:setting=value,…`.",
        ),
        "set": (
            {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}},
            "Settings that differ from the model's, by dotted name, such as `learner.optimizer.alpha`.",
        ),
        "overrides": ({"allOf": [_ref("backfill")]}, "What it has instead of what the shared `backfill` says."),
    }
    found = _object({name: {**of, "description": text} for name, (of, text) in entry.items()}, ["model", "as", "until"])
    return {**found, "anyOf": [{"required": ["from"]}, {"required": ["fromLog"]}]}


def _network_policy() -> Schema:
    ports = {"type": "array", "minItems": 1, "items": _whole(1, 65_535)}
    return _object(
        {
            "enabled": BOOLEAN,
            "kafka": _object({"ports": ports, "to": OBJECTS}),
            **dict.fromkeys(("dnsTo", "serveFrom", "metricsFrom", "extraEgress"), OBJECTS),
        }
    )


def _token(**further: Schema) -> Schema:
    return _object({"secretName": TEXT, "key": {"type": "string", "pattern": "^[-._a-zA-Z0-9]+$"}, **further})


def _monitoring() -> Schema:
    rules = {
        "enabled": BOOLEAN,
        "runbookUrl": TEXT,
        "lagSeconds": _whole(1),
        "freshnessSeconds": _whole(1),
        "latencySeconds": {"type": "number", "exclusiveMinimum": 0},
        "duplicateRatio": {"type": "number", "minimum": 0, "maximum": 1},
        "deadLetterRatio": {"type": "number", "minimum": 0, "maximum": 1},
        "positivesRatio": {"type": "number", "minimum": 0, "maximum": 1},
        "orphanRatio": {"type": "number", "minimum": 0, "maximum": 1},
    }
    return _object(
        {
            "monitor": _one_of("PodMonitor", "ServiceMonitor", "None"),
            "interval": {"type": "string", "pattern": "^[0-9]+(ms|s|m)$"},
            "labels": TEXTS,
            "token": _token(monitorKey={"type": "string", "pattern": "^[-._a-zA-Z0-9]*$"}),
            "rules": _object(rules),
            "dashboard": _object({"enabled": BOOLEAN, "labels": TEXTS, "annotations": TEXTS}),
        }
    )


def _config() -> dict[str, Schema]:
    """The program's configuration without what the chart owns; nothing is required, since it is merged from parts."""
    whole = Config.model_json_schema()
    sections = whole.pop("$defs")
    for path in OWNED:
        section = whole
        for part in path[:-1]:
            section = sections[section["properties"][part]["$ref"].split("/")[-1]]
        del section["properties"][path[-1]]
    definitions = {"config": _plain(whole)}
    waiting = [whole]
    while waiting:
        for name in sorted(_referred(waiting.pop())):
            if f"config{name}" not in definitions:
                definitions[f"config{name}"] = _plain(sections[name])
                waiting.append(sections[name])
    return definitions


def _referred(found: Any) -> set[str]:
    """Names of the sections that a schema refers to."""
    if isinstance(found, dict):
        own = {found["$ref"].split("/")[-1]} if "$ref" in found else set()
        return own.union(*map(_referred, found.values()))
    return set().union(*map(_referred, found)) if isinstance(found, list) else set()


def _plain(found: Any, *, is_schema: bool = True) -> Any:
    """A schema without titles, defaults and requirements, its references to sections as they are named here."""
    if isinstance(found, list):
        return [_plain(item) for item in found]
    if not isinstance(found, dict):
        return found
    kept = {
        name: value if name in ("enum", "const", "if") else _plain(value, is_schema=name != "properties")
        for name, value in found.items()
        if not (is_schema and name in ("title", "default", "required"))
    }
    if is_schema and isinstance(kept.get("$ref"), str):
        kept["$ref"] = f"#/definitions/config{kept['$ref'].split('/')[-1]}"
    return kept
