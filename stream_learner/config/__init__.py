"""The configuration: one typed tree, checked whole before anything starts.

In: a YAML file, environment variables, overrides. Out: `Config`. Nothing else in the program reads
configuration files or the environment.

Read in this order: sections (every setting), tree (the whole and what is made from it), rules (what cannot
work together), checked (`Config`: a tree that keeps them), load (where values come from).
"""

from __future__ import annotations

from stream_learner.config.checked import Config
from stream_learner.config.kafka import KafkaOptions
from stream_learner.config.load import ENVIRONMENT_PREFIX, check_secrets, load_config

__all__ = ["ENVIRONMENT_PREFIX", "Config", "KafkaOptions", "check_secrets", "load_config"]
