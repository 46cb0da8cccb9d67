"""The schema of the chart's values: what Helm refuses before anything is made.

It is a JSON schema, draft 7, as Helm 3 reads it. It must never let a value through that has no effect: every object
names all that may be in it.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable
from pathlib import Path
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
    ("serve", "grpc_port"),
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
SECONDS = r"^([0-9]+(ms|s|m))?$"
RESERVED = (
    r"^(app\.kubernetes\.io/(name|instance|component|version|part-of|managed-by)|helm\.sh/chart|stream-learner/model)$"
)
"""Labels that the chart gives."""
RULES = Path(__file__).resolve().parent.parent / "helm" / "stream-learner" / "templates" / "prometheusrule.yaml"
QUANTITY = r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$"

TEXT: Schema = {"type": "string"}
BOOLEAN: Schema = {"type": "boolean"}
MAPPING: Schema = {"type": "object"}
TEXTS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
OBJECTS: Schema = {"type": "array", "items": {"type": "object"}}
STRINGS: Schema = {"type": "array", "items": {"type": "string"}}
LABELS: Schema = {**TEXTS, "propertyNames": {"not": {"pattern": RESERVED}}}
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
        "enabled": BOOLEAN,
        "global": _global(),
        "commonLabels": LABELS,
        "commonAnnotations": TEXTS,
        "extraObjects": {"type": "array", "items": {"type": ["object", "string"]}},
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
        **{role: _ref(role) for role in ("joiner", "learner", "scorer", "backfill", "topics", "test", "pod")},
        "podSecurity": _object({name: _or_null(_whole(1)) for name in ("user", "group", "fsGroup")}),
        "topologySpread": _object(
            {name: _one_of("ScheduleAnyway", "DoNotSchedule", "Off") for name in ("zone", "host")}
        ),
        "serviceAccounts": _object({"create": BOOLEAN, "names": _by_role(TEXT), "annotations": _by_role(TEXTS)}),
        "networkPolicy": _network_policy(),
        "monitoring": _monitoring(),
    }


def _global() -> Schema:
    """Other charts may have values of their own here, so that unknown names are let through."""
    secret = {"anyOf": [TEXT, _object({"name": TEXT}, ["name"])]}
    known = {"imageRegistry": TEXT, "imagePullSecrets": {"type": "array", "items": secret}, "labels": LABELS}
    return {"type": "object", "properties": known}


def _image() -> Schema:
    return _object(
        {
            "registry": TEXT,
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
            "version": {"type": ["string", "integer"]},
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
                **_workload(),
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
                **_workload(),
                "enabled": BOOLEAN,
                "standby": BOOLEAN,
                "bufferPercent": PERCENT,
                "persistence": _persistence({"existingClaim": TEXT, "retentionPolicy": _retention()}),
            }
        ),
        "scorer": _scorer(),
        "backfill": _object(
            {
                **_role(),
                **_job(),
                "joinBufferPercent": PERCENT,
                "learnerBufferPercent": PERCENT,
                "persistence": _persistence({}),
            }
        ),
        "topics": _object(
            {
                **_role(),
                **_job(),
                **dict.fromkeys(("enabled", "hook", "createInputs", "apply"), BOOLEAN),
            }
        ),
        "test": _test(),
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


def _workload() -> dict[str, Schema]:
    return {"annotations": TEXTS, "revisionHistoryLimit": _or_null(_whole(0)), "minReadySeconds": _whole(0)}


def _job() -> dict[str, Schema]:
    return {
        "annotations": TEXTS,
        "backoffLimit": _whole(0),
        "activeDeadlineSeconds": _or_null(_whole(1)),
        "ttlSecondsAfterFinished": _or_null(_whole(0)),
    }


def _test() -> Schema:
    role = _role()
    # It is killed at once: it has nothing to keep.
    del role["terminationGracePeriodSeconds"]
    return _object({**role, **_job(), "enabled": BOOLEAN, "timeoutSeconds": _whole(1)})


def _scorer() -> Schema:
    share = {"anyOf": [_whole(1), {"type": "string", "pattern": "^[0-9]{1,2}%$"}]}
    role = _role()
    # It follows from serve.drain and serve.request_timeout.
    del role["terminationGracePeriodSeconds"]
    return _object(
        {
            **role,
            **_workload(),
            "enabled": BOOLEAN,
            "replicas": _whole(0),
            "startupSeconds": _whole(5),
            "preStopSeconds": _whole(0, 600),
            "copies": _object({"enabled": BOOLEAN, "existingClaim": TEXT}),
            "service": _service(),
            "ingress": _ingress(),
            "httpRoute": _http_route(),
            "tls": _object({"secretName": TEXT}),
            "token": _token(),
            "grpc": _object({"enabled": BOOLEAN, "port": _whole(1, 65_535)}),
            "podDisruptionBudget": _budget(share),
            "autoscaling": _object(
                {
                    "enabled": BOOLEAN,
                    "minReplicas": _whole(1),
                    "maxReplicas": _whole(1),
                    # Of what is requested, which the limit may be above.
                    "targetCPUPercent": _or_null(_whole(1, 1000)),
                    "targetMemoryPercent": _or_null(_whole(1, 1000)),
                    "metrics": OBJECTS,
                    "behavior": MAPPING,
                }
            ),
        }
    )


def _service() -> Schema:
    local = _one_of("", "Cluster", "Local")
    return _object(
        {
            "type": _one_of("ClusterIP", "NodePort", "LoadBalancer"),
            "port": _whole(1, 65_535),
            "nodePort": _or_null(_whole(1, 65_535)),
            "annotations": TEXTS,
            "labels": LABELS,
            **dict.fromkeys(("appProtocol", "loadBalancerClass"), TEXT),
            "loadBalancerSourceRanges": STRINGS,
            **dict.fromkeys(("externalTrafficPolicy", "internalTrafficPolicy"), local),
            "trafficDistribution": _one_of("", "PreferClose", "PreferSameZone", "PreferSameNode"),
            "ipFamilyPolicy": _one_of("", "SingleStack", "PreferDualStack", "RequireDualStack"),
            "ipFamilies": {"type": "array", "items": _one_of("IPv4", "IPv6"), "maxItems": 2},
            "sessionAffinity": _one_of("", "None", "ClientIP"),
        }
    )


def _ingress() -> Schema:
    path = _object(
        {
            "path": {"type": "string", "pattern": "^/"},
            "pathType": _one_of("Prefix", "Exact", "ImplementationSpecific"),
        },
        ["path"],
    )
    host = _object({"host": TEXT, "paths": {"type": "array", "items": path}}, ["host"])
    tls = _object({"hosts": STRINGS, "secretName": TEXT})
    return _object(
        {
            "enabled": BOOLEAN,
            "className": TEXT,
            "annotations": TEXTS,
            "hosts": {"type": "array", "items": host},
            "tls": {"type": "array", "items": tls},
        }
    )


def _http_route() -> Schema:
    return _object(
        {
            "enabled": BOOLEAN,
            "annotations": TEXTS,
            "parentRefs": OBJECTS,
            "hostnames": STRINGS,
            "rules": {"type": "array", "items": {"type": "object", "not": {"required": ["backendRefs"]}}},
        }
    )


def _pod() -> Schema:
    return _object(
        {
            "annotations": TEXTS,
            "labels": LABELS,
            **dict.fromkeys(("extraEnv", "extraEnvFrom", "extraInitContainers", "extraContainers"), OBJECTS),
            "lifecycle": MAPPING,
            "extraVolumes": OBJECTS,
            "extraVolumeMounts": OBJECTS,
            "nodeSelector": TEXTS,
            "tolerations": OBJECTS,
            "affinity": MAPPING,
            **dict.fromkeys(("priorityClassName", "runtimeClassName", "schedulerName"), TEXT),
            "dnsPolicy": _one_of("", "ClusterFirst", "Default", "None", "ClusterFirstWithHostNet"),
            "dnsConfig": MAPPING,
            "hostAliases": OBJECTS,
            "topologySpreadConstraints": OBJECTS,
        }
    )


def _resources() -> Schema:
    amounts = {"type": "object", "additionalProperties": AMOUNT}
    return _object({"requests": amounts, "limits": amounts})


def _budget(most: Schema | None = None) -> Schema:
    return _object({"enabled": BOOLEAN, "maxUnavailable": most or _whole(1)})


def _persistence(further: dict[str, Schema]) -> Schema:
    modes = {"type": "array", "minItems": 1, "items": _one_of("ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany")}
    common = {"storageClass": TEXT, "size": AMOUNT, "accessModes": modes, "annotations": TEXTS}
    return _object({"enabled": BOOLEAN, **further, **common})


def _retention() -> Schema:
    return _object(dict.fromkeys(("whenDeleted", "whenScaled"), _one_of("Retain", "Delete")))


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
        "runbookUrl": {"type": "string", "pattern": "[{]page[}]"},
        "disabled": _object(dict.fromkeys(_alerts(), BOOLEAN)),
        "additionalRuleLabels": {**TEXTS, "propertyNames": {"not": {"enum": ["severity", "model"]}}},
        "additionalRuleAnnotations": {**TEXTS, "propertyNames": {"not": {"enum": ["summary", "runbook_url"]}}},
        "additionalGroups": OBJECTS,
        "lagSeconds": _whole(1),
        "waitSeconds": _whole(1),
        "freshnessSeconds": _whole(1),
        "latencySeconds": {"type": "number", "exclusiveMinimum": 0},
        "duplicateRatio": {"type": "number", "minimum": 0, "maximum": 1},
        "deadLetterRatio": {"type": "number", "minimum": 0, "maximum": 1},
        "positivesRatio": {"type": "number", "minimum": 0, "maximum": 1},
        "orphanRatio": {"type": "number", "minimum": 0, "maximum": 1},
        "retentionSeconds": _whole(0),
        "fieldFeaturesPerHour": _whole(1),
        "freeBytes": _whole(0),
        "copySeconds": _whole(1),
        "pausedSeconds": _whole(1),
    }
    return _object(
        {
            "monitor": _one_of("PodMonitor", "ServiceMonitor", "None"),
            "interval": {"type": "string", "pattern": "^[0-9]+(ms|s|m)$"},
            "scrapeTimeout": {"type": "string", "pattern": SECONDS},
            **dict.fromkeys(("relabelings", "metricRelabelings"), OBJECTS),
            "sampleLimit": _or_null(_whole(1)),
            "labels": TEXTS,
            "token": _token(monitorKey={"type": "string", "pattern": "^[-._a-zA-Z0-9]*$"}),
            "rules": _object(rules),
            "dashboard": _object({"enabled": BOOLEAN, "labels": TEXTS, "annotations": TEXTS}),
        }
    )


def _alerts() -> list[str]:
    """The names of the chart's alerts."""
    return re.findall(r"^- alert: (\w+)$", RULES.read_text(encoding="utf-8"), re.M)


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
