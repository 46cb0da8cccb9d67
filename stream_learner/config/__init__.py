"""The configuration: one typed tree, checked whole before anything starts.

    YAML file ──┐
    environment ┼─▶ load ─▶ sections ─▶ rules ─▶ Config ─▶ specs for `core`
    --set ──────┘            types,      settings
                             ranges      together

Nothing else in the program reads configuration files or the environment. All findings are
reported at once, each with the place where it was written.

Read `sections` (every setting), `values` (durations, sizes, moments), `tree` (the whole, and what is made from it),
`rules`, `checked` (`Config`, a tree that keeps the rules), `load` (where values come from). `choice` makes unions of
sections that are chosen by a name: `optimizers` has one for each optimizer, made from its class, `losses` one for each
loss. `kafka` and `references` keep secrets out of messages. `paths` knows the names of all settings, `yaml` reads plain
data with line numbers.
"""

from __future__ import annotations

from stream_learner.config.checked import Config
from stream_learner.config.kafka import KafkaOptions
from stream_learner.config.load import ENVIRONMENT_PREFIX, load_config

__all__ = ["ENVIRONMENT_PREFIX", "Config", "KafkaOptions", "load_config"]
